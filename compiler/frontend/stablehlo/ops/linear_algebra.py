"""Factors of matrices, and triangular systems: one step for each row."""

from __future__ import annotations

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.ops import hlo_op
from compiler.frontend.values import Value

MOST = 32
"""The largest order of a matrix: each row is a step of the program."""


def order_of(x: Value) -> int:
    order = x.shape[-1].constant
    if order is None or order > MOST:
        raise Fault(f"matrices of order {x.shape[-1]} are not supported; up to {MOST} are")
    return order


def _transposed(x: Value) -> Value:
    return x.transpose([*range(x.rank - 2), x.rank - 1, x.rank - 2])


@hlo_op("stablehlo.cholesky")
def cholesky(n: Node, x: Value) -> Value:
    """The lower factor L of L L^T, or the upper one U of U^T U; only that half of x is read."""
    return factor(n, x, bool(n.op.attributes.get("lower", False)))


def factor(n: Node, x: Value, lower: bool) -> Value:
    """A Cholesky factor, whose other half is zeros."""
    order = order_of(x)
    rest, rows, columns = x if lower else _transposed(x), n.range(order), list[Value]()
    axis = x.rank - 1
    for k in range(order):
        column = rest.part(axis, k, 1)
        pivot = f.sqrt(column.part(axis - 1, k, 1))
        column = f.where((rows >= k).reshape([order, 1]), column / pivot, n.scalar(0, x))
        columns.append(column)
        rest = rest - column * _transposed(column)
    made = f.concat(columns, axis=axis) if columns else x
    return made if lower else _transposed(made)


@hlo_op("stablehlo.triangular_solve")
def triangular_solve(n: Node, a: Value, b: Value) -> Value:
    """x of op(a) x = b, or of x op(a) = b. The half of a that is not named is not read."""
    given = n.op.attributes
    lower, left = bool(given.get("lower")), bool(given.get("left_side"))
    turned = str(given.get("transpose_a", "NO_TRANSPOSE")) in ("TRANSPOSE", "ADJOINT")
    return solved(a, b, lower, left, turned, bool(given.get("unit_diagonal")))


def solved(a: Value, b: Value, lower: bool, left: bool, turned: bool, unit: bool) -> Value:
    """The solution of a triangular system, with the transpose of a if `turned`."""
    order = order_of(a)
    if turned == left:
        a, lower = _transposed(a), not lower
    right = b if left else _transposed(b)
    found = _solved(a, right, order, lower, unit)
    return found if left else _transposed(found)


def _solved(a: Value, b: Value, order: int, lower: bool, unit: bool) -> Value:
    axis, rows = a.rank - 2, dict[int, Value]()
    for k in range(order) if lower else reversed(range(order)):
        row = b.part(axis, k, 1)
        column = a.part(axis + 1, k, 1)
        rows[k] = row if unit else row / column.part(axis, k, 1)
        b = b - column * rows[k]
    return f.concat([rows[k] for k in range(order)], axis=axis) if rows else b
