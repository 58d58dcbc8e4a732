"""Operators that order elements or search in order, and cumulative sums and products."""

from __future__ import annotations

from compiler.frontend import formulas as f
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import Operand, aten_op
from compiler.frontend.torch.ops.elementwise import operand
from compiler.frontend.torch.ops.promotion import common_element
from compiler.frontend.values import Value
from dialects.graph.cumulative import CumulativeProdOp, CumulativeSumOp
from dialects.graph.gather import GatherElementsOp
from dialects.graph.ordering import ArgMaxOp, ArgMinOp, TopKOp
from dialects.graph.search import SearchSortedOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, Size


@aten_op("aten.cumsum.default", "aten.cumprod.default")
def cumulative(n: Node, x: Value, axis: int) -> Value:
    op = CumulativeSumOp if "cumsum" in n.op else CumulativeProdOp
    x = x.cast(n.element)
    if not x.rank:
        return x
    return n(op, x, axis=n.axis(axis, x.rank), exclusive=False, reverse=False)


# ---------------------------------------------------------------------- positions
@aten_op("aten.argmax.default", "aten.argmin.default")
def arg_extremum(n: Node, x: Value, axis: int | None, keep: bool) -> Value:
    find = ArgMaxOp if "argmax" in n.op else ArgMinOp
    if axis is None:
        found = position(n, find, x.reshape([x.type.count]), 0, False)
        return found.reshape(n.shape)
    return position(n, find, x, axis, keep)


def position(
    n: Node, find: type[ArgMaxOp | ArgMinOp], x: Value, axis: int, keep: bool
) -> Value:
    """The index of the first extremum along an axis. NaN counts as an extremum."""
    if not x.rank:
        return n.scalar(0, t.i64)
    x = x.cast(t.ui8) if x.element == t.i1 else x
    return n(find, x, axis=n.axis(axis, x.rank), keepdims=keep, last=False)


# ---------------------------------------------------------------------- order
@aten_op("aten.topk.default", ignored=("sorted",))
def top_k(n: Node, x: Value, k: Size, axis: int, largest: bool) -> list[Value]:
    """The result is sorted, even if the node does not require that."""
    return _sorted(n, x, Expr.of(k), axis, largest)


@aten_op("aten.sort.default")
def sort(n: Node, x: Value, axis: int, descending: bool) -> list[Value]:
    return _sorted(n, x, None, axis, descending)


@aten_op("aten.sort.stable")
def sort_stable(
    n: Node, x: Value, stable: bool | None, axis: int, descending: bool
) -> list[Value]:
    return _sorted(n, x, None, axis, descending)


@aten_op("aten.argsort.default")
def argsort(n: Node, x: Value, axis: int, descending: bool) -> Value:
    return _sorted(n, x, None, axis, descending)[1]


def _sorted(n: Node, x: Value, k: Expr | None, axis: int, largest: bool) -> list[Value]:
    """The first k elements in order, or all of them for None. Equal elements keep their order."""
    if not x.rank:
        return [x, n.scalar(0, t.i64)]
    axis = n.axis(axis, x.rank)
    wide = x.cast(t.ui8) if x.element == t.i1 else x
    return n.build.results(TopKOp, wide, axis=axis, k=x.shape[axis] if k is None else k,
                           largest=largest)


# ---------------------------------------------------------------------- search
@aten_op("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(n: Node, values: Operand, limits: Value, int32: bool, right: bool) -> Value:
    return searchsorted(n, limits, values, int32, right, None, None)


@aten_op("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    n: Node, ordered: Value, values: Operand, int32: bool, right: bool, side: str | None,
    sorter: Value | None,
) -> Value:
    """For each value, how many elements of an ascending list are below it, or at most it.

    With several lists, each has its own values. NaN is above all elements.
    """
    right = right if side is None else side == "right"
    if sorter is not None:
        ordered = n(GatherElementsOp, ordered, sorter, axis=ordered.rank - 1)
    found = operand(n, values, common_element([ordered, values]))
    ordered = ordered.cast(found.element)
    if ordered.element == t.i1:
        ordered, found = ordered.cast(t.ui8), found.cast(t.ui8)
    if ordered.rank == 1 and right:
        places = n(SearchSortedOp, ordered, found)
        odd = f.is_nan(found) if t.is_float(found.element) else None
        return places if odd is None else f.where(odd, n.of_size(ordered.shape[0]), places)
    rank = max(found.rank, 1)
    one = found.reshape([*found.shape, 1])
    lists = ordered if ordered.rank == 1 else ordered.reshape(
        [*ordered.shape[:-1], 1, ordered.shape[-1]])
    above = one < lists if right else ~(lists < one)
    if t.is_float(found.element):
        above = above & ~f.is_nan(one)
    count = f.reduce_sum((~above).cast(t.i64), axes=[rank if found.rank else 0])
    return count.reshape(n.shape)
