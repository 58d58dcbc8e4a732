"""Operations that move elements: views, and nests that copy."""

from __future__ import annotations

from xdsl.ir import SSAValue

from dialects.graph.base import int_of, ints_of, number_of
from dialects.graph.shape import (
    BroadcastOp,
    ConcatOp,
    FramesOp,
    PadOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from dialects.loop import EmptyOp, ViewOp
from dialects.strata import types as t
from dialects.strata.sizes import AssumeOp
from dialects.symbolic.expr import Expr, maximum, minimum
from dialects.symbolic.ranges import divisors
from passes.graph_to_loop.nests import (
    Domain,
    Read,
    assume_at_most,
    assume_equal,
    copy,
    make_nest,
    pointwise,
    same,
    type_of,
)
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Number
from passes.rewriting import Rewriter


@lowers(ReshapeOp)
def reshape(op: ReshapeOp, at: Rewriter) -> SSAValue:
    for divisor in dict.fromkeys(d for s in op.shape.data for d in divisors(s)):
        at.insert(AssumeOp.of(1, "<=", divisor))
    assume_equal(at, type_of(op.x).count, type_of(op.result).count)
    return at.insert(ViewOp.of(op.x, op.shape.data)).results[0]


@lowers(BroadcastOp)
def broadcast(op: BroadcastOp, at: Rewriter) -> SSAValue:
    x, result = type_of(op.x), type_of(op.result)
    for own, size in zip(x.shape, result.shape[result.rank - x.rank:], strict=True):
        if own.constant != 1:
            assume_equal(at, own, size)
    return pointwise(at, [op.x], result, same)


@lowers(TransposeOp)
def transpose(op: TransposeOp, at: Rewriter) -> SSAValue:
    domain = Domain()
    point = domain.parallel(*type_of(op.result).shape)
    axis_of = dict(zip(ints_of(op.properties, "perm"), point, strict=True))
    read = Read(op.x, [axis_of[dim] for dim in range(len(point))])
    return make_nest(at, domain, [read], type_of(op.result), copy)


@lowers(SliceOp)
def slice_(op: SliceOp, at: Rewriter) -> SSAValue:
    domain = Domain()
    point = domain.parallel(*type_of(op.result).shape)
    rows = zip(op.starts.data, point, op.steps.data, strict=True)
    read = Read(op.x, [start + i * step for start, i, step in rows])
    return make_nest(at, domain, [read], type_of(op.result), copy)


@lowers(FramesOp)
def frames(op: FramesOp, at: Rewriter) -> SSAValue:
    axis, step = (int_of(op.properties, name) for name in ("axis", "step"))
    assume_at_most(at, op.size.data, type_of(op.x).shape[axis])
    domain = Domain()
    point = domain.parallel(*type_of(op.result).shape)
    place = point[axis] * step + point[axis + 1]
    read = Read(op.x, [*point[:axis], place, *point[axis + 2:]])
    return make_nest(at, domain, [read], type_of(op.result), copy)


@lowers(ConcatOp)
def concat(op: ConcatOp, at: Rewriter) -> SSAValue:
    """Each operand is written into the result after the previous ones."""
    result, axis = type_of(op.result), int_of(op.properties, "axis")
    whole = at.insert(EmptyOp.of(result)).results[0]
    offset = Expr.of(0)
    for x in op.operands:
        sizes = type_of(x).shape
        for dim, (own, size) in enumerate(zip(sizes, result.shape, strict=True)):
            if dim != axis:
                assume_equal(at, own, size)
        if sizes[axis].constant != 0:
            domain = Domain()
            point = domain.parallel(*sizes)
            target = [i + offset if dim == axis else i for dim, i in enumerate(point)]
            whole = make_nest(at, domain, [Read(x, point)], result, copy, index=target, into=whole)
        offset = offset + sizes[axis]
    return whole


# ---------------------------------------------------------------------- pad
@lowers(PadOp)
def pad(op: PadOp, at: Rewriter) -> SSAValue:
    x, low, high = type_of(op.x), op.low.data, op.high.data
    _assume_room(op, at)
    domain = Domain()
    point = domain.parallel(*type_of(op.result).shape)
    mode = op.mode.data
    index = [i if low[d].constant == high[d].constant == 0 else
             _source(i - low[d], x.shape[d], mode) for d, i in enumerate(point)]
    outside = _pad_value(op) if mode == "constant" else None
    return make_nest(at, domain, [Read(op.x, index, outside)], type_of(op.result), copy)


def _assume_room(op: PadOp, at: Rewriter) -> None:
    """Assume that pads are not negative and that x has the elements that a mode mirrors, repeats
    or wraps; some of that is only checked at run time."""
    margin = {"reflect": 1, "wrap": 0}.get(op.mode.data)
    rows = zip(type_of(op.x).shape, op.low.data, op.high.data, strict=True)
    for size, pad in [(size, pad) for size, *pads in rows for pad in pads if pad.constant != 0]:
        assume_at_most(at, Expr.of(0), pad)
        if margin is not None:
            assume_at_most(at, pad + margin, size)
        elif op.mode.data == "edge":
            assume_at_most(at, minimum(pad, 1), size)


def _pad_value(op: PadOp) -> Number:
    value, element = number_of(op.properties, "value"), type_of(op.x).element
    if t.is_float(element):
        return float(value)
    return bool(value) if element == t.i1 else int(value)


def _source(place: Expr, size: Expr, mode: str) -> Expr:
    """The index inside x that stands for an index which may lie outside of 0 to size - 1."""
    last = size - 1
    if mode == "edge":
        return minimum(maximum(place, 0), last)
    if mode == "wrap":
        return place % size
    if mode == "reflect":  # |place| mirrors at 0, last - |last - x| at the end
        mirrored = _magnitude(place)
        return last - _magnitude(last - mirrored)
    return place


def _magnitude(x: Expr) -> Expr:
    return maximum(x, -x)
