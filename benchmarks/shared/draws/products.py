"""Products of matrices: plain, with what models do before and after them, batched, grouped."""

from __future__ import annotations

from random import Random

import torch
import torch.nn.functional as F

from draws import Array, Draw, near, one_of, rows, width

Tensor = torch.Tensor


def product(random: Random) -> Draw:
    """[m, k] by [k, n], the right one as it lies or transposed."""
    m, n, k = rows(random, 64, 8192), width(random), width(random)
    if random.random() < 0.5:
        return Draw(f"{m}x{k} @ {k}x{n}", torch.matmul, [Array((m, k)), Array((k, n))])
    return Draw(f"{m}x{k} @ {n}x{k}^T", F.linear, [Array((m, k)), Array((n, k))])


def few_rows(random: Random) -> Draw:
    """As in decoding: a few rows by a large matrix."""
    m, n, k = random.randint(1, 48), width(random, 1024, 16384), width(random, 512, 8192)
    return Draw(f"{m}x{k} @ {n}x{k}^T", F.linear, [Array((m, k)), Array((n, k))])


def with_epilogue(random: Random) -> Draw:
    """A linear layer with bias, and an activation or a residual."""
    m, n, k = rows(random, 64, 8192), width(random), width(random)
    end = one_of(random, "relu", "gelu", "silu", "residual")

    def layer(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
        found = F.linear(x, w, b)
        return found + r if end == "residual" else getattr(F, end)(found)
    return Draw(f"{m}x{k}x{n} {end}", layer,
                [Array((m, k)), Array((n, k), scale=0.05), Array((n,)), Array((m, n))])


def gated(random: Random) -> Draw:
    """The gated half of a feed-forward layer: silu(x a) * (x b)."""
    m, n, k = rows(random, 16, 4096), width(random, 512, 8192), width(random, 256, 2048)

    def layer(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return F.silu(F.linear(x, a)) * F.linear(x, b)
    return Draw(f"{m}x{k}x{n}", layer,
                [Array((m, k)), Array((n, k), scale=0.05), Array((n, k), scale=0.05)])


def batched(random: Random) -> Draw:
    """Many products of small matrices, as in attention that is written out."""
    b = near(random, 8, 384)
    m, n, k = (one_of(random, near(random, 32, 512), near(random, 32, 512, 16), 197, 64)
               for _ in range(3))
    return Draw(f"{b} of {m}x{k} @ {k}x{n}", torch.bmm, [Array((b, m, k)), Array((b, k, n))])


def grouped(random: Random) -> Draw:
    """Several small products of one input, as of query, key and value."""
    m, k = rows(random, 16, 2048), width(random, 256, 2048)
    n = width(random, 128, 1024)

    def layer(x: Tensor, q: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return F.linear(x, q), F.linear(x, w), F.linear(x, v)
    return Draw(f"3 of {m}x{k}x{n}", layer, [Array((m, k)), *[Array((n, k))] * 3])


def experts(random: Random) -> Draw:
    """A mixture: each token by two of the experts, weighted, as a loop over experts writes it."""
    tokens, hidden = rows(random, 64, 4096), width(random, 256, 1024)
    count, inner = one_of(random, 4, 8, 16), width(random, 256, 2048)

    def layer(x: Tensor, router: Tensor, up: Tensor, down: Tensor) -> Tensor:
        weights, chosen = torch.topk(F.softmax(F.linear(x, router), -1), 2)
        result = torch.zeros_like(x)
        for e in range(count):
            share = (weights * (chosen == e)).sum(-1, keepdim=True)
            result = result + share * F.linear(F.silu(F.linear(x, up[e])), down[e])
        return result
    return Draw(f"{tokens}x{hidden} {count} of {inner}", layer,
                [Array((tokens, hidden)), Array((count, hidden), scale=0.05),
                 Array((count, inner, hidden), scale=0.05),
                 Array((count, hidden, inner), scale=0.05)])


CLASSES = {"product": product, "few rows": few_rows, "linear and epilogue": with_epilogue,
           "gated": gated, "batched": batched, "three products": grouped, "experts": experts}
