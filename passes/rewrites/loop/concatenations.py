"""Concatenations that are computed where they are read.

    %e = empty   %a = nest (i: n, j: 32) ins(%x[i, j + 32]) outs([i, j]) into(%e) {f}
                 %c = nest (i: n, j: 32) ins(%x[i, j]) outs([i, j + 32]) into(%a) {g}
    ->  %c = nest (i: n, j: 64) ins(%x[i, j + 32] pad 0, %x[i, j - 32] pad 0) {j < 32 ? f : g}

Every element selects the part that it belongs to. The nest is elementwise, so its reader can
compute it, and the parts need no memory. What a part reads for an element of another one is not
used; it is 0 outside of the tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import i64
from xdsl.ir import Block, Region, SSAValue

from dialects.loop import Axis, EmptyOp, IndexOp, NestOp, YieldOp, extents_of, scalar_type
from dialects.strata.types import TensorType, shape_of
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.symbol import Symbol
from passes.rewrites.loop.nests import Read, clone_body, has_calls, index_exprs, reads_of

MOST_PARTS, MOST_READS = 4, 8
"""More parts or more reads of all parts together would cost more than they save."""


def parts_of(value: SSAValue) -> list[NestOp]:
    """The nests that write the parts of an empty tensor, in order, if nothing else reads the tensor
    before it has all of them."""
    parts: list[NestOp] = []
    while isinstance(part := value.owner, NestOp) and part.into and len(part.results) == 1 and (
            not parts or value.has_one_use()):
        parts.insert(0, part)
        value = part.into[0]
    return parts if isinstance(value.owner, EmptyOp) and value.has_one_use() else []


def selecting_nest(value: SSAValue) -> NestOp | None:
    """The elementwise nest that computes a concatenation of elementwise parts; else None."""
    parts, shape = parts_of(value), shape_of(value)
    if not 2 <= len(parts) <= MOST_PARTS or sum(len(p.inputs) for p in parts) > MOST_READS or (
            not all(_is_simple(p) for p in parts)):
        return None
    dims = [d for d, size in enumerate(shape) if any(_extent(p, d) != size for p in parts)]
    if len(dims) != 1 or not _covers(parts, dims[0], shape[dims[0]]):
        return None
    return _nest(value, parts, dims[0])


def _is_simple(part: NestOp) -> bool:
    """Whether a part is elementwise, and reads at places that do not depend on data."""
    maps = [e for m in (*part.input_maps, *part.output_maps) for e in m]
    return part.combiner_names == ["none"] and not part.reduce_axes and not has_calls(maps) and (
        not has_calls(index_exprs(part)))


def _extent(part: NestOp, dim: int) -> Expr:
    """How many elements of a dim a part writes."""
    extents = extents_of(part.axes)
    return extents.get(_axis(part, dim), Expr.of(1))


def _axis(part: NestOp, dim: int) -> Symbol:
    """The axis along which a part writes a dim."""
    symbols = part.output_maps[0][dim].symbols
    return min(symbols, default=Symbol.axis("@none"))


def _covers(parts: Sequence[NestOp], dim: int, size: Expr) -> bool:
    """Whether the parts lie one after another along a dim, and their axes are those of dims."""
    offset = Expr.of(0)
    for part in parts:
        for d, at in enumerate(part.output_maps[0]):
            axis = Expr.symbol(_axis(part, d)) if at.symbols else Expr.of(0)
            if at != axis + (offset if d == dim else 0):
                return False
        if len({_axis(part, d) for d, e in enumerate(part.output_maps[0]) if e.symbols}) != len(
                part.axes):
            return False
        offset = offset + _extent(part, dim)
    return offset == size


def _nest(value: SSAValue, parts: Sequence[NestOp], dim: int) -> NestOp:
    shape = shape_of(value)
    axes = [Axis(Symbol.axis(f"i{d}"), size, False) for d, size in enumerate(shape)]
    point = [Expr.symbol(a.name) for a in axes]
    offsets = [part.output_maps[0][dim] - Expr.symbol(_axis(part, dim))
               if part.output_maps[0][dim].symbols else part.output_maps[0][dim]
               for part in parts]
    places = [_place(part, [i - offset if d == dim else i for d, i in enumerate(point)])
              for part, offset in zip(parts, offsets, strict=True)]
    reads = [[_moved(r, place, _axis(part, dim)) for r in reads_of(part)]
             for part, place in zip(parts, places, strict=True)]
    flat = [r for own in reads for r in own]
    block = Block(arg_types=[scalar_type(r.value) for r in flat])
    computed: list[SSAValue] = []
    first = 0
    for part, place, own in zip(parts, places, reads, strict=True):
        [found] = clone_body(part.body.block, block, block.args[first:first + len(own)], place)
        computed.append(found)
        first += len(own)
    block.add_op(YieldOp.of(_selected(block, point[dim], offsets[1:], computed)))
    type_ = value.type
    assert isinstance(type_, TensorType)
    return NestOp.of(axes, [r.value for r in flat], [r.map for r in flat], [type_], [point],
                     pads=[r.pad for r in flat], body=Region(block))


def _place(part: NestOp, point: Sequence[Expr]) -> Mapping[Symbol, Size]:
    """The part's axes at a point of its own."""
    return {_axis(part, d): i for d, i in enumerate(point) if part.output_maps[0][d].symbols}


def _moved(read: Read, place: Mapping[Symbol, Size], along: Symbol) -> Read:
    """The read at that place; where it moves along the parts, elements outside are its pad, or 0.
    """
    moves = any(along in e.symbols for e in read.map)
    pad = 0 if moves and read.pad is None else read.pad
    return Read(read.value, tuple(e.substitute(place) for e in read.map), pad)


def _selected(
    block: Block, index: Expr, begins: Sequence[Expr], values: Sequence[SSAValue]
) -> SSAValue:
    """The value of the last part that begins at the index or before."""
    result, *rest = values
    for begin, value in zip(begins, rest, strict=True):
        room = IndexOp.of(begin - index - 1)
        position = arith.IndexCastOp(room.result, i64)
        zero = arith.ConstantOp.from_int_and_width(0, i64)
        before = arith.CmpiOp(position.result, zero.result, "sge")
        chosen = arith.SelectOp(before.result, result, value)
        block.add_ops([room, position, zero, before, chosen])
        result = chosen.result
    return result
