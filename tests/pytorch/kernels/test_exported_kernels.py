"""Users' kernels in Triton in programs of torch.export, on tensors of a GPU that may not exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import triton_op, wrap_triton

import compiler
from compiler.diagnostics import StrataError


@triton.jit
def weighted(x, y, out, n, weight, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) * weight + tl.load(y + i, mask=inside),
             mask=inside)


@triton.jit
def doubled(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


tuned = triton.autotune([triton.Config({"BLOCK": b}) for b in (32, 64)], ["n"])(weighted)
guessed = triton.heuristics({"BLOCK": lambda given: 32 if given["n"] < 50 else 64,
                             "num_warps": lambda given: 2})(weighted)


@triton_op("strata_tests::weighted_sum", mutates_args={})
def weighted_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out, n = torch.empty_like(x), x.numel()
    wrap_triton(weighted)[(triton.cdiv(n, 64),)](x, y, out, n, 3.0, 64)
    return out


@triton_op("strata_tests::tuned_sum", mutates_args={})
def tuned_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out, n = torch.empty_like(x), x.numel()
    wrap_triton(tuned)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, 3.0)
    return out


@triton_op("strata_tests::double_", mutates_args={"x"})
def double_(x: torch.Tensor) -> None:
    wrap_triton(doubled)[(triton.cdiv(x.numel(), 64),)](x, x.numel(), 64)


class Operators(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return weighted_sum(x.sin(), y) + tuned_sum(x.sin(), y)


class Launches(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        out, x = torch.empty_like(x), x.sin()
        wrap_triton(weighted)[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), 3.0, BLOCK=64)
        return out * 2


class Guesses(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        out, x = torch.empty_like(x), x.sin()
        guessed[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel(), 3.0)
        return out * 2


class Changes(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        value = x.sin() * 1.5
        double_(value)
        return value * 2 + y * 2


class Writes(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        double_(x)
        return x + y


def exported(
    module: torch.nn.Module, is_open: bool, least: int = 2, strict: bool = False
) -> Any:
    with FakeTensorMode(allow_non_fake_inputs=True):
        x, y = (torch.empty(100, device="cuda") for _ in range(2))
    sizes: Any = ({0: torch.export.Dim("n", min=least)},) * 2 if is_open else None
    return torch.export.export(module, (x, y), dynamic_shapes=sizes, strict=strict)


def check(program: Any, *lengths: int) -> None:
    exe = compiler.compile(program, target="cuda", interpret=True, cache="off")
    for n in lengths:
        x, y = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
        np.testing.assert_allclose(exe(x, y)[0], (np.sin(x) * 3 + y) * 2, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("module", [Operators(), Launches(), Changes()],
                         ids=lambda m: type(m).__name__)
def test_kernels_are_launches(module: torch.nn.Module) -> None:
    check(exported(module, False), 100)
    check(exported(module, True), 2, 77, 128)


def test_heuristics_give_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch traces heuristics where it sees a GPU; what they ask of sizes must be certain."""
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda *given: True)
    check(exported(Guesses(), False, strict=True), 100)
    check(exported(Guesses(), True, 50, strict=True), 50, 128)


def test_what_cannot_be_launched_is_refused(tmp_path: Path) -> None:
    """Writes into arguments, tensors that are not on a GPU, and files that name operators whose
    functions would have to run."""
    with pytest.raises(StrataError, match="writes into its input 'x'"):
        check(exported(Writes(), False))
    on_cpu = torch.export.export(Operators(), (torch.zeros(9), torch.zeros(9)))
    with pytest.raises(StrataError, match="Triton on the device cpu"):
        check(on_cpu)
    torch.export.save(exported(Operators(), True), tmp_path / "sums.pt2")
    with pytest.raises(StrataError, match=r"weighted_sum.default' is not allowed"):
        check(tmp_path / "sums.pt2")
