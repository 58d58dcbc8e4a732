"""Eight small models with their inputs, for measurements of training on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x: Tensor) -> Tensor:
        heads = [v.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                 for v in self.joint(x).chunk(3, -1)]
        made = F.scaled_dot_product_attention(*heads, is_causal=self.causal)
        return self.out(made.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mix, self.up = Attention(width, heads, causal), nn.Linear(width, 4 * width)
        self.down, self.causal = nn.Linear(4 * width, width), causal

    def forward(self, x: Tensor) -> Tensor:
        if self.causal:
            x = x + self.mix(self.norms[0](x))
            return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))
        x = self.norms[0](x + self.mix(x))
        return self.norms[1](x + self.down(F.gelu(self.up(x))))


class Language(nn.Module):
    """Four layers of a transformer with the loss of each token."""

    def __init__(self, causal: bool, width: int = 256, words: int = 2000) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(128, width)
        self.layers = nn.Sequential(*(Layer(width, 4, causal) for _ in range(4)))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids: Tensor, wanted: Tensor) -> Tensor:
        x = self.words(ids) + self.places.weight[:ids.shape[1]]
        return F.cross_entropy(self.out(self.norm(self.layers(x))).flatten(0, 1), wanted.flatten())

    @staticmethod
    def inputs() -> list[Tensor]:
        return [torch.randint(2000, (4, 128)), torch.randint(2000, (4, 128))]


class Residual(nn.Module):
    def __init__(self, given: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(given, width, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        self.short = nn.Identity() if given == width else nn.Sequential(
            nn.Conv2d(given, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        made = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(made + self.short(x))


class Resnet(nn.Module):
    """ResNet-18 for images of 64 x 64."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
        self.blocks = nn.Sequential(*(Residual(a, b, 1 if a == b else 2)
                                      for a, b in pairwise(widths)))
        self.out = nn.Linear(512, 100)

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        return F.cross_entropy(self.out(self.blocks(x).mean((2, 3))), wanted)

    @staticmethod
    def inputs() -> list[Tensor]:
        return [torch.randn(16, 3, 64, 64), torch.randint(100, (16,))]


class Recurrent(nn.Module):
    """An LSTM cell for 32 steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTMCell(64, 128), nn.Linear(128, 10)

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[1], 128)
        memory = state
        for row in x:
            state, memory = self.cell(row, (state, memory))
        return F.cross_entropy(self.out(state), wanted)

    @staticmethod
    def inputs() -> list[Tensor]:
        return [torch.randn(32, 32, 64), torch.randint(10, (32,))]


class Mixing(nn.Module):
    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.across = nn.Sequential(nn.Linear(places, 128), nn.GELU(), nn.Linear(128, places))
        self.within = nn.Sequential(nn.Linear(width, 1024), nn.GELU(), nn.Linear(1024, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norms[1](x))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 256, 8, 8)
        self.layers, self.out = nn.Sequential(*(Mixing(64, 256) for _ in range(4))), nn.Linear(
            256, 100)

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        x = self.layers(self.patches(x).flatten(2).transpose(1, 2))
        return F.cross_entropy(self.out(x.mean(1)), wanted)

    @staticmethod
    def inputs() -> list[Tensor]:
        return [torch.randn(8, 3, 64, 64), torch.randint(100, (8,))]


class Recommender(nn.Module):
    """DLRM: eight tables, dot products of their rows, and two perceptrons."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, 32) for _ in range(8))
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(68, 256), nn.ReLU(), nn.Linear(256, 1))
        self.register_buffer("pairs", torch.triu_indices(9, 9, 1))

    def forward(self, x: Tensor, ids: Tensor, wanted: Tensor) -> Tensor:
        dense = self.bottom(x)
        rows = torch.stack([dense, *(t(ids[:, k]) for k, t in enumerate(self.tables))], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        made = self.top(torch.cat([dense, products], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(made, wanted)

    @staticmethod
    def inputs() -> list[Tensor]:
        return [torch.randn(256, 13), torch.randint(1000, (256, 8)), torch.rand(256)]


def _twice(given: int, width: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(given, width, 3, 1, 1), nn.GroupNorm(4, width), nn.SiLU(),
                         nn.Conv2d(width, width, 3, 1, 1), nn.GroupNorm(4, width), nn.SiLU())


class Unet(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList((_twice(1, width), _twice(width, 2 * width)))
        self.deep = _twice(2 * width, 4 * width)
        self.up = nn.ModuleList((nn.ConvTranspose2d(4 * width, 2 * width, 2, 2),
                                 nn.ConvTranspose2d(2 * width, width, 2, 2)))
        self.join = nn.ModuleList((_twice(4 * width, 2 * width), _twice(2 * width, width)))
        self.out = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        first = self.down[0](x)
        second = self.down[1](F.max_pool2d(first, 2))
        x = self.deep(F.max_pool2d(second, 2))
        x = self.join[0](torch.cat([second, self.up[0](x)], 1))
        x = self.join[1](torch.cat([first, self.up[1](x)], 1))
        return F.cross_entropy(self.out(x), wanted)

    @staticmethod
    def inputs() -> list[Tensor]:
        return [torch.randn(4, 1, 48, 48), torch.randint(2, (4, 48, 48))]


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                                    nn.Linear(512, 10))

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        return F.cross_entropy(self.layers(x), wanted)

    @staticmethod
    def inputs() -> list[Tensor]:
        return [torch.randn(128, 256), torch.randint(10, (128,))]


MODELS: dict[str, Callable[[], Any]] = {
    "mlp": Perceptron, "bert": lambda: Language(False), "gpt": lambda: Language(True),
    "resnet18": Resnet, "lstm": Recurrent, "mixer": Mixer, "dlrm": Recommender, "unet": Unet}
