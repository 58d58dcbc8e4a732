"""Models whose graphs are kept: weights that are folded, packed, joined, transformed and read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Mixed(nn.Module):
    """Layers whose weights are folded, packed, joined and transformed."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.grouped = nn.Conv2d(16, 16, 3, groups=8, bias=False)
        self.up = nn.ConvTranspose2d(16, 4, 2, stride=2)
        self.out = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.grouped(torch.relu(self.norm(self.conv(x)))) * 0.5 + 1
        return self.out(self.up(y).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width: int = 16, heads: int = 4, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width, dtype=dtype)
        self.qkv, self.out = (nn.Linear(width, n, dtype=dtype) for n in (3 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Words(nn.Module):
    """An embedding that also scores, sums of parameters, a table of integers and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.scale = nn.Embedding(40, 12), nn.Parameter(torch.ones(12))
        self.shift = nn.Parameter(torch.zeros(12))
        self.register_buffer("order", torch.arange(6).flip(0))

    def forward(self, ids: Tensor) -> Tensor:
        y = self.words(ids[:, self.order]) * (self.scale + self.shift * 2) + torch.tensor(
            [1.0, 2.0] * 6, device=ids.device)
        return y @ self.words.weight.T


class Eager(nn.Module):
    """Compiled parts around an operator that runs eagerly."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(torch.linalg.eigvalsh(self.before(x) @ self.before(x).mT))


class Views(nn.Module):
    """Results that are views, strides of their own, and an argument that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor, state: Tensor) -> Any:
        y = self.linear(x)
        state.add_(y.sum(0))
        return y[1:], y.T, x[:, ::2], x.shape[0] + 1


def image(*shape: int) -> Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Sequence[Tensor]], bool | None]] = {
    "convolutions": (Mixed, lambda: [torch.randn(2, 8, 12, 12)], None),
    "channels last": (Mixed, lambda: [image(2, 8, 12, 12)], None),
    "attention": (Attention, lambda: [torch.randn(2, 5, 16)], None),
    "open sizes": (Attention, lambda: [torch.randn(3, 7, 16)], True),
    "bf16": (lambda: Attention(dtype=torch.bfloat16),
             lambda: [torch.randn(2, 5, 16).bfloat16()], None),
    "words": (Words, lambda: [torch.arange(12).reshape(2, 6)], None),
    "eager parts": (Eager, lambda: [torch.randn(3, 6, 6)], None),
    "views": (Views, lambda: [torch.randn(4, 6), torch.zeros(6)], None),
    "views, open sizes": (Views, lambda: [torch.randn(4, 6), torch.zeros(6)], True),
}
