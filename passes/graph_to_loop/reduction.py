"""Reductions and pools, each as one nest with a combiner."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from xdsl.dialects import arith
from xdsl.ir import Attribute, SSAValue

from dialects.graph.base import Build, GraphOp, flag_of, ints_of
from dialects.graph.pooling import AvgPoolOp, MaxPoolIndicesOp, MaxPoolOp
from dialects.graph.reduce import ReduceMaxOp, ReduceMinOp, ReduceOp, ReduceProdOp, ReduceSumOp
from dialects.graph.window import Window
from dialects.semantics.numerics import highest, lowest
from dialects.strata import types as t
from dialects.strata.types import TensorType, tensor
from dialects.symbolic.expr import Expr, maximum, minimum
from dialects.symbolic.size_products import product
from passes.graph_to_loop.nests import (
    Domain,
    Read,
    copy,
    make_nest,
    pointwise,
    same,
    type_of,
)
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Number, Scalar
from passes.rewriting import Rewriter

_COMBINERS: dict[type[GraphOp], str] = {
    ReduceSumOp: "add", ReduceProdOp: "mul", ReduceMaxOp: "max", ReduceMinOp: "min",
}


@lowers(ReduceSumOp, ReduceProdOp, ReduceMaxOp, ReduceMinOp)
def reduce(op: ReduceOp, at: Rewriter) -> SSAValue:
    x, result = type_of(op.operands[0]), type_of(op.results[0])
    axes, keep = ints_of(op.properties, "axes"), flag_of(op.properties, "keepdims")
    if not axes:
        return pointwise(at, op.operands, result, same)
    domain = Domain()
    kept = iter(domain.parallel(*result.shape))
    index: dict[int, Expr] = {}
    for dim in range(x.rank):
        if keep or dim not in axes:
            index[dim] = next(kept)
    for dim in axes:
        [index[dim]] = domain.reduce(x.shape[dim])
    read = Read(op.operands[0], [index[dim] for dim in range(x.rank)])
    return combine(at, domain, read, result, _COMBINERS[type(op)])


def combine(
    at: Build, domain: Domain, read: Read, result: TensorType, combiner: str
) -> SSAValue:
    """Combine the elements read over the reduce axes, in an element type that holds them exactly.

    f16 and bf16 are held in f32, and unsigned extrema in signed integers with the sign bit flipped;
    a second nest converts them back. Extrema of truth values are `or` and `and`.
    """
    element = result.element
    if element == t.i1:
        return make_nest(at, domain, [read], result, copy,
                         combiner={"max": "or", "min": "and"}[combiner])
    held = held_element(element, combiner)
    total = make_nest(at, domain, [read], tensor(held, result.shape),
                      lambda body, read: recoded(read[0], held), combiner=combiner)
    if held == element:
        return total
    back = Domain()
    read = Read(total, back.parallel(*result.shape))
    return make_nest(at, back, [read], result, lambda body, read: recoded(read[0], element))


def held_element(element: Attribute, combiner: str) -> Attribute:
    if t.is_unsigned(element) and combiner in ("max", "min"):
        return t.signless(element)
    return t.wide_element(element)


def recoded(x: Scalar, element: Attribute) -> Scalar:
    """An integer in the type of the other sign, with the order kept; a float in another width."""
    if x.element == element or x.is_float:
        return x.to(element)
    return x.flipped(element)


# ---------------------------------------------------------------------- pools
@lowers(MaxPoolOp)
def max_pool(op: MaxPoolOp, at: Rewriter) -> SSAValue:
    return _pool(op, at, _outside(type_of(op.x)), "max")


@lowers(AvgPoolOp)
def avg_pool(op: AvgPoolOp, at: Rewriter) -> SSAValue:
    """The sum of a window, divided by the number of elements that count."""
    result = type_of(op.result)
    total = _pool(op, at, 0.0, "add", tensor(t.wide_element(result.element), result.shape))
    domain = Domain()
    point = domain.parallel(*result.shape)
    count = product(_counts(op, point[2:]))

    def mean(body: Body, read: Sequence[Scalar]) -> Scalar:
        [x], number = read, count.constant
        return x / (body.index(count, x.element) if number is None else number)

    return make_nest(at, domain, [Read(total, point)], result, mean)


@lowers(MaxPoolIndicesOp)
def max_pool_indices(op: MaxPoolIndicesOp, at: Rewriter) -> SSAValue:
    """The first position in a window whose element equals the maximum, or is NaN, and from it the
    number of the element.

    Positions are small numbers, so that little is computed for each of them. Where the last NaN is
    wanted, those of NaN are counted down from -1 and turned back after that.
    """
    window = Window.of(ints_of(op.properties, "kernel"), op.properties, "C3")
    domain = Domain()
    point, taps = domain.parallel(*type_of(op.result).shape), domain.reduce(*window.kernel)
    place = [*point[:2], *_window_index(window, point[2:], taps)]
    position = _number(taps, [Expr.of(k) for k in window.kernel])
    leaves, last_nan = _leaves(op, window), flag_of(op.properties, "last_nan")
    last_nan = last_nan and t.is_float(type_of(op.x).element)
    inside = list(zip(place[2:], type_of(op.x).shape[2:], strict=True))

    def found(body: Body, read: Sequence[Scalar]) -> Scalar:
        hit = read[0].compare("eq", read[1])
        hit = hit | read[0].is_nan() if read[0].is_float else hit
        for i, size in inside if leaves else ():
            hit = hit & body.index(i).compare("ge", 0) & body.index(i - size).compare("lt", 0)
        own = body.index(position, t.i32)
        if last_nan:
            own = read[0].is_nan().where(body.index(-1 - position, t.i32), own)
        return hit.where(own, int(highest(np.dtype(np.int32))))

    reads = [Read(op.x, place, _outside(type_of(op.x)) if leaves else None), Read(op.y, point)]
    least = make_nest(at, domain, reads, tensor(t.i32, type_of(op.result).shape), found,
                      combiner="min")
    return _numbers(op, window, least, last_nan, at)


def _numbers(
    op: MaxPoolIndicesOp, window: Window, positions: SSAValue, last_nan: bool, at: Rewriter
) -> SSAValue:
    """The numbers of the elements at these positions in windows; the highest one for positions
    beyond a window, which holds no element then."""
    sizes, domain = type_of(op.x).shape, Domain()
    point = domain.parallel(*type_of(op.result).shape)
    corner = _window_index(window, point[2:], [Expr.of(0) for _ in window.kernel])
    first = _number([*point[:2], *corner], sizes)
    count = product(sizes).constant
    element = t.i32 if count is not None and count < 1 << 31 else t.i64  # few bits are fast

    def number(body: Body, read: Sequence[Scalar]) -> Scalar:
        [found] = read
        own = found.compare("lt", 0).where(-1 - found, found) if last_nan else found
        total = body.index(first, element)
        for k, (size, step) in enumerate(zip(window.kernel, window.dilations, strict=True)):
            inner = prod(window.kernel[k + 1:])
            tap = own.apply(arith.DivUIOp, inner).apply(arith.RemUIOp, size)
            total = total + tap.to(element) * body.index(product(sizes[3 + k:]) * step, element)
        within = own.compare("lt", prod(window.kernel))
        return within.where(total.to(t.i64), int(highest(np.dtype(np.int64))))

    return make_nest(at, domain, [Read(positions, point)], type_of(op.result), number)


def _number(place: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The number of an element in row-major order."""
    number = Expr.of(0)
    for index, size in zip(place, shape, strict=True):
        number = number * size + index
    return number


