"""Models in fp16 for a GPU, with random weights: `gpu_models.py:NAME`.

The first seven keep an eager GPU busy; for the others it mostly waits for launches. They are built
of the parts of `models.py`, but for `prefill`, whose attention is causal, and `vision`. Sizes are
published ones: those of BERT-base's and BERT-large's layers on texts of the greatest length, of
ViT-B/16's on pictures of 224 by 224, of a language model of 1.3 billion weights, of ResNet's first
stages.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))

from models import Block, Chain, Decoder, Made, Mobile, Residual, Tensor


class CausalBlock(Block):
    """A layer of a language model that reads a whole prompt."""

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None = None) -> Tensor:
        y = self.before(x)
        q, k, v = (self.split(f(y)) for f in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(-2, -3)
        x = x + self.out(mixed.reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Vision(nn.Module):
    """The first layers of a vision transformer: patches of a picture, and a row for its class."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.row = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 14 * 14 + 1, width))
        self.layers = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        rows = torch.cat([self.row.expand(x.shape[0], -1, -1), patches], 1) + self.places
        return self.head(self.norm(self.layers(rows))[:, 0])


def _made(module: nn.Module, *shapes: tuple[int, ...]) -> Made:
    return module.half().eval(), tuple(torch.randn(shape).half() for shape in shapes)


def _residual(batch: int) -> Made:
    stages = [Residual(3, 64, 2), Residual(64, 64, 1), Residual(64, 128, 2), Residual(128, 128, 1),
              Residual(128, 256, 2), Residual(256, 256, 1)]
    return _made(nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                               nn.Linear(256, 1000)), (batch, 3, 224, 224))


def _mobile(batch: int) -> Made:
    stem = nn.Conv2d(3, 32, 3, 2, 1)
    return _made(nn.Sequential(stem, *(Mobile(32, 128) for _ in range(5))), (batch, 3, 224, 224))


# ---------------------------------------------------------------------- busy
def encoder() -> Made:
    torch.manual_seed(0)
    return _made(nn.Sequential(*(Block(768, 12) for _ in range(4))), (32, 512, 768))


def encoder_large() -> Made:
    torch.manual_seed(0)
    return _made(nn.Sequential(*(Block(1024, 16) for _ in range(4))), (32, 512, 1024))


def vision() -> Made:
    torch.manual_seed(0)
    return _made(Vision(768, 12, 4), (64, 3, 224, 224))


def prefill() -> Made:
    torch.manual_seed(0)
    return _made(nn.Sequential(*(CausalBlock(2048, 16) for _ in range(4))), (1, 2048, 2048))


def chain() -> Made:
    torch.manual_seed(0)
    return _made(Chain(), (16384, 2048), (16384, 2048))


def residual() -> Made:
    torch.manual_seed(0)
    return _residual(64)


def mobile() -> Made:
    torch.manual_seed(0)
    return _mobile(64)


# ---------------------------------------------------------------------- bound by launches
def perceptron() -> Made:
    torch.manual_seed(0)
    layers = [part for _ in range(8) for part in (nn.Linear(256, 256), nn.ReLU())]
    return _made(nn.Sequential(*layers), (8, 256))


def decoder() -> Made:
    torch.manual_seed(0)
    past = (4, 1, 8, 255, 64)
    return _made(Decoder(512, 8, 4), (1, 1, 512), past, past)


def encoder_small() -> Made:
    torch.manual_seed(0)
    return _made(nn.Sequential(*(Block(256, 8) for _ in range(4))), (1, 64, 256))


def residual_small() -> Made:
    torch.manual_seed(0)
    return _residual(1)


def mobile_small() -> Made:
    torch.manual_seed(0)
    return _mobile(1)
