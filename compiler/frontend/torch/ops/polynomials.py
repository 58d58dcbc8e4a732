"""Orthogonal polynomials: of Chebyshev, Hermite, Laguerre and Legendre.

Each is a recurrence p(k+1) = f(k, p(k), p(k-1)) of all elements at once, in f64, up to the largest
degree, which the data may decide. Degrees are truncated to integers; below 0 the result is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.frontend import formulas as f
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.peeling import repeat
from compiler.frontend.places import size_in
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import Operand, aten_op
from compiler.frontend.torch.ops.elementwise import operand, truncated
from compiler.frontend.values import Value
from dialects.strata import types as t
from dialects.symbolic.expr import Expr


@dataclass(frozen=True)
class _Family:
    """p(1) for x, and p(k+1) for x, the number k, p(k) and p(k-1)."""

    first: Callable[[Value], Value]
    next: Callable[[Value, Value, Value, Value], Value]


def _doubled(x: Value, k: Value, p: Value, before: Value) -> Value:
    return 2 * x * p - before


_FAMILIES = {
    "chebyshev_polynomial_t": _Family(lambda x: x, _doubled),
    "chebyshev_polynomial_u": _Family(lambda x: 2 * x, _doubled),
    "chebyshev_polynomial_v": _Family(lambda x: 2 * x - 1, _doubled),
    "chebyshev_polynomial_w": _Family(lambda x: 2 * x + 1, _doubled),
    "hermite_polynomial_h": _Family(
        lambda x: 2 * x, lambda x, k, p, before: 2 * x * p - 2 * k * before),
    "hermite_polynomial_he": _Family(lambda x: x, lambda x, k, p, before: x * p - k * before),
    "laguerre_polynomial_l": _Family(
        lambda x: 1 - x, lambda x, k, p, before: ((2 * k + 1 - x) * p - k * before) / (k + 1)),
    "legendre_polynomial_p": _Family(
        lambda x: x, lambda x, k, p, before: ((2 * k + 1) * x * p - k * before) / (k + 1)),
}
_SHIFTED = {f"shifted_{name}": family for name, family in _FAMILIES.items()
            if name.startswith("chebyshev")}
"""Chebyshev's polynomials of 2x - 1."""


@aten_op(*(f"aten.special_{name}.{form}" for name in (*_FAMILIES, *_SHIFTED)
           for form in ("default", "x_scalar", "n_scalar")))
def polynomial(n: Node, x: Operand, degree: Operand) -> Value:
    name = n.op.split(".")[1].removeprefix("special_")
    wide = operand(n, x, t.f64).broadcast(n.shape)
    wide = 2 * wide - 1 if name in _SHIFTED else wide
    whole = truncated(operand(n, degree, t.f64)).broadcast(n.shape)
    return _of_degree(n, {**_FAMILIES, **_SHIFTED}[name], wide, whole)


def _of_degree(n: Node, family: _Family, x: Value, degree: Value) -> Value:
    one, first = x * 0 + 1, family.first(x)
    found = f.where(degree < 0, 0.0, f.where(f.equal(degree, 0), 1.0, first))
    most = f.reduce_max(degree, axes=list(range(degree.rank))) if degree.rank else degree
    count = size_in(n, f.maximum(most - 1, 0.0).cast(t.i64), "degree")

    def body(step: Expr, carried: list[Value]) -> Turn:
        before, last, found = carried
        k = n.of_size(step + 1).cast(t.f64)
        made = family.next(x, k, last, before)
        return Turn(None, [last, made, f.where(f.equal(degree, k + 1), made, found)], [])

    return repeat(n.build, Loop(f"{n.name}_degree", count, None, [one, first, found]), body)[0][2]