def _leaves(op: MaxPoolOp | AvgPoolOp | MaxPoolIndicesOp, window: Window) -> bool:
    """Whether windows may extend beyond x."""
    return any((*window.low, *window.high)) or _may_reach_over(op)


def _may_reach_over(op: MaxPoolOp | AvgPoolOp | MaxPoolIndicesOp) -> bool:
    """Whether windows may extend beyond the end of x and its pads."""
    return flag_of(op.properties, "ceil_mode") or flag_of(op.properties, "toward_zero")


def _window_index(window: Window, places: Sequence[Expr], taps: Sequence[Expr]) -> list[Expr]:
    """The index into x for a window's place and a position in the window."""
    return [p * s + k * d - low for p, s, k, d, low in zip(
        places, window.strides, taps, window.dilations, window.low, strict=True)]


def _outside(x: TensorType) -> Number:
    """The value of positions outside of x: it never is the maximum."""
    return float("-inf") if t.is_float(x.element) else int(lowest(x.dtype))


def _pool(
    op: MaxPoolOp | AvgPoolOp, at: Rewriter, outside: Number, combiner: str,
    result: TensorType | None = None,
) -> SSAValue:
    """Combine the elements of each window."""
    result = result or type_of(op.result)
    window = Window.of(ints_of(op.properties, "kernel"), op.properties, "C3")
    domain = Domain()
    point = domain.parallel(*result.shape)
    source = _window_index(window, point[2:], domain.reduce(*window.kernel))
    leaves = _leaves(op, window)
    read = Read(op.x, [*point[:2], *source], outside if leaves else None)
    return combine(at, domain, read, result, combiner)


def _counts(op: AvgPoolOp, places: Sequence[Expr]) -> list[Expr]:
    """Per spatial dim, the number of kernel positions of a window from `first` to `end`."""
    window = Window.of(ints_of(op.properties, "kernel"), op.properties, "C3")
    include = flag_of(op.properties, "count_include_pad")
    counts: list[Expr] = []
    for dim, (place, size) in enumerate(zip(places, type_of(op.x).shape[2:], strict=True)):
        low, high, kernel = window.low[dim], window.high[dim], window.kernel[dim]
        if not _may_reach_over(op) and (include or not (low or high)):
            counts.append(Expr.of(kernel))
            continue
        first, end = (Expr.of(-low), size + high) if include else (Expr.of(0), size)
        start, step = place * window.strides[dim] - low, window.dilations[dim]
        before = maximum((first - start).ceildiv(step), 0)
        inside = minimum((end - start).ceildiv(step), kernel) - before
        is_met = step == 1 and size.constant  # windows that may miss x would divide by 0
        counts.append(inside if is_met else maximum(inside, 1))
    return counts
