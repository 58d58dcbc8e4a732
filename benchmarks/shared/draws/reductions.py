"""Sums, norms, softmax, losses, scans, sorting and selection."""

from __future__ import annotations

from random import Random

import torch
import torch.nn.functional as F

from draws import Array, Draw, near, one_of, rows, width

Tensor = torch.Tensor


def norm(random: Random) -> Draw:
    """Layer norm or RMS norm, with a residual or without."""
    m, n, residual = rows(random), width(random, 128, 8192), random.random() < 0.5
    kind = one_of(random, "layer", "rms")

    def layer(x: Tensor, r: Tensor, w: Tensor, b: Tensor) -> Tensor:
        x = x + r if residual else x
        return F.layer_norm(x, (n,), w, b) if kind == "layer" else F.rms_norm(x, (n,), w, 1e-6)
    return Draw(f"{kind} {m}x{n}{' residual' if residual else ''}", layer,
                [Array((m, n)), Array((m, n)), Array((n,)), Array((n,))])


def group_norm(random: Random) -> Draw:
    b, c, side = near(random, 1, 16), near(random, 64, 1280, 32), one_of(random, 8, 16, 32, 64)
    last = random.random() < 0.5
    while b * c * side * side > 32 << 20:
        side //= 2

    def layer(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return F.silu(F.group_norm(x, 32, w, v))
    return Draw(f"{b}x{c}x{side}x{side}{' last' if last else ''}", layer,
                [Array((b, c, side, side), last=last), Array((c,)), Array((c,))])


def batch_norm(random: Random) -> Draw:
    """In training: statistics of each channel, then the normalized values."""
    b, c, side = near(random, 4, 64), near(random, 32, 512, 8), one_of(random, 7, 14, 28, 56)
    last = random.random() < 0.7
    while b * c * side * side > 32 << 20:
        b = max(1, b // 2)

    def layer(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return F.relu(F.batch_norm(x, None, None, w, v, training=True))
    return Draw(f"{b}x{c}x{side}x{side}{' last' if last else ''}", layer,
                [Array((b, c, side, side), last=last), Array((c,)), Array((c,))])


def softmax(random: Random) -> Draw:
    m, n = rows(random, 64, 8192), near(random, 64, 16384, one_of(random, 64, 1))
    m = max(16, min(m, (64 << 20) // n))
    return Draw(f"{m}x{n}", lambda x: torch.softmax(x, -1), [Array((m, n))])


def loss(random: Random) -> Draw:
    """Cross entropy over a vocabulary."""
    m, n = rows(random, 64, 4096), near(random, 8000, 131072, one_of(random, 64, 1))
    m = max(16, min(m, (100 << 20) // n))
    return Draw(f"{m}x{n}", lambda x, t: F.cross_entropy(x.float(), t),
                [Array((m, n)), Array((m,), n)])


def reduction(random: Random) -> Draw:
    """A sum, a mean, a maximum or a norm over any dims of three."""
    shape = (near(random, 4, 128), near(random, 16, 1024), near(random, 16, 2048))
    while shape[0] * shape[1] * shape[2] > 64 << 20:
        shape = (shape[0] // 2 or 1, shape[1], shape[2])
    dims = one_of(random, (0,), (1,), (2,), (0, 1), (1, 2), (0, 2))
    kind = one_of(random, "sum", "mean", "amax", "norm")

    def layer(x: Tensor) -> Tensor:
        if kind == "norm":
            return torch.linalg.vector_norm(x, dim=dims)
        return getattr(torch, kind)(x, dims)
    return Draw(f"{kind} {'x'.join(map(str, shape))} over {dims}", layer, [Array(shape)])


def whole(random: Random) -> Draw:
    """A loss over everything."""
    n = near(random, 1 << 16, 1 << 25, one_of(random, 1024, 1))
    return Draw(f"{n}", F.mse_loss, [Array((n,)), Array((n,))])


def scan(random: Random) -> Draw:
    m, n = near(random, 1, 4096), near(random, 64, 65536)
    m = max(1, min(m, (32 << 20) // n))
    dim = one_of(random, 1, 1, 0)
    return Draw(f"{m}x{n} along {dim}", lambda x: torch.cumsum(x.float(), dim), [Array((m, n))])


def top(random: Random) -> Draw:
    m, n = near(random, 1, 1024), near(random, 512, 262144)
    m, k = max(1, min(m, (16 << 20) // n)), one_of(random, 1, 5, 40, 100)
    return Draw(f"{k} of {m}x{n}", lambda x: torch.topk(x, k)[0], [Array((m, n))])


def sort(random: Random) -> Draw:
    m, n = near(random, 1, 1024), near(random, 128, 65536)
    m = max(1, min(m, (4 << 20) // n))
    return Draw(f"{m}x{n}", lambda x: torch.sort(x)[0], [Array((m, n))])


def argmax(random: Random) -> Draw:
    m, n = near(random, 1, 1024), near(random, 512, 131072)
    m = max(1, min(m, (32 << 20) // n))
    return Draw(f"{m}x{n}", lambda x: x.max(-1)[0], [Array((m, n))])


CLASSES = {"norm": norm, "group norm": group_norm, "batch norm": batch_norm, "softmax": softmax,
           "cross entropy": loss, "reduction": reduction, "whole loss": whole, "scan": scan,
           "top k": top, "sort": sort, "maximum of rows": argmax}
