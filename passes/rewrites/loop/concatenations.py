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
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from dialects.loop import (
    Axis,
    EmptyOp,
    IndexOp,
    KernelOp,
    NestOp,
    YieldOp,
    extents_of,
    scalar_type,
)
from dialects.strata.types import TensorType, shape_of, tensor
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.rewrites.loop.nests import (
    Read,
    clone_body,
    has_calls,
    has_remainders,
    index_exprs,
    reads_of,
    replace_nest,
    substitute_axes,
    with_reads,
)

NO_AXIS = Symbol.axis("@none")
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


def is_selection(nest: NestOp) -> bool:
    """Whether a nest gives elements of one of its inputs, chosen by their place alone."""
    value = nest.yielded[0]
    if len(nest.results) != 1 or not nest.is_elementwise or len(nest.inputs) < 2:
        return False
    while isinstance(op := value.owner, arith.SelectOp):
        if not isinstance(op.rhs, BlockArgument) or not _is_of_place(op.cond):
            return False
        value = op.lhs
    return isinstance(value, BlockArgument) and value is not nest.yielded[0]


def _is_of_place(value: SSAValue) -> bool:
    """Whether a body computes a value from indices and constants."""
    op = value.owner
    return isinstance(op, Operation) and all(map(_is_of_place, op.operands))


def select_where_read(kernel: KernelOp) -> None:
    """Let a selection that only contractions read walk their axes, so that they share its tiles.

        %c = nest (a, j, d) ins(%x[a, j, d] pad 0, %y[a, 0, d])
        %s = nest (b: 4, j, reduce d) ins(%q[b, d], %c[b floordiv 2, j, d])
        ->  %c = nest (b: 4, j, d) ins(%x[b floordiv 2, j, d] pad 0, %y[b floordiv 2, 0, d])
            %s = nest (b: 4, j, reduce d) ins(%q[b, d], %c[b, j, d])
    """
    for nest in filter(is_selected_factor, kernel.nests):
        while (use := next(iter(nest.results[0].uses), None)) is not None:
            reader = use.operation
            assert isinstance(reader, NestOp)
            _select_for(nest, reader, use.index)
        nest.detach()
        nest.erase()


def _select_for(nest: NestOp, reader: NestOp, number: int) -> None:
    reads = reads_of(reader)
    at, type_ = reads[number].map, nest.results[0].type
    assert isinstance(type_, TensorType)
    used = {s for e in at for s in e.symbols}
    axes = [Axis(a.name, a.extent) for a in reader.axes if a.name in used]
    point = [Expr.symbol(a.name) for a in axes]
    own: dict[Symbol, Size] = {
        name: e for stored, e in zip(nest.output_maps[0], at, strict=True)
        if (name := stored.as_symbol) is not None}
    moved = substitute_axes(nest, axes, own)
    new = with_reads(moved, reads_of(moved), [tensor(type_.element, [a.extent for a in axes])],
                     [point])
    moved.erase()
    block = reader.parent_block()
    assert block is not None
    block.insert_op_before(new, reader)
    reads[number] = Read(new.results[0], tuple(point))
    replace_nest(reader, with_reads(reader, reads))


def is_selected_factor(nest: NestOp) -> bool:
    """Whether a nest is a selection that only contractions read, anywhere inside of it."""
    uses = list(nest.results[0].uses)
    return is_selection(nest) and bool(uses) and all(
        isinstance(u.operation, NestOp) and is_contraction(u.operation)
        and u.operation.pad_values[u.index] is None for u in uses)


def _is_simple(part: NestOp) -> bool:
    """Whether a part is elementwise, and reads at places that do not depend on data."""
    reads = [e for m in part.input_maps for e in m]
    stored = [e for m in part.output_maps for e in m]
    return part.combiner_names == ["none"] and not part.reduce_axes and not (
        has_remainders(reads) or has_calls(stored) or has_calls(index_exprs(part)))


def _extent(part: NestOp, dim: int) -> Expr:
    """How many elements of a dim a part writes."""
    extents = extents_of(part.axes)
    return extents.get(_axis(part, dim), Expr.of(1))


def _axis(part: NestOp, dim: int) -> Symbol:
    """The axis along which a part writes a dim."""
    symbols = part.output_maps[0][dim].symbols
    return next((a.name for a in part.axes if a.name in symbols), NO_AXIS)


def _position(part: NestOp, dim: int) -> Expr:
    axis = _axis(part, dim)
    return Expr.of(0) if axis == NO_AXIS else Expr.symbol(axis)


def _covers(parts: Sequence[NestOp], dim: int, size: Expr) -> bool:
    """Whether the parts lie one after another along a dim, and their axes are those of dims."""
    offset = Expr.of(0)
    for part in parts:
        for d, at in enumerate(part.output_maps[0]):
            if at != _position(part, d) + (offset if d == dim else 0):
                return False
        if {_axis(part, d) for d in range(len(part.output_maps[0]))} - {NO_AXIS} != {
                a.name for a in part.axes}:
            return False
        offset = offset + _extent(part, dim)
    return offset == size


def _nest(value: SSAValue, parts: Sequence[NestOp], dim: int) -> NestOp:
    shape = shape_of(value)
    axes = [Axis(Symbol.axis(f"i{d}"), size, False) for d, size in enumerate(shape)]
    point = [Expr.symbol(a.name) for a in axes]
    offsets = [part.output_maps[0][dim] - _position(part, dim) for part in parts]
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
    return {_axis(part, d): i for d, i in enumerate(point) if _axis(part, d) != NO_AXIS}


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
