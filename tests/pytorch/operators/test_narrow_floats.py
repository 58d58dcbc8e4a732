"""Conversions from and to floats of a byte are PyTorch's own, also of what such cannot hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import compiler

NARROW = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
          torch.float8_e8m0fnu]
WIDE = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32]
TINY = 2.0**-126
"""Below it are no normal numbers of f32, which compiled code takes for zeros."""

each_narrow = pytest.mark.parametrize("narrow", NARROW, ids=str)


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """Extremes, what lies halfway between two codes, and random numbers of many magnitudes."""
    rng = np.random.default_rng(0)
    halves = np.concatenate([np.arange(1, 16) / 16 * 2.0**k for k in range(-20, 20)])
    spread = rng.standard_normal(500) * np.exp(rng.uniform(-60, 60, 500))
    found = torch.tensor(np.concatenate([halves, -halves, spread, [448, 464, 465, 57344, 61440]]))
    if dtype == torch.int32:
        return found.clamp(-1e6, 1e6).to(dtype)
    special = torch.tensor([np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38])
    return torch.cat([special, found]).to(dtype)


def compiled(function: Any, *given: Any) -> Any:
    torch.compiler.reset()
    return torch.compile(function, backend="strata", fullgraph=True)(*given)


@each_narrow
@pytest.mark.parametrize("wide", WIDE, ids=str)
def test_conversions(narrow: torch.dtype, wide: torch.dtype) -> None:
    def narrowed(x: Any) -> Any:
        return x.to(narrow).view(torch.uint8)

    def widened(x: Any) -> Any:
        return x.view(narrow).to(wide)

    x = numbers(wide)
    got, want = (torch.as_tensor(f(x)).view(narrow).float()
                 for f in (lambda x: compiled(narrowed, x), narrowed))
    torch.testing.assert_close(got, want, rtol=0, atol=TINY, equal_nan=True)
    every = torch.arange(256, dtype=torch.uint8)
    if not wide.is_floating_point:
        every = every[every.view(narrow).float().isfinite()]
    torch.testing.assert_close(compiled(widened, every), widened(every), rtol=0, atol=TINY,
                               equal_nan=True)


@each_narrow
def test_numbers_and_copies(narrow: torch.dtype) -> None:
    def made(x: Any) -> Any:
        filled = torch.full((3,), 99.0, dtype=narrow), torch.full((3,), 1.3, dtype=narrow)
        copied = torch.empty_like(x, dtype=narrow)
        copied.copy_(x)
        return [v.view(torch.uint8) for v in (*filled, copied)]

    x = numbers(torch.float32)[3:]
    program = torch.export.export(Function(made), (x,))
    results = compiler.compile(program, target="cpu")(x.numpy())
    for got, want in zip(results, made(x), strict=True):
        torch.testing.assert_close(torch.from_numpy(got).view(narrow).float(),
                                   want.view(narrow).float(), rtol=0, atol=TINY, equal_nan=True)


class Function(torch.nn.Module):
    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)
