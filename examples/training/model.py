"""A transformer that predicts the next character of a text."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LENGTH, WIDTH, HEADS = 64, 96, 4


class Layer(nn.Module):
    """Causal attention and a feed-forward network, each with a norm and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.joint, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = [v.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                 for v in self.joint(self.norms[0](x)).chunk(3, -1)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Characters(nn.Module):
    """[batch, LENGTH] characters -> the mean loss of the characters that follow them."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.names, self.places = nn.Embedding(count, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.Sequential(Layer(), Layer())
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, count)

    def forward(self, ids: Tensor, wanted: Tensor) -> Tensor:
        return F.cross_entropy(self.scores(ids).flatten(0, 1), wanted.flatten())

    def scores(self, ids: Tensor) -> Tensor:
        x = _dropout(self.names(ids) + self.places.weight[:ids.shape[1]])
        return self.out(self.norm(self.layers(x)))


def _dropout(x: Tensor, share: float = 0.1) -> Tensor:
    """Set a share of the elements to zero: the same ones for a model in f64, as random numbers are
    drawn in f32."""
    return torch.where(torch.rand(x.shape) < share, 0, x / (1 - share))


def batches(text: Tensor, count: int, size: int) -> list[tuple[Tensor, Tensor]]:
    """Parts of a text, drawn with a fixed seed, each with the part one character later."""
    draw = torch.Generator().manual_seed(1)
    found: list[tuple[Tensor, Tensor]] = []
    for _ in range(count):
        starts = torch.randint(len(text) - LENGTH - 1, (size, 1), generator=draw)
        places = starts + torch.arange(LENGTH)
        found.append((text[places], text[places + 1]))
    return found
