"""Factors, solutions, inverses and determinants of matrices that take a loop, against LAPACK."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import compiler
from dialects.strata.assumptions import DataError
from targets.base import TargetOptions
from targets.cuda import TARGET as CUDA
from tests.lowering import lower
from tests.pytorch.programs import export, flat

L = torch.linalg
Call = Callable[..., Any]


def square(n: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Its pivots are rarely on the diagonal."""
    return torch.randn(2, n, n, generator=torch.Generator().manual_seed(n), dtype=dtype)


def definite(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


CALLS: dict[str, Call] = {
    "lu_factor": L.lu_factor, "lu": L.lu, "inv": L.inv, "det": L.det, "slogdet": L.slogdet,
    "solve": lambda x: L.solve(x, x[..., :3]),
    "solve right": lambda x: L.solve(x, x[..., :3, :], left=False),
    "adjoint": lambda x: L.lu_solve(*L.lu_factor(x), x[..., :2], adjoint=True),
    "cholesky": lambda x: L.cholesky(definite(x)),
    "cholesky upper": lambda x: L.cholesky(definite(x), upper=True),
    "cholesky_solve": lambda x: torch.cholesky_solve(x[..., :2], L.cholesky(definite(x))),
    "triangle": lambda x: L.solve_triangular(definite(x), x[..., :3], upper=True),
    "qr": L.qr, "qr complete": lambda x: L.qr(x, mode="complete"),
    "qr r": lambda x: L.qr(x, mode="r")[1],
}
OBLONG = ("lu_factor", "lu", "qr", "qr complete")


def check(
    function: Call, shapes: Sequence[torch.Tensor], caplog: Any, dynamic: bool | None = None
) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="strata", fullgraph=True, dynamic=dynamic,
                             options={"cache": "off"})
    with torch.no_grad(), caplog.at_level(logging.WARNING, logger="strata"):
        for x in shapes:
            for a, b in zip(flat(compiled(x)), flat(function(x)), strict=True):
                assert a.dtype == b.dtype and a.shape == b.shape
                torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    assert not [r.getMessage() for r in caplog.records if r.name == "strata"]


@pytest.mark.parametrize("name", CALLS)
def test_square(name: str, caplog: Any) -> None:
    check(CALLS[name], [square(41)], caplog)


@pytest.mark.parametrize("name", ["lu_factor", "solve", "cholesky", "qr"])
def test_open_sizes(name: str, caplog: Any) -> None:
    """One program; sizes of one block, of whole blocks and of a part of one."""
    check(CALLS[name], [square(n) for n in (41, 64, 5, 33)], caplog, dynamic=True)


@pytest.mark.parametrize("name", OBLONG)
def test_oblong(name: str, caplog: Any) -> None:
    for rows, columns in ((70, 33), (33, 70)):
        check(CALLS[name], [square(70)[:, :rows, :columns].contiguous()], caplog)


def test_single_precision() -> None:
    """In f32 the loss of digits is like LAPACK's."""
    x = square(100, torch.float32)
    want = L.inv(x.double())
    program = compiler.compile(export(L.inv, [x]), cache="off")
    [found] = program(x.numpy())
    scale = want.abs().max()
    theirs = (L.inv(x) - want).abs().max() / scale
    assert np.abs(found - want.numpy()).max() / scale < 8 * theirs + 1e-6


@pytest.mark.parametrize("size", [7, 40])
def test_exported_programs_refuse_singular_matrices(size: int) -> None:
    x = square(size)
    program = compiler.compile(export(L.inv, [x]), cache="off")
    np.testing.assert_allclose(program(x.numpy())[0], L.inv(x).numpy(), rtol=1e-7, atol=1e-8)
    singular = x.clone()
    singular[1, :, 4] = 0
    with pytest.raises(DataError, match=r"bad pivot of linalg\.inv"):
        program(singular.numpy())


@pytest.mark.parametrize("name", ["solve", "cholesky", "qr"])
def test_code_for_cuda(name: str) -> None:
    from compiler.frontend import load_model
    from compiler.frontend.torch import in_memory

    model = in_memory(export(CALLS[name], [square(40, torch.float32)]))
    assert model is not None
    imported = load_model(model)
    context = CUDA.bind(TargetOptions("sm_90")).context(imported.weights)
    for _ in lower(imported.module, context):
        pass
