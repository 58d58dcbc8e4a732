"""Fourier transforms of lengths that only a call knows, of exported programs."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

import compiler
from tests.pytorch.complex.complex_samples import numbers

F = torch.fft
LENGTHS = (2, 3, 4, 5, 8, 31, 64, 100, 509)


class Complex(torch.nn.Module):
    """Of complex numbers: both ways, of two dims, and those of reals."""

    def forward(self, re: torch.Tensor, im: torch.Tensor) -> Any:
        z = torch.complex(re, im)
        return (F.fft(z), F.ifft(z, norm="ortho"), F.fft(z, dim=0), F.ifft2(z), F.fft(re))


class Real(torch.nn.Module):
    """The half that reals need, and back, from even and odd lengths."""

    def forward(self, x: torch.Tensor) -> Any:
        half = F.rfft(x, norm="forward")
        return half, F.irfft(half, n=x.shape[-1]), F.irfftn(F.rfftn(x), s=x.shape)


def compare(program: Any, module: torch.nn.Module, inputs: list[torch.Tensor]) -> None:
    """Complex results of a program are pairs of reals."""
    exact = module(*(x.double() for x in inputs))
    for got, eager, want in zip(program(*inputs), module(*inputs), exact, strict=True):
        if want.is_complex():
            eager, want = torch.view_as_real(eager.resolve_conj()), torch.view_as_real(
                want.resolve_conj())
        assert got.dtype == eager.dtype and got.shape == eager.shape
        size = float(want.abs().double().norm()) or 1.0
        assert float((got - want).abs().double().norm()) <= 1e-6 * size


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("kind", [Complex, Real])
def test_all_lengths_of_one_program(kind: type[torch.nn.Module], target: str) -> None:
    rows, count = (torch.export.Dim(name, min=2) for name in ("rows", "count"))
    module = kind()
    inputs = [numbers(5, 12).real.clone(), numbers(5, 12).imag.clone()][:1 + (kind is Complex)]
    dims: Any = tuple({0: rows, 1: count} for _ in inputs)
    program = torch.export.export(module, tuple(inputs), dynamic_shapes=dims)
    exe = compiler.compile(program, target=target, cache="off")
    for length in LENGTHS:
        z = numbers(length % 3 + 600, length)  # PyTorch's guards: as many rows as columns are none
        compare(exe, module, [z.real.clone(), z.imag.clone()][:len(inputs)])


def test_pytorch_computes_those_of_its_own_graphs(caplog: Any) -> None:
    """They are faster there, and only a node runs eagerly."""
    torch._dynamo.reset()
    x = torch.ones(3, 10)
    with torch.no_grad(), caplog.at_level(logging.WARNING, logger="strata"):
        got = torch.compile(lambda x: F.rfft(x * 2).abs(), backend="strata", dynamic=True)(x)
    torch.testing.assert_close(got, F.rfft(x * 2).abs())
    told = [r.getMessage() for r in caplog.records if r.name == "strata"]
    assert "1 node runs eagerly: _fft_r2c" in told[0]
