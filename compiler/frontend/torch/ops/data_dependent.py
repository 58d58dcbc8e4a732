"""Operators whose results have sizes that depend on data, and reads and writes under masks.

The sizes are bound in the compiled code; PyTorch calls them u0, u1 ...
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontend import formulas as f
from compiler.frontend.places import (
    chosen_places,
    coordinates,
    groups_of,
    is_set,
    numbered,
    size_in,
)
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.values import Value
from dialects.graph.cumulative import CumulativeSumOp
from dialects.graph.inference import broadcast_shapes
from dialects.graph.scatter import ScatterElementsOp
from dialects.graph.search import SearchSortedOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product


def places_of(n: Node, mask: Value) -> list[Value]:
    """Per dim, the coordinates of the elements that are not 0, in order."""
    places = chosen_places(n, is_set(mask).reshape([mask.type.count]))
    return coordinates(n, places, mask.shape)


@aten_op("aten.nonzero.default")
def nonzero(n: Node, x: Value) -> Value:
    """[count, rank]"""
    if not x.rank:
        count = size_in(n, is_set(x).cast(t.i64), "count")
        return n.scalar(0, t.i64).broadcast([count, 0])
    return f.concat([c.reshape([c.shape[0], 1]) for c in places_of(n, x)], axis=1)


@aten_op("aten.nonzero_static.default")
def nonzero_static(n: Node, x: Value, size: Expr | int, fill: int) -> Value:
    """The first `size` of the coordinates, filled up with a number. [size, rank]"""
    if not x.rank:
        return n.scalar(fill, t.i64).broadcast(n.shape)
    flags = is_set(x).reshape([x.type.count]).cast(t.i64)
    running = n(CumulativeSumOp, flags, axis=0, exclusive=False, reverse=False)
    ranks = n.range(n.shape[0])
    there = ranks < f.reduce_sum(flags, axes=[0])
    places = n(SearchSortedOp, running, ranks)
    return f.concat([f.where(there, c, fill).reshape([n.shape[0], 1])
                     for c in coordinates(n, places, x.shape)], axis=1)


@aten_op("aten.masked_select.default")
def masked_select(n: Node, x: Value, mask: Value) -> Value:
    shape = broadcast_shapes([x.shape, mask.shape])
    count = product(shape)
    places = chosen_places(n, mask.cast(t.i1).broadcast(shape).reshape([count]))
    return f.gather(x.broadcast(shape).reshape([count]), places, axis=0)


@aten_op("aten.masked_scatter.default")
def masked_scatter(n: Node, x: Value, mask: Value, source: Value) -> Value:
    """x with the k-th place where the mask is true replaced by element k of the source.

    A mask with more places than the source has elements is an error in a run.
    """
    shape = broadcast_shapes([x.shape, mask.shape])
    flags = mask.cast(t.i1).broadcast(shape).reshape([product(shape)])
    if source.type.count.constant == 0:
        return x.broadcast(shape)
    running = n(CumulativeSumOp, flags.cast(t.i64), axis=0, exclusive=False, reverse=False)
    places = f.where(flags, running - 1, 0)
    n.require(0, places, source.type.count)
    taken = f.gather(source.reshape([source.type.count]), places, axis=0)
    return f.where(flags, taken, x.broadcast(shape).reshape([product(shape)])).reshape(shape)


@aten_op("aten.repeat_interleave.Tensor")
def repeat_interleave(n: Node, repeats: Value) -> Value:
    """Each index as often as its count says."""
    ends = n(CumulativeSumOp, repeats.cast(t.i64), axis=0, exclusive=False, reverse=False)
    if n.results[0] is not None:
        count = n.shape[0]
    else:
        count = size_in(n, f.reduce_sum(repeats.cast(t.i64), axes=[0]), "count")
    return n(SearchSortedOp, ends, n.range(count)).cast(repeats.element)


@aten_op("aten.bincount.default")
def bincount(n: Node, x: Value, weights: Value | None, least: int) -> Value:
    """The number of each value, or the sum of its weights."""
    most = f.maximum(f.reduce_max(x.cast(t.i64), axes=[0]) + 1, least)
    count = size_in(n, most, "count")
    n.require(0, x, count)
    return _sums(n, x.cast(t.i64), weights, count)


def _sums(n: Node, places: Value, weights: Value | None, count: Expr) -> Value:
    element = t.i64 if weights is None else t.f32 if weights.element == t.f32 else t.f64
    added = n.scalar(1, element).broadcast(places.shape) if weights is None else (
        weights.cast(element))
    return n(ScatterElementsOp, n.scalar(0, element).broadcast([count]), places, added, axis=0,
             combiner="add")


# ---------------------------------------------------------------------- unique
@aten_op("aten._unique2.default")
def unique(n: Node, x: Value, in_order: bool, inverted: bool, counted: bool) -> list[Value]:
    """The distinct elements in order, the place of each element, and their counts."""
    size = x.type.count
    rows = x.reshape([size, 1])
    groups = groups_of(n, rows)
    inverse, counts = numbered(n, groups, size)
    first = f.gather(groups.order, groups.first, axis=0)
    found = f.gather(x.reshape([size]), first, axis=0)
    return _asked_for(n, found, inverse.reshape(x.shape), counts, inverted, counted)


def _asked_for(
    n: Node, found: Value, inverse: Value, counts: Value, inverted: bool, counted: bool
) -> list[Value]:
    """The results, of which those that are not asked for are empty."""
    none = n.scalar(0, t.i64).broadcast([0])
    return [found, inverse if inverted else none, counts if counted else none]


@aten_op("aten.unique_dim.default")
def unique_dim(
    n: Node, x: Value, axis: int, in_order: bool, inverted: bool, counted: bool
) -> list[Value]:
    """The same for the entries of an axis."""
    axis = n.axis(axis, x.rank)
    others = [k for k in range(x.rank) if k != axis]
    moved = x.transpose([axis, *others])
    size = x.shape[axis]
    groups = groups_of(n, moved.reshape([size, product(moved.shape[1:])]))
    inverse, counts = numbered(n, groups, size)
    found = f.gather(x, f.gather(groups.order, groups.first, axis=0), axis=axis)
    return _asked_for(n, found, inverse, counts, inverted, counted)


@aten_op("aten.unique_consecutive.default")
def unique_consecutive(
    n: Node, x: Value, inverted: bool, counted: bool, axis: int | None
) -> list[Value]:
    """The same, where only neighbours are compared."""
    flat = x.reshape([x.type.count]) if axis is None else x
    axis = 0 if axis is None else n.axis(axis, x.rank)
    size, others = flat.shape[axis], [k for k in range(flat.rank) if k != axis]
    places = n.range(size)
    moved = flat.transpose([axis, *others])
    rows = moved.reshape([size, product(moved.shape[1:])])
    before = f.gather(rows, f.maximum(places - 1, 0), axis=0)
    differs = f.reduce_max((~f.equal(rows, before)).cast(t.i64), axes=[1])
    starts = f.equal(places, 0) | is_set(differs)
    group = n(CumulativeSumOp, starts.cast(t.i64), axis=0, exclusive=False, reverse=False) - 1
    first = chosen_places(n, starts)
    ends = f.concat([first.part(0, 1, first.shape[0] - 1), n.of_size(size).reshape([1])], axis=0)
    own = group.reshape(x.shape) if flat is not x or not x.rank else group
    found = f.gather(flat, first, axis=axis)
    return _asked_for(n, found, own, ends - first, inverted, counted)


def by_places(n: Node, indices: Sequence[Value | None]) -> list[Value | None]:
    """Indices with the places of masks instead of the masks, one for each dim of a mask."""
    found: list[Value | None] = []
    for index in indices:
        is_mask = index is not None and index.element in (t.i1, t.ui8)
        found += places_of(n, index) if is_mask and index is not None else [index]
    return found
