"""Elementwise work: chains, broadcasts, optimizers, lists of tensors."""

from __future__ import annotations

from random import Random

import torch
import torch.nn.functional as F

from draws import Array, Draw, near, one_of, width

Tensor = torch.Tensor


def chain(random: Random) -> Draw:
    n = near(random, 1 << 16, 1 << 25, one_of(random, 1024, 1))
    kind = one_of(random, "gelu", "sigmoid", "mul add", "tanh")

    def layer(x: Tensor, y: Tensor) -> Tensor:
        if kind == "gelu":
            return F.gelu(x) * y
        if kind == "sigmoid":
            return torch.sigmoid(x) * y + x
        return torch.tanh(x) - y if kind == "tanh" else torch.addcmul(x, x, y, value=0.5)
    return Draw(f"{kind} {n}", layer, [Array((n,))] * 2)


def broadcast(random: Random) -> Draw:
    """A bias and a scale for each channel or each row."""
    b, c, n = near(random, 1, 64), near(random, 16, 512), near(random, 49, 4096)
    while b * c * n > 32 << 20:
        b, n = b // 2 or 1, n if b > 1 else n // 2

    def layer(x: Tensor, s: Tensor, v: Tensor) -> Tensor:
        return F.silu(x * s[:, None] + v[:, None])
    return Draw(f"{b}x{c}x{n}", layer, [Array((b, c, n)), Array((c,)), Array((c,))])


def adam(random: Random) -> Draw:
    """A step of AdamW in f32 states, of one parameter."""
    shape = (width(random, 256, 4096), width(random, 256, 4096))

    def layer(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        g = g.float()
        m = m.float() * 0.9 + g * 0.1
        v = v.float() * 0.999 + g * g * 0.001
        return (p.float() * 0.9999 - 1e-3 * m / (v.sqrt() + 1e-8)).to(p.dtype), m, v
    return Draw(f"{shape[0]}x{shape[1]}", layer, [*[Array(shape)] * 3, Array(shape, "positive")])


def lists(random: Random) -> Draw:
    """The same of many tensors of several sizes, as an optimizer without `foreach`."""
    sizes = [(near(random, 16, 1024), near(random, 1, 1024)) for _ in range(random.randint(8, 24))]

    def layer(*xs: Tensor) -> tuple[Tensor, ...]:
        half = len(xs) // 2
        return tuple(torch._foreach_add(list(xs[:half]), list(xs[half:]), alpha=-0.01))
    return Draw(f"{len(sizes)} tensors, {sum(a * b for a, b in sizes)}", layer,
                [Array(s) for s in sizes] * 2)


def split(random: Random) -> Draw:
    """Halves of a row, one of which gates the other."""
    m, n = near(random, 64, 8192), width(random, 256, 8192)
    m = max(16, min(m, (32 << 20) // n))

    def layer(x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return F.gelu(a) * b
    return Draw(f"{m}x2x{n}", layer, [Array((m, 2 * n))])


CLASSES = {"elementwise": chain, "broadcast": broadcast, "adamw": adam, "list of tensors": lists,
           "gated halves": split}
