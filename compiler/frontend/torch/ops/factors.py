"""Steps of larger matrices: the operators that `compiler.frontend.torch.matrices` defines."""

from __future__ import annotations

from dataclasses import replace

from compiler.frontend.orthogonal import reflected, reflections
from compiler.frontend.torch.matrices import loops
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.values import Value
from dialects.symbolic.expr import Expr, Size


@aten_op("strata_matrices.lu.default")
def lu(n: Node, x: Value, pivot: bool) -> list[Value]:
    return loops.lu(n, x, pivot)


@aten_op("strata_matrices.cholesky.default")
def cholesky(n: Node, x: Value) -> list[Value]:
    return loops.cholesky(n, x)


@aten_op("strata_matrices.reflections.default")
def reflections_of(n: Node, x: Value) -> list[Value]:
    return [*reflections(n, x)]


@aten_op("strata_matrices.reflected.default")
def reflected_by(n: Node, vectors: Value, factors: Value, b: Value, transpose: bool) -> Value:
    return reflected(n, vectors, factors, b, transpose)


@aten_op("strata_matrices.order.default")
def order(n: Node, pivots: Value, count: Size) -> Value:
    return loops.order_of(n, pivots, Expr.of(count))


@aten_op("strata_matrices.substituted.default")
def substituted(n: Node, x: Value, b: Value, upper: bool, unit: bool) -> Value:
    return loops.substituted(n, x, b, upper, unit)


@aten_op("aten._linalg_check_errors.default")
def check_errors(n: Node, info: Value, name: str, is_matrix: bool) -> list[Value]:
    """A run ends with an error where a matrix has no such factors."""
    n.require(0, replace(info, label=f"the first bad pivot of {name}"), 1)
    return []
