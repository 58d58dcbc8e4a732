"""Shapes, slices and pads that are only known at run time: computed there, then bound as sizes.

    Reshape(x, %shape)    ->    %resolved = 0 and -1 replaced;  strata.size _a, _b = %resolved
                                strata.assume _a*_b == elements of x;  graph.reshape to [_a, _b]

Elements that are known all the same stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.frontend.elements import Element
from compiler.frontend.faults import Fault, UnknownValue
from compiler.frontend.onnx.node import Node
from compiler.frontend.values import Value
from dialects.graph.constant import RangeOp
from dialects.graph.elementwise import AddOp, DivOp, MaxOp, MinOp, MulOp, SubOp
from dialects.graph.gather import GatherOp
from dialects.graph.logic import AndOp, EqualOp, GreaterOp, LessOp, WhereOp
from dialects.graph.reduce import ReduceProdOp
from dialects.graph.unary import CeilOp, NegOp, NotOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, maximum
from dialects.symbolic.size_products import product

Elements = Sequence[Expr | Element]


def elements(n: Node, value: Value, what: str, count: int | None = None) -> Elements:
    """The elements of a list of integers. Where only a run knows how many, `count` is assumed.

    Raises Fault where nothing tells how many there are.
    """
    if t.is_float(value.element):
        raise Fault(f"its {what} are floats")
    if value.type.count.constant is None:
        if value.rank != 1 or count is None:
            raise UnknownValue(value, f"its {what} are known only at run time, even how many")
        n.build.assume(value.shape[0], "==", count)
        value = n.reshape(value, [count])
    return n.build.elements(value)


def clamp(n: Node, x: Value, low: Value, high: Value) -> Value:
    return n(MinOp, n(MaxOp, x, low), high)


# ---------------------------------------------------------------------- reshape
def reshape_at_run(n: Node, x: Value, shape: Value) -> list[Expr]:
    """The new sizes, where some of `shape` are known only at run time."""
    parts = elements(n, shape, "new sizes")
    wanted = [p if isinstance(p, Expr) else None for p in parts]
    open_ = [k for k, size in enumerate(wanted) if size is None]
    places = n.constant(np.array(open_))
    chosen = n(GatherOp, _resolved(n, x, n.cast(shape, t.i64)), places, axis=0)
    for k, size in zip(open_, n.known_sizes(chosen, "size"), strict=True):
        wanted[k] = size
    sizes = [_kept(n, x, k, s) for k, s in enumerate(wanted) if s is not None]
    rest = [k for k, size in enumerate(sizes) if size.constant == -1]
    if rest:
        others = product(s for s in sizes if s.constant != -1)
        sizes[rest[0]] = x.type.count // maximum(others, 1)
    n.build.assume(x.type.count, "==", product(sizes))
    return sizes


def _kept(n: Node, x: Value, dim: int, size: Expr) -> Expr:
    """A 0 denotes the existing size."""
    copies = size.constant == 0 and not n.flag("allowzero") and dim < x.rank
    return x.shape[dim] if copies else size


def _resolved(n: Node, x: Value, wanted: Value) -> Value:
    """The new sizes with 0 (the existing size) and -1 (the rest) resolved."""
    zero, one, rest = (n.scalar(k, wanted) for k in (0, 1, -1))
    if not n.flag("allowzero"):
        count = wanted.type.count.constant or 0
        old = n.of_sizes([*x.shape, *[Expr.of(0)] * count][:count])
        wanted = n(WhereOp, n(EqualOp, wanted, zero), old, wanted)
    is_open = n(EqualOp, wanted, rest)
    others = n(ReduceProdOp, n(WhereOp, is_open, one, wanted), axes=[0], keepdims=True)
    left = n(DivOp, n.of_sizes([x.type.count]), n(MaxOp, others, one))
    return n(WhereOp, is_open, left, wanted)


# ---------------------------------------------------------------------- slice
def bounds_at_run(
    n: Node, size: Expr, start: Expr | Element, end: Expr | Element, step: int
) -> tuple[Expr, Expr]:
    """First element and count of `start:end:step` of a dim, in onnxruntime's way."""
    key = (size, start, end, step)
    if key not in n.build.frame.slices:
        first, count = _bounds(n, size, n.build.element(start), n.build.element(end), step)
        n.build.frame.slices[key] = (n.known_sizes(first, "start")[0],
                                     n.known_sizes(count, "count")[0])
    return n.build.frame.slices[key]


