"""Attention: all masks, head sizes and lengths, and what stands around it."""

from __future__ import annotations

from random import Random

import torch
import torch.nn.functional as F

from draws import Array, Draw, near, one_of

Tensor = torch.Tensor


def _heads(random: Random) -> tuple[int, int, int]:
    size = one_of(random, 32, 64, 64, 80, 96, 128)
    return near(random, 1, 16), one_of(random, 4, 8, 12, 16), size


def _three(b: int, h: int, m: int, n: int, d: int, shared: int = 1) -> list[Array]:
    return [Array((b, h, m, d)), *[Array((b, h // shared, n, d))] * 2]


def plain(random: Random) -> Draw:
    (b, h, d), n = _heads(random), near(random, 64, 2048, one_of(random, 128, 1))
    return Draw(f"{b}x{h}x{n}x{d}", F.scaled_dot_product_attention, _three(b, h, n, n, d))


def causal(random: Random) -> Draw:
    (b, h, d), n = _heads(random), near(random, 128, 4096, one_of(random, 128, 1))
    b = min(b, 4)
    shared = one_of(random, 1, 2, 4)

    def layer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared > 1)
    return Draw(f"{b}x{h}x{n}x{d} shared {shared}", layer, _three(b, h, n, n, d, shared))


def masked(random: Random) -> Draw:
    """By the keys that each sequence of a batch has."""
    (b, h, d), n = _heads(random), near(random, 64, 1024, one_of(random, 64, 8, 1))

    def layer(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask[:, None, None, :])
    return Draw(f"{b}x{h}x{n}x{d}", layer, [*_three(b, h, n, n, d), Array((b, n), "mask")])


def biased(random: Random) -> Draw:
    """With a bias for each pair of positions, as of relative positions."""
    (b, h, d), n = _heads(random), near(random, 49, 1024, one_of(random, 8, 1))

    def layer(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, bias)
    return Draw(f"{b}x{h}x{n}x{d}", layer, [*_three(b, h, n, n, d), Array((1, h, n, n))])


def window(random: Random) -> Draw:
    """Causal, and only so many keys back, by a mask that is computed."""
    (b, h, d), n = _heads(random), near(random, 1024, 4096, 64)
    b, back = min(b, 2), one_of(random, 128, 256, 512)

    def layer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        at = torch.arange(n, device=q.device)
        apart = at[:, None] - at[None, :]
        return F.scaled_dot_product_attention(q, k, v, (apart >= 0) & (apart < back))
    return Draw(f"{b}x{h}x{n}x{d} back {back}", layer, _three(b, h, n, n, d))


def written(random: Random) -> Draw:
    """Products and a softmax, as many models write it."""
    (b, h, d), n = _heads(random), near(random, 64, 1024, one_of(random, 64, 1))

    def layer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) / d ** 0.5, -1) @ v
    return Draw(f"{b}x{h}x{n}x{d}", layer, _three(b, h, n, n, d))


def decode(random: Random) -> Draw:
    """One query against a cache of which a part is live."""
    b, d, shared = near(random, 1, 32), one_of(random, 64, 128), one_of(random, 1, 4, 8)
    h, n = 8 * shared // one_of(random, 1, 2), near(random, 256, 4096, 128)
    h = max(h, shared)

    def layer(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        mask = torch.arange(n, device=q.device) < lengths[:, None, None, None] + n // 2
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=shared > 1)
    return Draw(f"{b}x{h}x{n}x{d} shared {shared}", layer,
                [*_three(b, h, 1, n, d, shared), Array((b,), n // 2)])


CLASSES = {"attention": plain, "attention causal": causal, "attention padded": masked,
           "attention bias": biased, "attention window": window,
           "attention written out": written, "attention decoding": decode}
