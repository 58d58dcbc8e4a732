"""Shapes and pads that are known only at run time.

    Reshape(x, %shape)    ->    %resolved = 0 and -1 replaced;  strata.size _a, _b = %resolved
                                strata.assume _a*_b == elements of x;  graph.reshape to [_a, _b]

They are computed as tensors, whose elements are bound as sizes. Elements that are known at compile
time stay constants or size expressions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.choices import choose, equal
from compiler.frontend.elements import Element
from compiler.frontend.faults import Fault, UnknownValue
from compiler.frontend.onnx.node import Node
from compiler.frontend.values import Value
from dialects.graph.inference import certain_sign
from dialects.graph.reduce import ReduceProdOp
from dialects.strata import types as t
from dialects.strata.assumptions import Outcome
from dialects.symbolic.expr import Expr, maximum
from dialects.symbolic.size_products import product

Elements = Sequence[Expr | Element]


def elements(n: Node, value: Value, what: str, count: int | None = None) -> Elements:
    """The elements of a list of integers.

    If their number is known only at run time, it is assumed to be `count`. Raises Fault without a
    `count`.
    """
    if t.is_float(value.element):
        raise Fault(f"its {what} are floats")
    value = n.counted(value, count)
    if value.type.count.constant is None:
        raise UnknownValue(value, f"its {what} are known only at run time, and so is their number")
    return n.build.elements(value)


def element(n: Node, value: Value, what: str) -> Expr | Element:
    """The only element of a list of integers, or a single integer. Raises Fault for several."""
    found = elements(n, value, what, 1)
    if len(found) != 1:
        raise Fault(f"its {what} must be one number, not {value.type.short}")
    return found[0]


def clamp(x: Value, low: Value, high: Value) -> Value:
    """max(min(x, high), low) for low <= high."""
    return f.minimum(f.maximum(x, low), high)


# ---------------------------------------------------------------------- reshape
def reshape_at_run(n: Node, x: Value, shape: Value) -> list[Expr]:
    """The new sizes, if some elements of `shape` are known only at run time."""
    parts = elements(n, shape, "new sizes")
    wanted = [p if isinstance(p, Expr) else None for p in parts]
    open_ = [k for k, size in enumerate(wanted) if size is None]
    places = n.constant(np.array(open_, np.int64))
    chosen = f.gather(_resolved(n, x, shape.cast(t.i64)), places, axis=0)
    for k, size in zip(open_, n.known_sizes(chosen, "size"), strict=True):
        wanted[k] = size
    sizes = copied(n, x, [s for s in wanted if s is not None])
    rest = [k for k, size in enumerate(sizes) if size.constant == -1]
    if rest:
        others = product(s for s in sizes if s.constant != -1)
        sizes[rest[0]] = x.type.count // maximum(others, 1)
    n.build.assume(x.type.count, "==", product(sizes))
    return sizes


def copied(n: Node, x: Value, wanted: Sequence[Expr]) -> list[Expr]:
    """The new sizes, with existing ones in the places of those that are 0, unless `allowzero`."""
    rests = any(s.constant == -1 for s in wanted)
    return list(wanted) if n.flag("allowzero") else [
        _existing(x, k) if s.constant == 0 else _copied_or(n, x, k, s, rests)
        for k, s in enumerate(wanted)]


def _copied_or(n: Node, x: Value, dim: int, size: Expr, rests: bool) -> Expr:
    """The new size of a dim, or its existing size where that is 0.

    Whether an open size is 0 is a choice, except where the result is the same: the existing size
    is 0, too, or x has no elements, and no size -1 `rests` on the others.
    """
    if size.constant is not None or dim >= x.rank:
        return size
    own = x.shape[dim]
    weight = own if rests else x.type.count
    if size == own or certain_sign(size) == 1 or (weight % size).constant == 0:
        return size
    given = (Expr.of(1), size) if certain_sign(weight) == 1 else (weight, weight * size)
    chosen = choose(n.build, [Outcome("given", given[0], "<=", given[1]), equal(size, 0, "copied")])
    if chosen:
        return size if chosen == "given" else own
    number = n.of_size(size)
    [either] = n.known_sizes(f.where(f.equal(number, 0), n.of_size(own), number), "size")
    return either


def _existing(x: Value, dim: int) -> Expr:
    if dim >= x.rank:
        raise Fault(f"size 0 stands for dim {dim} of the input, which has only {x.rank} dims")
    return x.shape[dim]


def _resolved(n: Node, x: Value, wanted: Value) -> Value:
    """The new sizes, with 0 replaced by the existing size, and -1 by what remains."""
    zero, one, rest = (n.scalar(k, wanted) for k in (0, 1, -1))
    if not n.flag("allowzero"):
        count = wanted.type.count.constant or 0
        old = n.of_sizes([*x.shape, *[Expr.of(0)] * count][:count])
        wanted = f.where(f.equal(wanted, zero), old, wanted)
    is_open = f.equal(wanted, rest)
    others = n(ReduceProdOp, f.where(is_open, one, wanted), axes=[0], keepdims=True)
    left = n.of_sizes([x.type.count]) / f.maximum(others, one)
    return f.where(is_open, left, wanted)


# ---------------------------------------------------------------------- pad
def signed_at_run(n: Node, value: Value, what: str, count: int) -> list[Expr]:
    """Integers that may be negative, of which the operator requires `count`.

    One that is known only at run time is the difference of two sizes, one of which is 0.
    """
    found: list[Expr] = []
    for part in elements(n, value, what, count):
        if isinstance(part, Expr):
            found.append(part)
            continue
        number = n.build.element(part)
        zero = n.scalar(0, number)
        [above], [below] = (n.known_sizes(f.maximum(v, zero), what) for v in (number, -number))
        found.append(above - below)
    return found


# ---------------------------------------------------------------------- expand
def expand_at_run(n: Node, x: Value, shape: Value) -> Value:
    """x broadcast to a shape, if it is known only at run time which sizes of either are 1."""
    wanted = elements(n, shape, "sizes")
    rank = max(x.rank, len(wanted))
    x = x.reshape([*[1] * (rank - x.rank), *x.shape])
    one = Expr.of(1)
    for axis, part in enumerate([*[one] * (rank - len(wanted)), *wanted]):
        x = _expand_axis(n, x, axis, part)
    return x


def _expand_axis(n: Node, x: Value, axis: int, wanted: Expr | Element) -> Value:
    """Expand one axis. Indices beyond its end read its last entry, so a single entry is repeated.
    """
    size = x.shape[axis]
    if wanted in (Expr.of(1), size):
        return x
    target, extent = n.build.element(wanted), n.of_size(size)
    is_one = f.equal(target, 1)
    count = n.known_sizes(f.where(is_one, extent, target), "size")[0]
    places = n.range(count)
    last = n.of_size(size - 1)
    n.build.assume((size - 1) * (size - count), "==", 0)  # the size is 1, or the wanted one
    return f.gather(x, f.minimum(places, last), axis=axis)


# ---------------------------------------------------------------------- range
def range_at_run(n: Node, start: Value, limit: Value, delta: Value) -> Value:
    """start + k*delta for k = 0, 1, ..., as long as that is before the limit."""
    first, end, step = (v.reshape(()) for v in (start, limit, delta))
    count = (_float_count if t.is_float(start.element) else _integer_count)(n, first, end, step)
    [size] = n.known_sizes(count, "count")
    steps = n.range(size, start.element)
    return first + steps * step


def _float_count(n: Node, first: Value, end: Value, step: Value) -> Value:
    span, stride = (v.cast(t.f64) for v in (end - first, step))
    count = f.ceil(span / stride)
    return f.maximum(count, 0).cast(t.i64)


def _integer_count(n: Node, first: Value, end: Value, step: Value) -> Value:
    """The quotient rounded up, at least 0."""
    span = end.cast(t.i64) - first.cast(t.i64)
    stride = step.cast(t.i64)
    zero = n.scalar(0, span)
    whole = span / stride
    rest = span - whole * stride
    same_sign = f.equal(rest > zero, stride > zero)
    more = ~f.equal(rest, zero) & same_sign
    return f.maximum(whole + more.cast(t.i64), zero)
