"""Linear algebra of small matrices, step by step, against LAPACK through PyTorch."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tests.pytorch.programs import flat

L = torch.linalg
SOURCE = torch.Generator().manual_seed(5)
A, B = torch.randn(2, 4, 4, generator=SOURCE), torch.randn(4, 3, generator=SOURCE)
WIDE = torch.randn(3, 4, generator=SOURCE)


def check(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], caplog: Any,
    target: str = "reference",
) -> None:
    torch._dynamo.reset()
    with torch.no_grad(), caplog.at_level(logging.WARNING, logger="strata"):
        want = function(*inputs)
        got = torch.compile(function, backend="strata", fullgraph=True,
                            options={"target": target, "cache": "off"})(*inputs)
    assert not [r.getMessage() for r in caplog.records if r.name == "strata"]
    for a, b in zip(flat(got), flat(want), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.stride() == b.stride() or not a.numel()
        torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5)


def test_factors_and_solutions(caplog: Any) -> None:
    def call(a: Any, b: Any) -> Any:
        factors = L.lu_factor(a)
        return (L.inv(a), L.det(a), L.slogdet(a), L.solve(a, b), L.solve(a[0], b[:, 0]),
                L.solve(a, b.T, left=False), factors, L.lu(a), L.lu_solve(*factors, b.expand(
                    2, 4, 3), adjoint=True), torch.lu_unpack(*factors))

    check(call, [A, B], caplog)


def test_triangles(caplog: Any) -> None:
    def call(a: Any, b: Any) -> Any:
        whole = a @ a.mT + torch.eye(4)
        lower = L.cholesky(whole)
        return (lower, L.cholesky(whole, upper=True), torch.cholesky_solve(b, lower),
                torch.cholesky_inverse(lower[0]), L.solve_triangular(whole, b, upper=True),
                L.solve_triangular(whole, b.mT, upper=False, left=False),
                torch.triangular_solve(b, whole, True, True))

    check(call, [A, B], caplog)


@pytest.mark.parametrize("size", [25, 48, 70])
def test_triangles_of_many_rows(size: int, caplog: Any) -> None:
    """In blocks, of which the last may be cut."""
    def call(a: Any, b: Any) -> Any:
        return [L.solve_triangular(a, b, upper=True), L.solve_triangular(a, b, upper=False),
                L.solve_triangular(a, b.mT, upper=True, left=False, unitriangular=True),
                torch.triangular_solve(b, a, False, True)[0], torch.cholesky_solve(b, a)]

    many = torch.randn(2, size, size, generator=SOURCE) / size + torch.eye(size)
    check(call, [many, torch.randn(2, size, 3, generator=SOURCE)], caplog)


IN_MEMORY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "inv": L.inv, "solve": lambda a: L.solve(a, B), "lu_factor": lambda a: L.lu_factor(a)[0],
    "cholesky": lambda a: L.cholesky(a @ a.mT + torch.eye(4)), "qr": lambda a: L.qr(a)[1],
    "solve_triangular": lambda a: L.solve_triangular(a, B, upper=True),
    "from the right": lambda a: L.solve_triangular(a, B.mT, upper=True, left=False)}


@pytest.mark.parametrize("name", IN_MEMORY)
def test_the_order_of_elements_in_memory(name: str, caplog: Any) -> None:
    """Which `as_strided` shows within a graph."""
    def call(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = IN_MEMORY[name](a)
        return found, found.as_strided((found.numel(),), (1,)) + 1

    check(call, [A], caplog)


def test_orthogonal_factors(caplog: Any) -> None:
    def call(wide: Any) -> Any:
        return [found for x in (wide, wide.mT, wide[:, :3]) for found in (
            *L.qr(x), *L.qr(x, "complete"), L.qr(x, "r")[1], *torch.geqrf(x))] + [*L.lu(wide),
                                                                                 *L.lu(wide.mT)]

    check(call, [WIDE], caplog)


def test_products_with_reflections(caplog: Any) -> None:
    """From both sides, and transposed."""
    def call(a: Any, tau: Any, b: Any) -> Any:
        return [torch.ormqr(a, tau, b if left else b.mT, left, turned)
                for left in (True, False) for turned in (True, False)]

    check(call, [*torch.geqrf(torch.randn(2, 6, 4, generator=SOURCE)),
                 torch.randn(2, 6, 3, generator=SOURCE)], caplog)


EMPTY: dict[str, Callable[[torch.Tensor], Any]] = {
    "svdvals": L.svdvals, "pinv": L.pinv, "qr": L.qr, "eigvalsh": lambda a: L.eigvalsh(a @ a.mT),
    "pinv of symmetric ones": lambda a: L.pinv(a @ a.mT, hermitian=True),
    "matrix_exp": lambda a: L.matrix_exp(a @ a.mT), "cholesky": lambda a: L.cholesky(a @ a.mT),
    "inv": lambda a: L.inv(a @ a.mT), "slogdet": lambda a: L.slogdet(a @ a.mT)}


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", EMPTY)
def test_no_matrices_and_matrices_without_elements(name: str, target: str, caplog: Any) -> None:
    """Loops then run on buffers of no bytes."""
    for shape in ((0, 3, 3), (2, 0, 0), (0, 4), (2, 3, 0)):
        if name in ("cholesky", "inv") and shape[-1] != shape[-2]:
            continue  # zeros, which have no inverse
        check(EMPTY[name], [torch.ones(shape)], caplog, target)


FALLIBLE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "linalg.inv": L.inv, "linalg.cholesky": L.cholesky, "linalg.inv of many": lambda x: L.inv(
        torch.stack([torch.eye(3), x])),
    "linalg.solve": lambda x: L.solve(x, torch.ones(3)),
    "linalg.inv twice": lambda x: L.inv(L.inv(x)),
}


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", FALLIBLE)
def test_errors_are_those_of_eager_mode(name: str, trains: bool) -> None:
    """Of singular and indefinite matrices; the same code then serves a good one."""
    def call(x: torch.Tensor) -> torch.Tensor:
        return FALLIBLE[name](x) + 1

    torch._dynamo.reset()
    fast = torch.compile(call, backend="strata", options={"target": "reference"})
    bad, good = torch.zeros(3, 3), torch.eye(3) * 4
    with pytest.raises(L.LinAlgError) as error:
        call(bad)
    with pytest.raises(L.LinAlgError, match=re.escape(str(error.value)[:40])):
        fast(bad.requires_grad_(trains))
    torch.testing.assert_close(fast(good.requires_grad_(trains)), call(good))
