"""Singular values, eigenvalues and what follows from them, against LAPACK through PyTorch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._prims  # registers the operators

L = torch.linalg
SOURCE = torch.Generator().manual_seed(7)
TALL = torch.randn(2, 5, 3, generator=SOURCE)
SQUARE = torch.randn(6, 6, generator=SOURCE)
LOW = torch.randn(5, 2, generator=SOURCE) @ torch.randn(2, 4, generator=SOURCE)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="strata", fullgraph=True, options={"cache": "off"})


def warned(caplog: Any) -> list[str]:
    """Why nodes run eagerly."""
    return [r.getMessage() for r in caplog.records if r.name == "strata" and r.levelno > 20]


UNIQUE: dict[str, Callable[[], Any]] = {
    "singular values": lambda: (L.svdvals(TALL), L.svdvals(TALL.mT), L.svdvals(LOW)),
    "of equal length": lambda: (L.svdvals(torch.eye(4)), L.svdvals(torch.zeros(3, 2)),
                                L.svdvals(torch.full((1, 1), -2.0))),
    "of double precision": lambda: (L.svdvals(TALL.double()), L.eigvalsh(SQUARE.double())),
    "of all scales": lambda: (L.svdvals(TALL * 1e30), L.svdvals(TALL * 1e-30)),
    "norms": lambda: (L.matrix_norm(TALL, 2), L.matrix_norm(TALL, -2), L.cond(TALL),
                      L.matrix_norm(TALL, "nuc"), L.matrix_rank(LOW)),
    "eigenvalues": lambda: (L.eigvalsh(SQUARE), L.eigvalsh(SQUARE, UPLO="U"),
                            L.eigvalsh(-torch.eye(3)), L.eigvalsh(torch.zeros(2, 2))),
    "inverses": lambda: (L.pinv(TALL), L.pinv(TALL.mT), L.pinv(LOW), L.pinv(TALL, rtol=0.3),
                         L.pinv(TALL, atol=0.5), L.pinv(TALL, atol=0.0),
                         L.pinv(TALL @ TALL.mT, rtol=1e-3, hermitian=True)),
    "exponentials": lambda: (torch.matrix_exp(SQUARE), torch.matrix_exp(SQUARE * 4),
                             torch.matrix_exp(torch.stack([SQUARE, SQUARE * 1e-3, SQUARE * 0]))),
}


@pytest.mark.parametrize("name", UNIQUE)
def test_what_is_unique_is_compiled(name: str, caplog: Any) -> None:
    call = UNIQUE[name]
    with torch.no_grad(), caplog.at_level(logging.WARNING, logger="strata"):
        want, got = call(), compiled(call)()
    assert not warned(caplog)
    for a, b in zip(got, want, strict=True):
        limit = 1e-10 if b.dtype == torch.float64 else 1e-4
        size = float(b.abs().max()) or 1.0
        assert a.dtype == b.dtype
        torch.testing.assert_close(a / size, b / size, rtol=limit, atol=limit)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (1, 3), (2, 6, 4), "low rank"])
def test_factors_of_primtorch(shape: Any, whole: bool, caplog: Any) -> None:
    """The product is x, and the factors are orthogonal, also where singular values are 0."""
    x = LOW if shape == "low rank" else torch.randn(shape, generator=SOURCE)
    u, s, v = compiled(lambda x: torch.ops.prims.svd(x, full_matrices=whole))(x)
    shapes = [found.shape for found in torch.ops.prims.svd(x, full_matrices=whole)]
    assert not warned(caplog) and [u.shape, s.shape, v.shape] == shapes
    count = s.shape[-1]
    torch.testing.assert_close(s, L.svdvals(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close((u[..., :count] * s[..., None, :]) @ v[..., :count, :], x,
                               rtol=1e-5, atol=1e-5)
    for made in (u.mT @ u, v @ v.mT):
        torch.testing.assert_close(made, torch.eye(made.shape[-1]).expand_as(made), rtol=1e-5,
                                   atol=1e-5)


@pytest.mark.parametrize("call", [
    lambda x: L.svd(x)[0], lambda x: L.eigh(x)[1], lambda x: L.svdvals(x.repeat(9, 9))])
def test_what_stays_with_lapack(call: Callable[[Any], Any], caplog: Any) -> None:
    """Vectors, whose signs follow from its steps, and large matrices."""
    got, want = compiled(call)(SQUARE), call(SQUARE)
    assert len(warned(caplog)) == 1
    torch.testing.assert_close(got, want)
