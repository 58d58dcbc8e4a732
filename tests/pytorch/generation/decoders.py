"""A small decoder with grouped heads and rotary positions, and the caches that decoders have."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

HEADS, GROUPS, SIZE, TOKENS, WINDOW = 4, 2, 8, 61, 5
WIDTH = HEADS * SIZE


class Growing:
    """A dynamic cache: each step appends to it."""

    window: int | None = None

    def __init__(self, batch: int, length: int) -> None:
        self.keys, self.values = torch.zeros(2, batch, GROUPS, 0, SIZE)

    def update(self, keys: Tensor, values: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        self.keys = torch.cat([self.keys, keys], 2)
        self.values = torch.cat([self.values, values], 2)
        return self.keys, self.values

    def places(self, last: Tensor) -> Tensor:
        """The positions of the keys, once the last position is written."""
        return torch.arange(self.keys.shape[2])


class Static:
    """A cache of a fixed length, in which each step writes its places."""

    window: int | None = None

    def __init__(self, batch: int, length: int) -> None:
        self.length = length
        self.keys, self.values = torch.zeros(2, batch, GROUPS, length, SIZE)

    def update(self, keys: Tensor, values: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(2, places, keys)
        self.values.index_copy_(2, places, values)
        return self.keys, self.values

    def places(self, last: Tensor) -> Tensor:
        return torch.arange(self.length)


class Sliding(Static):
    """A ring of the last `WINDOW` positions. What comes first may be longer, and is not kept."""

    window = WINDOW

    def __init__(self, batch: int, length: int) -> None:
        super().__init__(batch, WINDOW)

    def update(self, keys: Tensor, values: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        kept = min(keys.shape[2], WINDOW)
        super().update(keys[:, :, -kept:], values[:, :, -kept:], places[-kept:] % WINDOW)
        return (self.keys, self.values) if keys.shape[2] == 1 else (keys, values)

    def places(self, last: Tensor) -> Tensor:
        return last - (last - torch.arange(WINDOW)) % WINDOW


CACHES: dict[str, tuple[type[Growing | Static], type[Growing | Static]]] = {
    "dynamic": (Growing, Growing), "static": (Static, Static), "sliding": (Sliding, Sliding),
    "hybrid": (Sliding, Static)}
"""The caches of the two layers."""


def rotated(x: Tensor, places: Tensor) -> Tensor:
    """Rotary positions. x: [batch, heads, rows, SIZE], places: [batch, rows]."""
    angles = places[:, None, :, None] * 100.0 ** -torch.arange(0, 1, 2 / SIZE)
    first, second = x.chunk(2, -1)
    return torch.cat([first * angles.cos() - second * angles.sin(),
                      second * angles.cos() + first * angles.sin()], -1)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * GROUPS) * SIZE)
        self.inner, self.up = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor, cache: Growing | Static, places: Tensor, pads: Tensor) -> Tensor:
        """`pads`: [batch], how many of the first positions hold nothing."""
        parts = self.qkv(self.norm(x)).unflatten(-1, (-1, SIZE)).transpose(1, 2)
        q, k, v = parts.split((HEADS, GROUPS, GROUPS), 1)
        counted = (places - pads[:, None]).clamp(0)
        k, v = cache.update(rotated(k, counted), v, places)
        there = places if k.shape[2] == len(places) and len(places) > 1 else (
            cache.places(places[-1]))
        seen = (there <= places[:, None]) & (there >= pads[:, None, None])
        if cache.window is not None:
            seen = seen & (there > places[:, None] - cache.window)
        mixed = functional.scaled_dot_product_attention(
            rotated(q, counted), k, v, attn_mask=seen[:, None], enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        gate, value = self.up(self.inner(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * value)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, TOKENS)
        for parameter in self.parameters():  # so large that tokens depend on all before them
            nn.init.normal_(parameter, std=0.5)

    def forward(
        self, tokens: Tensor, caches: list[Growing | Static], places: Tensor, pads: Tensor
    ) -> Tensor:
        """The logits of the tokens that follow. tokens: [batch, rows], places: [rows]."""
        x = self.table(tokens)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache, places, pads)
        return self.head(self.norm(x[:, -1]))


def generated(step: object, name: str, tokens: Tensor, pads: Tensor, count: int) -> Tensor:
    """The most likely tokens after left-padded ones. `step`: the decoder, or what computes it."""
    assert callable(step)
    batch, first = tokens.shape
    caches = [kind(batch, first + count) for kind in CACHES[name]]
    found, places = tokens, torch.arange(first)
    for _ in range(count):
        tokens = step(tokens, caches, places, pads).argmax(-1, keepdim=True)
        found, places = torch.cat([found, tokens], 1), places[-1:] + 1
    return found
