"""Operators that take parts of a tensor or add to its borders: Slice, Split, Pad."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.choices import choose
from compiler.frontend.elements import Element, constant_of
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.run_sizes import Elements, elements, signed_at_run
from compiler.frontend.onnx.ops.run_slices import (
    bounds_at_run,
    slice_along,
    slice_by_steps,
)
from compiler.frontend.slices import FAR, FARTHEST, at_least_zero, is_certain, slice_bounds
from compiler.frontend.values import Value
from dialects.graph.shape import PadOp, SliceOp
from dialects.strata import types as t
from dialects.strata.assumptions import Outcome
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr, Size, maximum, minimum


# ---------------------------------------------------------------------- slice
@onnx_op("Slice")
def slice_by_attributes(n: Node, x: Value) -> Value:
    starts = list(map(Expr.of, n.ints("starts")))
    ends = list(map(Expr.of, n.ints("ends")))
    axes = n.ints("axes", range(len(starts)))
    return _slice(n, x, starts, ends, axes, [Expr.of(1)] * len(starts))


@onnx_op("Slice", since=10)
def slice_(
    n: Node, x: Value, starts: Value, ends: Value, axes: Value | None = None,
    steps: Value | None = None,
) -> Value:
    counts = [v.type.count.constant for v in (starts, ends, axes, steps) if v is not None]
    length = next((c for c in counts if c is not None), None)
    starts = n.of_chosen_length(starts, 1) if length is None else n.counted(starts, length)
    first = elements(n, starts, "starts")
    count = len(first)
    last = elements(n, ends, "ends", count)
    step = [Expr.of(1)] * count if steps is None else elements(n, steps, "steps", count)
    which = list(map(Expr.of, range(count))) if axes is None else elements(n, axes, "axes", count)
    known = [a for a in map(constant_of, which) if a is not None]
    if len(known) < len(which):
        _require_same_length(first, last, which, step)
        return slice_along(n, x, which, first, last, step)
    return _slice(n, x, first, last, known, step)


def _slice(
    n: Node, x: Value, starts: Elements, ends: Elements, axes: Sequence[int], steps: Elements
) -> Value:
    _require_same_length(starts, ends, axes, steps)
    first, sizes, step = [Expr.of(0)] * x.rank, list(x.shape), [1] * x.rank
    at_run: list[tuple[int, Expr | Element, Expr | Element, Expr | Element]] = []
    for start, end, given, by in zip(starts, ends, axes, steps, strict=True):
        axis, stride = n.axis(given, x.rank), constant_of(by)
        if stride == 0:
            raise Fault(f"the step of axis {axis} is 0")
        if stride is None:
            at_run.append((axis, start, end, by))
            continue
        first[axis], sizes[axis], step[axis] = _bounds(n, x.shape[axis], start, end, stride)
    x = take(n, x, first, sizes, step)
    for axis, *bounds in at_run:
        x = slice_by_steps(n, x, axis, *map(n.build.element, bounds))
    return x


def _bounds(
    n: Node, size: Expr, start: Expr | Element, end: Expr | Element, step: int
) -> tuple[Expr, Expr, int]:
    """First element, count and step. A step beyond the dim takes one entry at most.

    A dim with an open size is assumed to be no longer than a step beyond 32 bits.
    """
    if abs(step) >= FAR and (size.constant or 0) <= abs(step):
        if abs(step) < FARTHEST:
            n.build.assume(size, "<=", abs(step))
        first, count, step = _bounds(n, size, start, end, 1 if step > 0 else -1)
        return first, minimum(count, 1), step
    if isinstance(start, Expr) and isinstance(end, Expr):
        return *slice_bounds(size, start, end, step, n.build.frame.limits), step
    return *bounds_at_run(n, size, start, end, step), step


def _require_same_length(*lists: Sequence[object]) -> None:
    if len(set(map(len, lists))) > 1:
        raise Fault("starts, ends, axes and steps differ in length")


def take(
    n: Node, x: Value, starts: Sequence[Expr], sizes: Sequence[Expr], steps: Sequence[int]
) -> Value:
    """A slice of x; x itself if the slice is all of it."""
    if x.shape == tuple(sizes) and all(s == 1 for s in steps):
        return x
    return n(SliceOp, x, starts=list(starts), sizes=list(sizes), steps=list(steps))


def entry(x: Value, position: Size) -> Value:
    """One entry of the first dim, without that dim."""
    return x.part(0, position, 1).reshape(x.shape[1:])


def entry_of_turn(n: Node, x: Value, position: Size) -> Value:
    """The entry of the first dim that an iteration of a loop over it reads.

    If the size of the dim is 0, there are no iterations, and zeros have the type of the entry.
    """
    if x.shape[0].constant == 0:
        return n.scalar(0, x).broadcast(x.shape[1:])
    return entry(x, position)


def reversed_(n: Node, x: Value) -> Value:
    """x with its first dim reversed."""
    first = [x.shape[0] - 1, *[Expr.of(0)] * (x.rank - 1)]
    return take(n, x, first, x.shape, [-1, *[1] * (x.rank - 1)])


# ---------------------------------------------------------------------- split
@onnx_op("Split")
def split(n: Node, x: Value, sizes: Value | None = None) -> list[Value]:
    axis = n.axis(n.integer("axis"), x.rank)
    if sizes is not None:
        parts = n.known_sizes(sizes, "sizes", len(n.outputs))
    elif n.has("split"):
        parts = list(map(Expr.of, n.ints("split")))
    else:
        parts = _equal_parts(x.shape[axis], n.integer("num_outputs", len(n.outputs)))
    if len(parts) != len(n.outputs):
        raise Fault(f"{len(parts)} sizes are given for {len(n.outputs)} outputs")
    if (sum(parts, Expr.of(0)) - x.shape[axis]).constant not in (0, None):
        raise Fault(f"the sizes {[str(p) for p in parts]} do not add up to {x.shape[axis]}")
    if sizes is not None:
        n.build.assume(sum(parts, Expr.of(0)), "==", x.shape[axis])
    start, results = Expr.of(0), list[Value]()
    for part in parts:
        results.append(x.part(axis, start, part))
        start = start + part
    return results


def _equal_parts(size: Expr, count: int) -> list[Expr]:
    """Parts of equal size. The last one is smaller if the count does not divide the size."""
    if count < 1:
        raise Fault(f"num_outputs is {count}; it must be at least 1")
    part = size.ceildiv(count)
    return [part] * (count - 1) + [size - part * (count - 1)]


# ---------------------------------------------------------------------- pad
@onnx_op("Pad")
def pad_by_attributes(n: Node, x: Value) -> Value:
    value = n.scalar(n.real("value"), x)
    pads = n.ints("pads" if n.version > 1 else "paddings")
    return _pad(n, x, list(map(Expr.of, pads)), range(x.rank), value)


@onnx_op("Pad", since=11)
def pad(
    n: Node, x: Value, pads: Value, value: Value | None = None, axes: Value | None = None
) -> Value:
    fill, which = n.scalar(0, x) if value is None else value.reshape(()), list(range(x.rank))
    if axes is not None:
        pairs = pads.type.count.constant
        axes = n.of_chosen_length(axes, 1) if pairs is None else n.counted(axes, pairs // 2)
        known = [constant_of(a) for a in elements(n, axes, "axes")]
        which = [a for a in known if a is not None]
        if len(which) < len(known):
            which, pads = list(range(x.rank)), _of_all_axes(n, x, pads, axes)
    return _pad(n, x, signed_at_run(n, pads, "pads", 2 * len(which)), which, fill)


def _of_all_axes(n: Node, x: Value, pads: Value, axes: Value) -> Value:
    """The pads [2 * rank] of all axes, if only a run knows which axes are meant."""
    n.require_index(axes, x.rank)
    [count] = axes.shape
    rows, own = axes.cast(t.i64).reshape([count, 1]), n.range(x.rank)
    meant = f.equal(rows, own) | f.equal(rows, own - x.rank)
    spread = pads.cast(t.i64).reshape([2, count, 1])
    return f.reduce_sum(f.where(meant, spread, 0), [1]).reshape([2 * x.rank])


def _pad(n: Node, x: Value, pads: Sequence[Expr], axes: Sequence[int], fill: Value) -> Value:
    if len(pads) != 2 * len(axes):
        raise Fault(f"{len(pads)} pads are given for {len(axes)} axes; there must be two each")
    low, high = [Expr.of(0)] * x.rank, [Expr.of(0)] * x.rank
    for k, axis in enumerate(axes):
        low[n.axis(axis, x.rank)] = pads[k]
        high[n.axis(axis, x.rank)] = pads[k + len(axes)]
    x = _cut(n, x, low, high)
    low, high = ([at_least_zero(p) for p in side] for side in (low, high))
    x = _repeat_often(n, x, low, high)
    if all(p == Expr.of(0) for p in (*low, *high)):
        return x
    return _grow(n, x, low, high, fill)


def _repeat_often(n: Node, x: Value, low: list[Expr], high: list[Expr]) -> Value:
    """Do the pads that reflect or wrap elements of an axis more than once, and set them to 0.

    They take elements at indices. Whether an open size needs that is a choice; pads must be known.
    """
    mode = n.text("mode", "constant")
    for axis, size in enumerate(x.shape):
        known, pads = size.constant, (low[axis].constant, high[axis].constant)
        if mode not in ("reflect", "wrap") or known == 0 or None in pads:
            continue
        before, after = (p or 0 for p in pads)
        if _is_often(n, size, int(mode == "reflect"), max(before, after)):
            places = _places(n, size, before, after, mode) if known is None else n.constant(
                np.pad(np.arange(known), (before, after), mode=mode))
            x, low[axis], high[axis] = f.gather(x, places, axis), Expr.of(0), Expr.of(0)
    return x


def _is_often(n: Node, size: Expr, kept: int, pad: int) -> bool:
    """Whether a pad takes elements more than once: all but `kept` of an axis can be taken.

    An axis without elements has none to take, however often.
    """
    most = size - kept
    if most.constant is not None:
        return pad > most.constant
    return pad > 1 - kept and choose(n.build, [
        Outcome("once", Expr.of(pad), "<=", most), Outcome("often", most, "<=", Expr.of(pad - 1)),
    ]) != "once"


def _places(n: Node, size: Expr, before: int, after: int, mode: str) -> Value:
    """The places [before + size + after] of the elements that a pad takes of a run-time size."""
    n.build.assume(1, "<=", size)
    place = n.range(size + before + after, t.i64, start=Expr.of(-before))
    if mode == "wrap":
        return place % n.of_size(size)
    turn = n.of_size(maximum(size * 2 - 2, 1))  # there and back; a single element reflects itself
    there = place % turn
    return f.minimum(there, turn - there)


def _cut(n: Node, x: Value, low: Sequence[Expr], high: Sequence[Expr]) -> Value:
    """The rest of x after cropping by negative pads."""
    starts, ends = ([Expr.of(0) if is_certain(p) else maximum(-p, 0) for p in side]
                    for side in (low, high))
    sizes = [s - a - b for s, a, b in zip(x.shape, starts, ends, strict=True)]
    return take(n, x, starts, sizes, [1] * x.rank)


def _grow(
    n: Node, x: Value, low: Sequence[Expr], high: Sequence[Expr], fill: Value
) -> Value:
    mode = n.text("mode", "constant")
    if mode != "constant" or fill.array is not None:
        value = _number(fill.array) if mode == "constant" and fill.array is not None else None
        return n(PadOp, x, low=list(low), high=list(high), mode=mode, value=value)
    for axis in range(x.rank):
        x = _grow_axis(x, axis, low[axis], high[axis], fill)
    return x


def _number(array: Array) -> float:
    """The only element as a Python number. An integer stays an integer, and exact."""
    return array.item() if array.dtype.kind in "biu" else float(array)


def _grow_axis(x: Value, axis: int, low: Expr, high: Expr, fill: Value) -> Value:
    """Pad one axis with a value that is known only at run time."""
    def border(size: Expr) -> list[Value]:
        shape = [size if k == axis else s for k, s in enumerate(x.shape)]
        return [] if size.constant == 0 else [fill.broadcast(shape)]

    parts = [*border(low), x, *border(high)]
    return f.concat(parts, axis=axis) if len(parts) > 1 else x
