"""Reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.torch.ops.elementwise import HALVES
from compiler.frontend.torch.ops.ordering import position
from compiler.frontend.values import Value
from dialects.graph.base import GraphOp
from dialects.graph.ordering import ArgMaxOp, ArgMinOp
from dialects.graph.reduce import ReduceMaxOp, ReduceMeanOp, ReduceMinOp, ReduceProdOp, ReduceSumOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product


def reduced(
    n: Node, op: type[GraphOp], x: Value, axes: Sequence[int] | int | None, keep: bool
) -> Value:
    """A reduction over the axes; over all of them for None or none."""
    found = n.axes(axes, x.rank)
    return n(op, x, axes=found, keepdims=keep) if found else x


_OF_BITS: dict[type[GraphOp], type[GraphOp]] = {ReduceSumOp: ReduceMaxOp, ReduceProdOp: ReduceMinOp}
"""Sums and products of truth values, which are computed as bits."""


def _accumulated(
    n: Node, op: type[GraphOp], x: Value, axes: Sequence[int] | int | None, keep: bool
) -> Value:
    """A sum or product in the result's element type."""
    if n.element != t.i1:
        return reduced(n, op, x.cast(n.element), axes, keep)
    bits = x.cast(t.i1).cast(t.i32)
    return n.scalar(0, t.i32) < reduced(n, _OF_BITS[op], bits, axes, keep)  # also of none


# ---------------------------------------------------------------------- sums
@aten_op("aten.sum.default")
def sum_all(n: Node, x: Value) -> Value:
    return _accumulated(n, ReduceSumOp, x, None, False)


@aten_op("aten.sum.dim_IntList")
def sum_(n: Node, x: Value, axes: Sequence[int] | None, keep: bool) -> Value:
    return _accumulated(n, ReduceSumOp, x, axes, keep)


@aten_op("aten.histc.default")
def histogram(n: Node, x: Value, bins: int, low: float, high: float) -> Value:
    """The number of elements in each of `bins` equal parts of [low, high]. Others do not count."""
    if low >= high:
        raise Fault("its range depends on the elements, since min is not below max",
                    "call histc with a min and a max")
    wide = x.reshape([x.type.count, 1]).cast(t.f32)
    least, most, count = (n.scalar(float(v), t.f32) for v in (low, high, bins))
    place = (wide - least) * count / (most - least)
    last = f.minimum(f.floor(place), float(bins - 1))
    inside = (least <= wide) & (wide <= most)
    there = inside & f.equal(last, n.range(bins).cast(t.f32))
    return f.reduce_sum(there.cast(n.element), axes=[0])


@aten_op("aten.mean.default")
def mean_all(n: Node, x: Value) -> Value:
    return reduced(n, ReduceMeanOp, x.cast(n.element), None, False)


@aten_op("aten.mean.dim")
def mean(n: Node, x: Value, axes: Sequence[int] | None, keep: bool) -> Value:
    return reduced(n, ReduceMeanOp, x.cast(n.element), axes, keep)


@aten_op("aten.prod.default")
def prod_all(n: Node, x: Value) -> Value:
    return _accumulated(n, ReduceProdOp, x, None, False)


@aten_op("aten.prod.dim_int")
def prod(n: Node, x: Value, axis: int, keep: bool) -> Value:
    return _accumulated(n, ReduceProdOp, x, axis, keep)


@aten_op("aten.any.default", "aten.all.default")
def truth_of_all(n: Node, x: Value) -> Value:
    return truth(n, x, None, False)


@aten_op("aten.any.dim", "aten.any.dims", "aten.all.dim", "aten.all.dims")
def truth(n: Node, x: Value, axes: Sequence[int] | int | None, keep: bool) -> Value:
    """Whether any element, or all elements, are true. Of no elements, none is, and all are: then
    the maximum is the smallest integer, and the minimum the largest."""
    op = ReduceMaxOp if n.op.startswith("aten.any") else ReduceMinOp
    bits = x.cast(t.i1).cast(t.i32)
    return n.scalar(0, t.i32) < reduced(n, op, bits, axes, keep)


