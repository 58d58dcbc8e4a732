"""A perceptron, to be divided: `python -m compiler run tests/ranks/mesh_model.py:perceptron`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def perceptron() -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    layers = nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)
    return nn.Sequential(*layers).eval(), (torch.randn(4, 512),)
