"""Models with open sizes and random weights, of two or four layers each.

The shapes of a layer are those of the published model, so that its kernels are. More equal layers
would add nothing to a comparison of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor


@dataclass(frozen=True)
class Case:
    """A module, its inputs at given sizes, and the dims of each input that are open, by name."""

    module: nn.Module
    inputs: Callable[[Mapping[str, int]], tuple[Tensor, ...]]
    dims: tuple[Mapping[int, str], ...]
    limits: Mapping[str, int]
    """The largest value of each size."""
    least: int = 1
    """The smallest value of sizes other than the batch."""

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        """What `torch.export` is told of the sizes."""
        made = {n: torch.export.Dim(n, min=1 if n == "b" else self.least, max=most)
                for n, most in self.limits.items()}
        return tuple({k: made[name] for k, name in dims.items()} for dims in self.dims)


# ---------------------------------------------------------------------- encoders
class Encoder(nn.Module):
    """A layer with attention over all tokens; `first`: normalized before instead of after."""

    def __init__(self, width: int, heads: int, *, first: bool) -> None:
        super().__init__()
        self.heads, self.first = heads, first
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.one, self.other = nn.LayerNorm(width), nn.LayerNorm(width)

    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for f in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.first:
            x = x + self.attend(self.one(x), mask)
            return x + self.down(F.gelu(self.up(self.other(x))))
        x = self.one(x + self.attend(x, mask))
        return self.other(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    """Token ids and a mask of padding, as transformers' BERT has them."""

    def __init__(self, width: int, heads: int, layers: int, vocabulary: int = 30522) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
        self.norm, self.pool = nn.LayerNorm(width), nn.Linear(width, width)
        self.layers = nn.ModuleList(Encoder(width, heads, first=False) for _ in range(layers))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.norm(self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device)))
        hidden = (1 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        hidden = hidden.expand(ids.shape[0], 1, ids.shape[1], ids.shape[1])
        for layer in self.layers:
            x = layer(x, hidden)
        return torch.tanh(self.pool(x[:, 0]))


class Vit(nn.Module):
    """Patches of an image of 224 x 224, and a token for its class."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.kind = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 197, width))
        self.layers = nn.ModuleList(Encoder(width, heads, first=True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.kind.expand(x.shape[0], -1, -1), x], 1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


# ---------------------------------------------------------------------- decoders
class Rotary(nn.Module):
    """Turns queries and keys by the positions of their tokens."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("rates", 5e5 ** (-torch.arange(0, size, 2) / size))

    def forward(self, positions: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions[..., None].float() * self.rates.float()
        angles = torch.cat([angles, angles], -1)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cosine + torch.cat([-right, left], -1) * sine


class Decoder(nn.Module):
    """A layer as in Llama: heads that share keys, normalized by root mean squares, gated."""

    def __init__(self, width: int, heads: int, shared: int, inner: int, size: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, size
        self.query = nn.Linear(width, heads * size, bias=False)
        self.key, self.value = (nn.Linear(width, shared * size, bias=False) for _ in range(2))
        self.out = nn.Linear(heads * size, width, bias=False)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)
        self.one, self.other = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        y = self.one(x)
        q, k, v = (f(y).unflatten(-1, (-1, self.size)).transpose(1, 2)
                   for f in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(
            turned(q, *angles), turned(k, *angles), v, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.other(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Prefill(nn.Module):
    """Reads a prompt; the scores of the last token."""

    def __init__(
        self, width: int, heads: int, shared: int, inner: int, layers: int, vocabulary: int
    ) -> None:
        super().__init__()
        size = width // heads
        self.tokens, self.rotary = nn.Embedding(vocabulary, width), Rotary(size)
        self.layers = nn.ModuleList(
            Decoder(width, heads, shared, inner, size) for _ in range(layers))
        self.norm = nn.RMSNorm(width, 1e-5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        angles = self.rotary(torch.arange(ids.shape[1], device=ids.device), x)
        for layer in self.layers:
            x = layer(x, angles)
        return self.norm(x[:, -1]) @ self.tokens.weight.T


# ---------------------------------------------------------------------- images
class Bottleneck(nn.Module):
    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        outer = 4 * width
        self.steps = nn.Sequential(
            nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, outer, 1, bias=False), nn.BatchNorm2d(outer))
        self.short = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False),
                                   nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.steps(x) + self.short(x))


def _resnet(classes: int = 1000) -> nn.Module:
    stages = [Bottleneck(64, 64, 1), Bottleneck(256, 128, 2), Bottleneck(512, 256, 2),
              Bottleneck(1024, 512, 2)]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(2048, classes))


# ---------------------------------------------------------------------- cases
def bert(width: int = 768, heads: int = 12, layers: int = 4) -> Case:
    def inputs(sizes: Mapping[str, int]) -> tuple[Tensor, ...]:
        shape = sizes["b"], sizes["n"]
        return torch.randint(0, 1000, shape), torch.ones(shape, dtype=torch.long)
    dims = {0: "b", 1: "n"}
    return Case(Bert(width, heads, layers), inputs, (dims, dims), {"b": 1024, "n": 512})


def llama(
    width: int = 2048, heads: int = 32, shared: int = 8, inner: int = 8192, layers: int = 2,
    vocabulary: int = 32000,
) -> Case:
    return Case(Prefill(width, heads, shared, inner, layers, vocabulary),
                lambda s: (torch.randint(0, 1000, (s["b"], s["n"])),), ({0: "b", 1: "n"},),
                {"b": 1024, "n": 8192})


def vit(width: int = 768, heads: int = 12, layers: int = 4) -> Case:
    return Case(Vit(width, heads, layers), lambda s: (torch.randn(s["b"], 3, 224, 224),),
                ({0: "b"},), {"b": 1024})


def resnet() -> Case:
    return Case(_resnet(), lambda s: (torch.randn(s["b"], 3, s["h"], s["w"]),),
                ({0: "b", 2: "h", 3: "w"},), {"b": 256, "h": 1024, "w": 1024}, 64)


CASES: Mapping[str, Callable[..., Case]] = {
    "bert": bert, "llama": llama, "vit": vit, "resnet": resnet}
