"""Steps of decoding with a static cache, random weights and the shapes of published models.

    step(tokens, position, keys..., values...) -> scores of the next token, and the new caches

Keys and values are written at one position of caches of a fixed length, as `StaticCache` of
transformers does; attention sees the positions up to this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder. `size`: of a head. `norms`: queries and keys are normalized."""

    width: int
    layers: int
    heads: int
    shared: int
    size: int
    inner: int
    vocabulary: int
    norms: bool = False

    def cache_bytes(self, batch: int, cached: int, width: int = 2) -> int:
        """Of keys and values of all layers, for so many positions."""
        return 2 * self.layers * batch * self.shared * cached * self.size * width


SHAPES: Mapping[str, Shape] = {
    "llama-1b": Shape(2048, 16, 32, 8, 64, 8192, 128256),
    "qwen-0.6b": Shape(1024, 28, 16, 8, 128, 3072, 151936, norms=True),
    "small": Shape(64, 2, 4, 2, 16, 96, 500, norms=True)}


class Layer(nn.Module):
    """Attention to a cache and a gated perceptron."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, width, size = shape, shape.width, shape.size
        self.query = nn.Linear(width, shape.heads * size, bias=False)
        self.key, self.value = (nn.Linear(width, shape.shared * size, bias=False)
                                for _ in range(2))
        self.out = nn.Linear(shape.heads * size, width, bias=False)
        self.gate, self.up = (nn.Linear(width, shape.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.inner, width, bias=False)
        self.one, self.other = nn.RMSNorm(width, 1e-6), nn.RMSNorm(width, 1e-6)
        self.norms = nn.ModuleList(nn.RMSNorm(size, 1e-6) if shape.norms else nn.Identity()
                                   for _ in range(2))

    def forward(
        self, x: Tensor, position: Tensor, mask: Tensor, angles: tuple[Tensor, Tensor],
        keys: Tensor, values: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        y = self.one(x)
        q, k, v = (f(y).unflatten(-1, (-1, self.shape.size)) for f in (
            self.query, self.key, self.value))
        q, k = (turned(norm(t).transpose(1, 2), *angles) for norm, t in zip(
            self.norms, (q, k), strict=True))
        keys = keys.index_copy(2, position, k)
        values = values.index_copy(2, position, v.transpose(1, 2))
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.other(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), keys, values


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cosine + torch.cat([-right, left], -1) * sine


class Step(nn.Module):
    """One token for each row of a batch."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, 1e-6)
        self.register_buffer("rates", 5e5 ** (-torch.arange(0, shape.size, 2) / shape.size))

    def forward(self, ids: Tensor, position: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        x = self.tokens(ids)
        angles = position[:, None].float() * self.rates.float()
        angles = torch.cat([angles, angles], -1)
        turns = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        length = caches[0].shape[2]
        mask = (torch.arange(length, device=ids.device) <= position)[None, None, None, :]
        new: list[Tensor] = []
        for k, layer in enumerate(self.layers):
            x, *made = layer(x, position, mask, turns, caches[2 * k], caches[2 * k + 1])
            new += made
        return self.norm(x) @ self.tokens.weight.T, *new


def inputs(
    shape: Shape, batch: int, length: int, position: int, kind: torch.dtype
) -> tuple[Tensor, ...]:
    """Tokens, the position, and caches of a length."""
    each = batch, shape.shared, length, shape.size
    caches = [torch.randn(each, dtype=kind) for _ in range(2 * shape.layers)]
    return (torch.randint(0, shape.vocabulary, (batch, 1)), torch.tensor([position]), *caches)
