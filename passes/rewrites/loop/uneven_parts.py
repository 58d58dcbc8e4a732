"""A reduction with an axis in equal parts of some length, which together exceed the axis.

    nest (reduce i: 1000) ins(%x[i]) {f}
    ->  nest (reduce i: 4, reduce j: 256) ins(%x[256*i + j] pad 0) {256*i + j < 1000 ? f : 0}

What the last part reads beyond the end counts as the combiner's identity: 0 of a sum, -inf of a
maximum.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntegerAttr, i32, i64
from xdsl.ir import Block, SSAValue

from dialects.loop import Axis, IndexOp, NestOp, YieldOp
from dialects.loop.access import identity_of
from dialects.strata.types import dtype_of
from dialects.symbolic.expr import Expr
from passes.rewrites.loop.nests import Read, reads_of, substitute_axes, with_reads

UNEVEN = ("add", "max", "min")
"""Combiners of parts of which the last one may be shorter."""


def unevenly_divided(nest: NestOp, axis: Axis, size: int) -> NestOp:
    """The reduction with an axis in parts of that length; it has one result."""
    length = axis.extent
    inner = axis.name.followed_by("_part")
    axes = [new for a in nest.axes for new in (
        (Axis(a.name, length.ceildiv(size), True), Axis(inner, Expr.of(size), True))
        if a == axis else (a,))]
    place = Expr.symbol(axis.name) * size + Expr.symbol(inner)
    moved = substitute_axes(nest, axes, {axis.name: place})
    reads = [Read(r.value, r.map, 0 if r.pad is None and inner in {
        s for e in r.map for s in e.symbols} else r.pad) for r in reads_of(moved)]
    new = with_reads(moved, reads)
    moved.erase()
    narrow = length.constant is not None and length.constant + size < 1 << 31
    count_inside(new.body.block, length - place, new.combiner_names[0], narrow)
    return new


def count_inside(block: Block, room: Expr, combiner: str, narrow: bool) -> None:
    """Yield the combiner's identity where there is no room left. `narrow`: 32 bits can tell."""
    last = block.last_op
    assert isinstance(last, YieldOp)
    value = last.operands[0]
    left = IndexOp.of(room - 1)
    number = i32 if narrow else i64
    place = arith.IndexCastOp(left.result, number)
    zero = arith.ConstantOp.from_int_and_width(0, number)
    inside = arith.CmpiOp(place.result, zero.result, "sge")
    nothing = _identity(combiner, value)
    chosen = arith.SelectOp(inside.result, value, nothing.result)
    block.insert_ops_before([left, place, zero, inside, nothing, chosen], last)
    last.operands[0] = chosen.result


def _identity(combiner: str, value: SSAValue) -> arith.ConstantOp:
    number = identity_of(combiner, dtype_of(value.type))
    if isinstance(value.type, AnyFloat):
        return arith.ConstantOp(FloatAttr(float(number), value.type))
    return arith.ConstantOp(IntegerAttr(int(number), value.type))  # type: ignore[arg-type]
