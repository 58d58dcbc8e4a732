"""The models of `rows/graphs.py` in PyTorch, for peers that run PyTorch's models: `twins.py:NAME`.

Constants are parameters with the same values, so the outputs are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

Tensor = torch.Tensor
Made = tuple[torch.nn.Module, tuple[Tensor, ...]]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


class Call(torch.nn.Module):
    """A function with constants as a module."""

    def __init__(self, function: Callable[..., Tensor], **constants: Tensor):
        super().__init__()
        self.function = function
        for name, value in constants.items():
            self.register_parameter(name, torch.nn.Parameter(value, False))

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs, **dict(self.named_parameters()))


def rows() -> Tensor:
    return random(4096, 1024)


# ---------------------------------------------------------------------- kernels
def attention() -> Made:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))
        return torch.softmax(scores, -1) @ v

    return Call(run), tuple(random(1, 8, 1024, 64, seed=k) for k in range(3))


def softmax() -> Made:
    return Call(lambda x: torch.softmax(x, -1)), (rows(),)


def layer_norm() -> Made:
    def run(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(x, (1024,), gain, shift)

    return Call(run, gain=random(1024, seed=1), shift=random(1024, seed=2)), (rows(),)


def gelu() -> Made:
    def run(x: Tensor) -> Tensor:
        return x * (torch.erf(x / math.sqrt(2)) + 1) * 0.5

    return Call(run), (rows(),)


# ---------------------------------------------------------------------- products
def _product(m: int, n: int, k: int, dtype: torch.dtype = torch.float32) -> Made:
    w = random(k, n, seed=1).to(dtype)
    return Call(lambda x, w: x @ w, w=w), (random(m, k).to(dtype),)


def gemm_1024x1024x1024() -> Made:
    return _product(1024, 1024, 1024)


def gemm_128x3072x768() -> Made:
    return _product(128, 3072, 768)


def gemm_3136x64x576() -> Made:
    return _product(3136, 64, 576)


def gemm_bf16_1024x1024x1024() -> Made:
    return _product(1024, 1024, 1024, torch.bfloat16)


def gemm_bf16_128x3072x768() -> Made:
    return _product(128, 3072, 768, torch.bfloat16)


def gemm_bf16_3136x64x576() -> Made:
    return _product(3136, 64, 576, torch.bfloat16)
