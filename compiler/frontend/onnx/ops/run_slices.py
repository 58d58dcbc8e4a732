"""Slices whose bounds or steps are known only at run time.

    Slice(x, 0, %end, step -2)    ->    %first, %count = bounds of x's dim
                                        strata.size _first, _count = ...
                                        strata.assume 2*_count <= _first + 2
                                        graph.slice from _first, _count entries

A step that is known only at run time makes the slice a gather of the entries first + k*step.
Bounds follow the rules of ONNX and onnxruntime: a start is moved to the nearest entry of the dim
(with a positive step, to the end of the dim at most), and an end to at most one before the dim.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontend import formulas as f
from compiler.frontend.elements import Element
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.run_sizes import Elements, clamp
from compiler.frontend.slices import FARTHEST
from compiler.frontend.values import Value
from dialects.symbolic.expr import Expr, minimum


def bounds_at_run(
    n: Node, size: Expr, start: Expr | Element, end: Expr | Element, step: int
) -> tuple[Expr, Expr]:
    """First element and count of `start:end:step` of a dim, by onnxruntime's rules."""
    start, end = map(_within_reach, (start, end))
    key = (size, start, end, step)
    if key not in n.build.frame.slices:
        values = n.build.element(start), n.build.element(end)
        first, count = _bounds(n, size, *values, step < 0, abs(step))
        bounds = n.known_sizes(first, "start")[0], n.known_sizes(count, "count")[0]
        _assume_inside(n, size, *bounds, step)
        n.build.frame.slices[key] = bounds
    return n.build.frame.slices[key]


def _within_reach(position: Expr | Element) -> Expr | Element:
    """A known position, no farther from 0 than FARTHEST, so that sums with sizes fit 64 bits."""
    known = position.constant if isinstance(position, Expr) else None
    return position if known is None else Expr.of(max(-FARTHEST, min(known, FARTHEST)))


def _assume_inside(n: Node, size: Expr, first: Expr, count: Expr, step: int) -> None:
    """State that the entries of a descending slice are inside its dim, which proofs rely on.

    It holds by the computation of the bounds. An empty slice needs no entry.
    """
    if step < 0:
        n.build.assume(first + minimum(count, 1), "<=", size)
        n.build.assume(count * -step, "<=", first - step)


def _bounds(
    n: Node, size: Expr, start: Value, end: Value, down: bool | Value, stride: int | Value
) -> tuple[Value, Value]:
    """First element and count; `down` says whether the step, of magnitude `stride`, is negative."""
    extent, zero = n.of_size(size), n.scalar(0, n.of_size(size))
    highest = _choice(down, n.of_size(size - 1), extent)
    first, stop = (f.minimum(_from_front(v, extent), highest) for v in (start, end))
    first, stop = f.maximum(first, zero), f.maximum(stop, _choice(down, zero - 1, zero))
    length = clamp(_choice(down, first - stop, stop - first), zero, extent)
    if isinstance(stride, int) and stride == 1:
        return first, length
    return first, (length + stride - 1) / stride


def _choice(down: bool | Value, descending: Value, ascending: Value) -> Value:
    if isinstance(down, bool):
        return descending if down else ascending
    return f.where(down, descending, ascending)


def _from_front(position: Value, extent: Value) -> Value:
    is_negative = position < 0
    return f.where(is_negative, position + extent, position)


def slice_by_steps(n: Node, x: Value, axis: int, start: Value, end: Value, step: Value) -> Value:
    """A slice along one axis whose step is known only at run time; a step of 0 is an error."""
    taken = clamp(step, n.scalar(-FARTHEST, step), n.scalar(FARTHEST, step))
    n.require(1, abs(taken), FARTHEST + 1)
    first, count = _bounds(n, x.shape[axis], start, end, taken < 0, abs(taken))
    places = first + n.range(n.known_sizes(count, "count")[0]) * taken
    return f.gather(x, places, axis)


def slice_along(n: Node, x: Value, axes: Elements, *bounds: Elements) -> Value:
    """A slice along axes that are known only at run time; bounds: starts, ends and steps.

    Every axis is sliced, those that are not among the given ones from end to end.
    """
    which = [n.build.element(a) for a in axes]
    for axis in which:
        n.require(-x.rank, axis, x.rank)
    for dim in range(x.rank):
        whole = (n.scalar(k, which[0]) for k in (0, FARTHEST, 1))
        chosen = [_of_axis(x.rank, dim, which, [n.build.element(v) for v in values], default)
                  for values, default in zip(bounds, whole, strict=True)]
        x = slice_by_steps(n, x, dim, *chosen)
    return x


def _of_axis(
    rank: int, dim: int, axes: Sequence[Value], values: Sequence[Value], default: Value
) -> Value:
    """The value whose axis is the dim, or the default if no axis is."""
    for axis, value in zip(axes, values, strict=True):
        default = f.where(f.equal(axis, dim) | f.equal(axis, dim - rank), value, default)
    return default