def _bounds(n: Node, size: Expr, start: Value, end: Value, step: int) -> tuple[Value, Value]:
    extent = n.of_size(size)
    zero, last = n.scalar(0, extent), n.of_size(size - 1)
    first, behind = (_from_front(n, v, extent) for v in (start, end))
    if step > 0:
        first, behind = (clamp(n, v, zero, extent) for v in (first, behind))
        length = n(SubOp, behind, first)
    else:
        first = n(MaxOp, clamp(n, first, zero, last), zero)
        behind = clamp(n, behind, n.scalar(-1, extent), last)
        length = n(SubOp, first, behind)
    length, stride = n(MaxOp, length, zero), abs(step)
    if stride == 1:
        return first, length
    rounded = n(AddOp, length, n.scalar(stride - 1, extent))
    return first, n(DivOp, rounded, n.scalar(stride, extent))


def _from_front(n: Node, position: Value, extent: Value) -> Value:
    behind = n(LessOp, position, n.scalar(0, position))
    return n(WhereOp, behind, n(AddOp, position, extent), position)


# ---------------------------------------------------------------------- pad
def signed_at_run(n: Node, value: Value, what: str) -> list[Expr]:
    """Integers that may be negative: each is the difference of two sizes, one of which is 0."""
    found: list[Expr] = []
    for part in elements(n, value, what):
        if isinstance(part, Expr):
            found.append(part)
            continue
        number = n.build.element(part)
        zero = n.scalar(0, number)
        [above], [below] = (n.known_sizes(n(MaxOp, v, zero), what)
                            for v in (number, n(NegOp, number)))
        found.append(above - below)
    return found


# ---------------------------------------------------------------------- expand
def expand_at_run(n: Node, x: Value, shape: Value) -> Value:
    """x broadcast to sizes; whether they, or those of x, are 1 is only known at run time."""
    wanted = elements(n, shape, "sizes")
    rank = max(x.rank, len(wanted))
    x = n.reshape(x, [*[1] * (rank - x.rank), *x.shape])
    one = Expr.of(1)
    for axis, part in enumerate([*[one] * (rank - len(wanted)), *wanted]):
        x = _expand_axis(n, x, axis, part)
    return x


def _expand_axis(n: Node, x: Value, axis: int, wanted: Expr | Element) -> Value:
    """Places beyond the last of a dim of size 1 are that one."""
    size = x.shape[axis]
    if wanted in (Expr.of(1), size):
        return x
    target, extent = n.build.element(wanted), n.of_size(size)
    is_one = n(EqualOp, target, n.scalar(1, target))
    count = n.known_sizes(n(WhereOp, is_one, extent, target), "size")[0]
    places = n(RangeOp, start=0, step=1, count=count, to=t.i64)
    last = n.of_size(size - 1)
    n.build.assume((size - 1) * (size - count), "==", 0)  # it is 1, or what is wanted
    return n(GatherOp, x, n(MinOp, places, last), axis=axis)


# ---------------------------------------------------------------------- range
def range_at_run(n: Node, start: Value, limit: Value, delta: Value) -> Value:
    """start + k*delta for all k for which it stays before the limit."""
    first, end, step = (n.reshape(v, ()) for v in (start, limit, delta))
    count = (_float_count if t.is_float(start.element) else _integer_count)(n, first, end, step)
    [size] = n.known_sizes(count, "count")
    steps = n(RangeOp, start=0, step=1, count=size, to=start.element)
    return n(AddOp, first, n(MulOp, steps, step))


def _float_count(n: Node, first: Value, end: Value, step: Value) -> Value:
    span, stride = (n.cast(v, t.f64) for v in (n(SubOp, end, first), step))
    count = n(CeilOp, n(DivOp, span, stride))
    return n.cast(n(MaxOp, count, n.scalar(0, count)), t.i64)


def _integer_count(n: Node, first: Value, end: Value, step: Value) -> Value:
    """The quotient rounded up, at least 0."""
    span = n(SubOp, n.cast(end, t.i64), n.cast(first, t.i64))
    stride = n.cast(step, t.i64)
    zero = n.scalar(0, span)
    whole = n(DivOp, span, stride)
    rest = n(SubOp, span, n(MulOp, whole, stride))
    same_sign = n(EqualOp, n(GreaterOp, rest, zero), n(GreaterOp, stride, zero))
    more = n(AndOp, n(NotOp, n(EqualOp, rest, zero)), same_sign)
    return n(MaxOp, n(AddOp, whole, n.cast(more, t.i64)), zero)