@aten_op("aten.var.correction", "aten.std.correction")
def var(
    n: Node, x: Value, axes: Sequence[int] | None, correction: float | None, keep: bool
) -> Value:
    found = _variance(n, x, axes, correction, keep)
    return f.sqrt(found) if n.op.startswith("aten.std") else found


@aten_op("aten.var_mean.correction")
def var_mean(
    n: Node, x: Value, axes: Sequence[int] | None, correction: float | None, keep: bool
) -> list[Value]:
    x = x.cast(t.f32) if x.element in HALVES else x
    return [_variance(n, x, axes, correction, keep), reduced(n, ReduceMeanOp, x, axes, keep)]


def _variance(
    n: Node, x: Value, axes: Sequence[int] | None, correction: float | None, keep: bool
) -> Value:
    """The sum of squared differences from the mean, divided by the count minus the correction.

    A divisor below 0 counts as 0, as in PyTorch.
    """
    x = x.cast(t.f32) if x.element in HALVES else x
    found = n.axes(axes, x.rank)
    centered = x - reduced(n, ReduceMeanOp, x, found, True)
    total = reduced(n, ReduceSumOp, centered * centered, found, keep)
    return total / _degrees(n, product(x.shape[a] for a in found), correction).cast(x.element)


def _degrees(n: Node, count: Expr, correction: float | None) -> Value:
    """count - correction, computed in f64; 0 if that is not positive."""
    left = n.scalar(count, t.f64) - float(1 if correction is None else correction)
    return f.where(left > 0, left, 0.0)


@aten_op("aten.linalg_vector_norm.default")
def vector_norm(
    n: Node, x: Value, order: float, axes: Sequence[int] | None, keep: bool
) -> Value:
    """(sum of |x|^order)^(1/order); the largest or smallest |x| for an infinite order.

    For the order 0 it is the number of elements that are not 0.
    """
    x = x.cast(t.f32 if n.element in HALVES else n.element)
    if order == 2:
        return f.sqrt(reduced(n, ReduceSumOp, x * x, axes, keep))
    size = abs(x)
    if math.isinf(order):
        return reduced(n, ReduceMaxOp if order > 0 else ReduceMinOp, size, axes, keep)
    if order == 1:
        return reduced(n, ReduceSumOp, size, axes, keep)
    if order == 0:
        return reduced(n, ReduceSumOp, (~f.equal(x, 0)).cast(x.element), axes, keep)
    total = reduced(n, ReduceSumOp, size ** order, axes, keep)
    return total ** (1 / order)


@aten_op("aten.logsumexp.default")
def logsumexp(n: Node, x: Value, axes: Sequence[int], keep: bool) -> Value:
    """m + log(sum(exp(x - m))), where m is the maximum, or 0 if that is infinite or NaN."""
    x = x.cast(n.element)
    most = reduced(n, ReduceMaxOp, x, axes, True)
    finite = f.equal(most - most, 0.0)
    shift = f.where(finite, most, 0.0)
    total = reduced(n, ReduceSumOp, f.exp(x - shift), axes, True)
    return (f.log(total) + shift).reshape(n.shape)


# ---------------------------------------------------------------------- extremes
@aten_op("aten.amax.default", "aten.amin.default")
def extremes(n: Node, x: Value, axes: Sequence[int], keep: bool) -> Value:
    return _extremum(n, x, axes, keep)


@aten_op("aten.max.default", "aten.min.default")
def extremum_of_all(n: Node, x: Value) -> Value:
    return _extremum(n, x, None, False)


@aten_op("aten.max.dim", "aten.min.dim")
def extremum_and_position(n: Node, x: Value, axis: int, keep: bool) -> list[Value]:
    value = _extremum(n, x, axis, keep)
    if not n.wants(1):
        return [value]
    find = ArgMaxOp if n.op.startswith("aten.max") else ArgMinOp
    return [value, position(n, find, x, axis, keep)]


def _extremum(n: Node, x: Value, axes: Sequence[int] | int | None, keep: bool) -> Value:
    """The largest or smallest elements. Truth values are compared as bytes."""
    largest = n.op.startswith(("aten.max", "aten.amax"))
    wide = x.cast(t.ui8) if x.element == t.i1 else x
    return reduced(n, ReduceMaxOp if largest else ReduceMinOp, wide, axes, keep).cast(x.element)
