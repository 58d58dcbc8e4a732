"""Models with open sizes and random weights, of two or four layers each.

The shapes of a layer are those of the published model, so that its kernels are. More equal layers
would add nothing to a comparison of sizes.
"""

from __future__ import annotations

import math
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


# ---------------------------------------------------------------------- encoders and decoders
class Mixing(nn.Module):
    """Attention from one sequence to another."""

    def __init__(self, width: int, heads: int, *, bias: bool, scale: float | None = None) -> None:
        super().__init__()
        self.heads, self.scale = heads, scale
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, width, bias=bias) for _ in range(4))

    def forward(
        self, x: Tensor, seen: Tensor, mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        q, k, v = (f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for f, y in ((self.query, x), (self.key, seen), (self.value, seen)))
        mixed = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=self.scale)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Listener(nn.Module):
    """A layer of Whisper's decoder, which sees earlier tokens and all that was heard."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.own, self.cross = (Mixing(width, heads, bias=True) for _ in range(2))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, x: Tensor, heard: Tensor) -> Tensor:
        one, two, three = self.norms
        y = one(x)
        x = x + self.own(y, y, causal=True)
        x = x + self.cross(two(x), heard)
        return x + self.down(F.gelu(self.up(three(x))))


class Whisper(nn.Module):
    """Spectra of a sound and the tokens so far; the scores of the last token."""

    def __init__(self, width: int, heads: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.one = nn.Conv1d(80, width, 3, padding=1)
        self.two = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.times, self.places = nn.Embedding(1500, width), nn.Embedding(448, width)
        self.tokens = nn.Embedding(vocabulary, width)
        self.encoder = nn.ModuleList(Encoder(width, heads, first=True) for _ in range(layers))
        self.decoder = nn.ModuleList(Listener(width, heads) for _ in range(layers))
        self.heard, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, spectra: Tensor, ids: Tensor) -> Tensor:
        y = F.gelu(self.two(F.gelu(self.one(spectra)))).transpose(1, 2)
        y = y + self.times(torch.arange(y.shape[1], device=y.device))
        for layer in self.encoder:
            y = layer(y)
        y = self.heard(y)
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.decoder:
            x = layer(x, y)
        return self.norm(x[:, -1]) @ self.tokens.weight.T


class Distances(nn.Module):
    """T5's bias of attention: a number per head and bucket of distances."""

    def __init__(self, heads: int, *, both: bool, buckets: int = 32, most: int = 128) -> None:
        super().__init__()
        self.bias = nn.Embedding(buckets, heads)
        self.both, self.most = both, most
        self.buckets = buckets // 2 if both else buckets

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        apart = keys[None, :] - queries[:, None]
        later = (apart > 0).long() * self.buckets if self.both else 0
        apart = apart.abs() if self.both else (-apart).clamp(min=0)
        near = self.buckets // 2
        far = torch.log(apart.clamp(min=1).float() / near) / math.log(self.most / near)
        far = (near + (far * (self.buckets - near)).long()).clamp(max=self.buckets - 1)
        found = later + torch.where(apart < near, apart, far)
        return self.bias(found).permute(2, 0, 1)[None]


class T5Layer(nn.Module):
    """A layer of the encoder, or of the decoder where it has something to read."""

    def __init__(self, width: int, heads: int, inner: int, *, reads: bool) -> None:
        super().__init__()
        self.own = Mixing(width, heads, bias=False, scale=1.0)
        self.cross = Mixing(width, heads, bias=False, scale=1.0) if reads else None
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(width, 1e-6) for _ in range(3))

    def forward(self, x: Tensor, bias: Tensor, read: Tensor | None = None) -> Tensor:
        one, two, three = self.norms
        y = one(x)
        x = x + self.own(y, y, bias)
        if self.cross is not None and read is not None:
            x = x + self.cross(two(x), read)
        return x + self.down(F.relu(self.up(three(x))))


class T5(nn.Module):
    """A text and the tokens that were written so far; the scores of the last token."""

    def __init__(
        self, width: int, heads: int, inner: int, layers: int, vocabulary: int
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.around, self.before = Distances(heads, both=True), Distances(heads, both=False)
        self.encoder, self.decoder = (nn.ModuleList(
            T5Layer(width, heads, inner, reads=reads) for _ in range(layers))
            for reads in (False, True))
        self.read, self.norm = nn.RMSNorm(width, 1e-6), nn.RMSNorm(width, 1e-6)

    def forward(self, text: Tensor, written: Tensor) -> Tensor:
        y, x = self.tokens(text), self.tokens(written)
        places = torch.arange(text.shape[1], device=text.device)
        bias = self.around(places, places)
        for layer in self.encoder:
            y = layer(y, bias)
        y = self.read(y)
        places = torch.arange(written.shape[1], device=text.device)
        later = places[None, :] > places[:, None]
        bias = self.before(places, places).masked_fill(later, torch.finfo(x.dtype).min)
        for layer in self.decoder:
            x = layer(x, bias, y)
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


def whisper(
    width: int = 512, heads: int = 8, layers: int = 2, vocabulary: int = 51865
) -> Case:
    def inputs(sizes: Mapping[str, int]) -> tuple[Tensor, ...]:
        return (torch.randn(sizes["b"], 80, sizes["n"]),
                torch.randint(0, 1000, (sizes["b"], sizes["t"])))
    return Case(Whisper(width, heads, layers, vocabulary), inputs,
                ({0: "b", 2: "n"}, {0: "b", 1: "t"}), {"b": 1024, "n": 3000, "t": 448})


def t5(
    width: int = 768, heads: int = 12, inner: int = 3072, layers: int = 2,
    vocabulary: int = 32128,
) -> Case:
    def inputs(sizes: Mapping[str, int]) -> tuple[Tensor, ...]:
        return tuple(torch.randint(0, 1000, (sizes["b"], sizes[n])) for n in ("n", "t"))
    return Case(T5(width, heads, inner, layers, vocabulary), inputs,
                ({0: "b", 1: "n"}, {0: "b", 1: "t"}), {"b": 1024, "n": 1024, "t": 1024})


CASES: Mapping[str, Callable[..., Case]] = {
    "bert": bert, "llama": llama, "vit": vit, "resnet": resnet, "whisper": whisper, "t5": t5}
