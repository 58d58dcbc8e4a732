"""Moves of data: concatenations, layouts, gathers, scatters, resampling, pooling."""

from __future__ import annotations

from random import Random

import torch
import torch.nn.functional as F

from draws import Array, Draw, near, one_of, rows, width

Tensor = torch.Tensor


def rotary(random: Random) -> Draw:
    """Rotary embedding of queries and keys."""
    b, n, d = near(random, 1, 8), near(random, 64, 2048), one_of(random, 64, 80, 128)
    h, shared = one_of(random, 8, 12, 16, 32), one_of(random, 1, 2, 4)

    def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return x * cos + torch.cat((-x[..., d // 2:], x[..., :d // 2]), -1) * sin

    def layer(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return turned(q, cos, sin), turned(k, cos, sin)
    return Draw(f"{b}x{h}x{n}x{d} shared {shared}", layer,
                [Array((b, h, n, d)), Array((b, h // shared, n, d)), *[Array((n, d))] * 2])


def concatenation(random: Random) -> Draw:
    """Of two or three arrays, then an activation."""
    b, n, count = near(random, 1, 64), near(random, 64, 2048), one_of(random, 2, 3)
    widths = [near(random, 32, 1024) for _ in range(count)]

    def layer(*xs: Tensor) -> Tensor:
        return F.silu(torch.cat(xs, -1))
    while b * n * max(widths) > 16 << 20:
        b = b // 2 or 1
        n = n // 2
    return Draw(f"{b}x{n}x{widths}", layer, [Array((b, n, w)) for w in widths])


def layout(random: Random) -> Draw:
    """A permutation that lies in memory afterwards."""
    shape = (near(random, 1, 32), near(random, 16, 512), near(random, 8, 64), near(random, 16, 128))
    order = one_of(random, (0, 2, 1, 3), (0, 3, 1, 2), (0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 2, 3))

    def layer(x: Tensor) -> Tensor:
        return x.permute(order).contiguous()
    return Draw(f"{'x'.join(map(str, shape))} to {order}", layer, [Array(shape)])


def windows(random: Random) -> Draw:
    """An image shifted, and cut into windows."""
    b, side, each = near(random, 1, 16), one_of(random, 28, 56), 7
    c = near(random, 64, 384, 32)

    def layer(x: Tensor) -> Tensor:
        x = torch.roll(x, (-3, -3), (1, 2)).view(b, side // each, each, side // each, each, c)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, each * each, c)
    return Draw(f"{b}x{side}x{side}x{c}", layer, [Array((b, side, side, c))])


def embedding(random: Random) -> Draw:
    """Rows of a table, added to positions and normalized."""
    b, n, d = near(random, 1, 32), near(random, 16, 1024), width(random, 128, 2048)
    table = near(random, 1000, 64000)
    while b * n * d > 32 << 20:
        b = b // 2 or 1

    def layer(i: Tensor, w: Tensor, p: Tensor, g: Tensor) -> Tensor:
        return F.layer_norm(F.embedding(i, w) + p, (d,), g)
    return Draw(f"{b}x{n} of {table}x{d}", layer,
                [Array((b, n), table), Array((table, d)), Array((n, d)), Array((d,))])


def gather(random: Random) -> Draw:
    """Elements along the last dim, or rows."""
    m, n = rows(random, 64, 4096), near(random, 64, 8192)
    m = max(16, min(m, (32 << 20) // n))
    k = near(random, 1, n)
    if random.random() < 0.5:
        return Draw(f"{m}x{k} of {m}x{n}", lambda x, i: torch.gather(x, 1, i),
                    [Array((m, n)), Array((m, k), n)])
    return Draw(f"{k} rows of {m}x{n}", lambda x, i: x[i], [Array((m, n)), Array((k,), m)])


def scatter(random: Random) -> Draw:
    """Rows added where indices say, as messages in a graph."""
    edges, nodes = near(random, 1000, 200000), near(random, 200, 20000)
    d = width(random, 16, 256)
    edges = min(edges, (32 << 20) // d)

    def layer(x: Tensor, i: Tensor) -> Tensor:
        return torch.zeros(nodes, d, dtype=x.dtype, device=x.device).index_add(0, i, x)
    return Draw(f"{edges}x{d} to {nodes}", layer, [Array((edges, d)), Array((edges,), nodes)])


def pool(random: Random) -> Draw:
    b, c, side = near(random, 1, 32), near(random, 16, 512, 8), one_of(random, 14, 28, 56, 112)
    kind, last = one_of(random, "max", "avg"), random.random() < 0.7
    while b * c * side * side > 32 << 20:
        b, c = b // 2 or 1, c if b > 1 else c // 2

    def layer(x: Tensor) -> Tensor:
        return F.max_pool2d(x, 3, 2, 1) if kind == "max" else F.avg_pool2d(x, 2)
    return Draw(f"{kind} {b}x{c}x{side}x{side}{' last' if last else ''}", layer,
                [Array((b, c, side, side), last=last)])


def resize(random: Random) -> Draw:
    b, c, side = near(random, 1, 16), near(random, 16, 256), near(random, 16, 80)
    kind, scale = one_of(random, "nearest", "bilinear"), one_of(random, 2, 2, 1.5)
    while b * c * side * side > 8 << 20:
        b, c = b // 2 or 1, c if b > 1 else c // 2
    last = random.random() < 0.5
    extra = {} if kind == "nearest" else {"align_corners": False}

    def layer(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=scale, mode=kind, **extra)
    return Draw(f"{kind} {b}x{c}x{side}x{side} by {scale}", layer,
                [Array((b, c, side, side), last=last)])


CLASSES = {"rotary": rotary, "concatenation": concatenation, "layout": layout,
           "windows": windows, "embedding": embedding, "gather": gather, "scatter": scatter,
           "pool": pool, "resize": resize}
