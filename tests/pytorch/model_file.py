"""Models as a user writes them, for `file.py:function`."""

from __future__ import annotations

import torch
from torch.export import Dim


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.out = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(x)).softmax(-1)


def small():
    torch.manual_seed(0)
    return Small(), (torch.randn(2, 8),), {"x": {0: Dim("batch", min=1, max=16)}}


def static():
    return Small(), (torch.randn(2, 8),)


def broken():
    raise ValueError("no such checkpoint")


def nothing():
    return None
