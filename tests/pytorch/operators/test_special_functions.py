"""Special functions against PyTorch's in f64, at edges, near poles and zeros and far away."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch

from tests.pytorch.programs import export, run

S = torch.special
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "lgamma": torch.lgamma, "digamma": torch.digamma, "erfc": torch.erfc, "erfcx": S.erfcx,
    "erfinv": torch.erfinv, "ndtri": S.ndtri, "log_ndtr": S.log_ndtr, "i0": torch.i0,
    "i0e": S.i0e, "i1": S.i1, "i1e": S.i1e, "k0": S.modified_bessel_k0,
    "k1": S.modified_bessel_k1, "scaled_k0": S.scaled_modified_bessel_k0,
    "scaled_k1": S.scaled_modified_bessel_k1, "j0": S.bessel_j0, "j1": S.bessel_j1,
    "y0": S.bessel_y0, "y1": S.bessel_y1, "spherical_j0": S.spherical_bessel_j0,
    "trigamma": lambda x: torch.polygamma(1, x), "polygamma 3": lambda x: torch.polygamma(3, x),
}
FAR = 1e4
"""Beyond it, the last bits of an argument decide a sine."""
UNLIKE_EAGER = {"trigamma": lambda x: (x <= 0) & (x == x.floor())}
"""Poles, of which eager mode computes other large numbers."""


def truth(name: str, x: torch.Tensor) -> torch.Tensor:
    """The function in f64. PyTorch's own J and Y have errors of 3e-7, its trigamma of 5e-10."""
    want = FUNCTIONS[name](x)
    exact = {"j": mpmath.besselj, "y": mpmath.bessely, "t": mpmath.psi}.get(name[0])
    if exact is None:
        return want
    order = 1 if name == "trigamma" else int(name[1])
    return torch.tensor([float(exact(order, float(v))) if w.isfinite() else float(w)
                         for v, w in zip(x, want, strict=True)], dtype=torch.float64)


def arguments() -> torch.Tensor:
    own = torch.tensor([0.0, -0.0, 1e-8, 0.5, 1.0, -1.0, 1.0000001, 1.5, 2.0, -1.5, -2.0, -3.7,
                        7.9, 8.1, 9.9, 10.1, -20.5, -50.3, 80.0, 1e3, FAR, math.inf, -math.inf,
                        math.nan])
    source = torch.Generator().manual_seed(1)
    return torch.cat([own, torch.randn(150, generator=source) * 4,
                      torch.rand(50, generator=source)])


def check(names: list[str], dtype: torch.dtype, target: str, limit: float) -> None:
    x = arguments().to(dtype)

    def call(v: torch.Tensor) -> Any:
        return tuple(FUNCTIONS[name](v) for name in names)

    for name, got in zip(names, run(export(call, [x]), [x], target), strict=True):
        known = ~UNLIKE_EAGER[name](x) if name in UNLIKE_EAGER else torch.ones_like(x) > 0
        want = truth(name, torch.where(known, x, 1.0).double())
        if dtype != torch.float64:  # subnormals are flushed
            want = torch.where(want.abs() < 1e-37, 0.0, want)
            got = torch.where(got.abs() < 1e-37, 0.0, got)
        torch.testing.assert_close(got[known].double(), want[known].to(dtype).double(), rtol=limit,
                                   atol=1e-12, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}")


def test_f64_is_exact_to_thirteen_digits() -> None:
    check(list(FUNCTIONS), torch.float64, "reference", 2e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrower_floats_are_rounded_once(dtype: torch.dtype) -> None:
    check(list(FUNCTIONS), dtype, "reference", torch.finfo(dtype).eps)


def test_on_the_cpu() -> None:
    check(["lgamma", "digamma", "erfinv", "k1"], torch.float32, "cpu", 1.2e-7)


def test_gamma_near_its_zeros() -> None:
    """Where ln Gamma is nearly 0, the result still has seven digits."""
    x = torch.tensor([1 + 1e-6, 1 - 1e-6, 2 + 1e-6, 2 - 1e-6, 1.0, 2.0])
    [got] = run(export(torch.lgamma, [x]), [x])
    torch.testing.assert_close(got, torch.lgamma(x.double()).float(), rtol=3e-7, atol=0)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_incomplete_gamma(target: str) -> None:
    """Both functions, in the three parts of the plane and across their borders, and at edges.
    PyTorch's own have errors of 1e-9."""
    source = torch.Generator().manual_seed(5)
    spread = torch.rand((3, 40), generator=source, dtype=torch.float64)
    a = torch.cat([spread[0] * 10, spread[1] * 120, spread[2] * 1e4 + 90])
    near = 1 + 0.1 * torch.randn(120, generator=source, dtype=torch.float64)
    x = torch.cat([spread[1] * 20, spread[0] * 150, a[80:] * near[80:]])
    inf, nan = math.inf, math.nan
    edges = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, -1.0), (-1.0, 1.0), (inf, inf), (inf, 1.0),
             (3.0, inf), (0.0, inf), (2.0, nan), (nan, 2.0)]
    ends = torch.tensor(edges, dtype=torch.float64).T
    given = [torch.cat([a, ends[0]]), torch.cat([x, ends[1]])]
    lower, upper = run(export(lambda a, x: (S.gammainc(a, x), S.gammaincc(a, x)), given), given,
                       target)
    with mpmath.workdps(30):
        pairs = [(float(p), float(q)) for p, q in zip(a, x, strict=True)]
        below = [float(mpmath.gammainc(p, 0, q, regularized=True)) for p, q in pairs]
        above = [float(mpmath.gammainc(p, q, regularized=True)) for p, q in pairs]
    for got, want, eager in ((lower, below, S.gammainc), (upper, above, S.gammaincc)):
        torch.testing.assert_close(got[:120], torch.tensor(want, dtype=torch.float64), rtol=2e-12,
                                   atol=1e-13)
        torch.testing.assert_close(got[120:], eager(*ends), rtol=0, atol=0, equal_nan=True)


def test_next_floats() -> None:
    """One step up and down, through 0, subnormals, and infinity."""
    least = 2.0 ** -149
    x = torch.tensor([0.0, -0.0, least, -least, 1.0, -1.0, 3.4028235e38, math.inf, -math.inf, 5.0])
    y = torch.tensor([1.0, -1.0, 0.0, 0.0, 2.0, -2.0, math.inf, 0.0, 0.0, 5.0])
    for target in ("reference", "cpu"):
        for a, b in ((x, y), (x, y.flip(0)), (y, x)):
            [got] = run(export(torch.nextafter, [a, b]), [a, b], target)
            want = torch.nextafter(a, b)
            assert torch.equal(got.view(torch.int32), want.view(torch.int32))
