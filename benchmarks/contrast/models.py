"""Six models with random weights, of the kinds between which strategies differ: `models.py:NAME`.

`perceptron` and `decoder` compute little per launch, `chain` moves memory, `encoder` multiplies
matrices, and `residual` and `mobile` are convolutions.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor
Made = tuple[nn.Module, tuple[Tensor, ...]]


class Block(nn.Module):
    """A layer of a transformer: attention, then a perceptron, each normalized first."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.key, self.value = nn.Linear(width, width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-1], self.heads, -1).transpose(-2, -3)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None = None) -> Tensor:
        y = self.before(x)
        q, k, v = (self.split(f(y)) for f in (self.query, self.key, self.value))
        if past is not None:
            k, v = torch.cat([past[0], k], -2), torch.cat([past[1], v], -2)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        mixed = (torch.softmax(scores, -1) @ v).transpose(-2, -3)
        x = x + self.out(mixed.reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Decoder(nn.Module):
    """Layers that get one more token, with the keys and values of those before it."""

    def __init__(self, width: int, heads: int, layers: int):
        super().__init__()
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        for k, layer in enumerate(self.layers):
            x = layer(x, (keys[k], values[k]))
        return x


class Residual(nn.Module):
    """Two convolutions with normalization, and what enters added to them."""

    def __init__(self, inner: int, outer: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)])
        self.short = nn.Conv2d(inner, outer, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.short(x))


class Mobile(nn.Module):
    """A widened depthwise convolution whose channels are weighed (squeeze and excitation)."""

    def __init__(self, width: int, wide: int):
        super().__init__()
        self.up, self.down = nn.Conv2d(width, wide, 1), nn.Conv2d(wide, width, 1)
        self.depth = nn.Conv2d(wide, wide, 3, 1, 1, groups=wide, bias=False)
        self.norm = nn.BatchNorm2d(wide)
        self.squeeze, self.excite = nn.Conv2d(wide, wide // 4, 1), nn.Conv2d(wide // 4, wide, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.norm(self.depth(F.hardswish(self.up(x)))))
        mean = F.relu(self.squeeze(y.mean((2, 3), keepdim=True)))
        return x + self.down(y * F.hardsigmoid(self.excite(mean)))


class Chain(nn.Module):
    """Elementwise operators between two normalizations of rows."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        z = F.silu(F.layer_norm(x, x.shape[-1:])) * y + torch.sigmoid(x) - 0.5 * y
        return torch.softmax(torch.tanh(z) * 2.0 + x, -1)


def _made(module: nn.Module, *inputs: Tensor) -> Made:
    return module.eval(), inputs


def perceptron() -> Made:
    torch.manual_seed(0)
    layers = [part for _ in range(8) for part in (nn.Linear(64, 64), nn.ReLU())]
    return _made(nn.Sequential(*layers), torch.randn(1, 64))


def decoder() -> Made:
    torch.manual_seed(0)
    past = (torch.randn(4, 1, 8, 255, 32) for _ in range(2))
    return _made(Decoder(256, 8, 4), torch.randn(1, 1, 256), *past)


def chain() -> Made:
    torch.manual_seed(0)
    return _made(Chain(), torch.randn(2048, 1024), torch.randn(2048, 1024))


def encoder() -> Made:
    torch.manual_seed(0)
    return _made(nn.Sequential(*(Block(256, 8) for _ in range(4))), torch.randn(1, 128, 256))


def residual() -> Made:
    torch.manual_seed(0)
    stages = [Residual(3, 32, 2), Residual(32, 32, 1), Residual(32, 64, 2), Residual(64, 64, 1),
              Residual(64, 128, 2), Residual(128, 128, 1)]
    return _made(nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                               nn.Linear(128, 100)), torch.randn(1, 3, 112, 112))


def mobile() -> Made:
    torch.manual_seed(0)
    stem = nn.Conv2d(3, 24, 3, 2, 1)
    return _made(nn.Sequential(stem, *(Mobile(24, 96) for _ in range(5))),
                 torch.randn(1, 3, 112, 112))
