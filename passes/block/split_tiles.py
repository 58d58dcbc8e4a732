"""block-split-tiles: cut tiles whose sizes are no powers of two into tiles whose sizes are.

    %x = block.load %q[%p, t0] : tile<96xf32>
    %y = block.map (%x[0]) : tile<96xf32> {f}
    %s = block.reduce add %y dim 0 : tile<f32>
    -->
    %x0 = block.load %q[%p, t0] : tile<64xf32>    %x1 = block.load %q[%p, 64 + t0] : tile<32xf32>
    %y0 = block.map (%x0[0]) : tile<64xf32> {f}   %y1 = block.map (%x1[0]) : tile<32xf32> {f}
    %s0 = block.reduce add %y0 dim 0 : tile<f32>  %s1 = block.reduce add %y1 dim 0 : tile<f32>
    %s = block.map (%s0, %s1) {add}

A product whose summed dim is cut becomes a chain of products, each of which adds to the one before.
Otherwise tiles would have to be padded: heads of 96 numbers to 128, a third more of everything.

Enters: kernels of a target whose tiles have powers of two as sizes (`Facts.power_tiles`). Leaves:
such tiles alone. Sums are added in another order. Scans are not cut; schedules offer no such tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from dialects.block import (
    DotOp,
    ForOp,
    FullOp,
    IndexOp,
    KernelOp,
    LoadOp,
    MapOp,
    ReduceOp,
    StoreOp,
    ValidOp,
    YieldOp,
)
from dialects.block.programs import dim_lists, tile_type
from dialects.strata.types import TileType, tile
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_name, set_location
from passes.base import PassError, StrataContext, StrataPass
from passes.loop_to_block.compute import combine

Piece = tuple[int, int]
"""Where a part of a dim begins, and its size."""
Place = tuple[Piece, ...]
"""A part of a tile: a piece of each of its dims."""


class BlockSplitTiles(StrataPass):
    """Leave tiles whose sizes are powers of two."""

    name = "block-split-tiles"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if not context.facts.power_tiles:
            return
        for kernel in [op for op in module.body.block.ops if isinstance(op, KernelOp)]:
            if any(_is_cut(r) for op in kernel.walk() for r in op.results):
                _Split().kernel(kernel)


def pieces_of(size: int) -> tuple[Piece, ...]:
    """The powers of two whose sum is a size, the largest one first."""
    powers = [1 << k for k in reversed(range(size.bit_length())) if size >> k & 1]
    return tuple((sum(powers[:k]), each) for k, each in enumerate(powers))


def _is_cut(value: SSAValue) -> bool:
    return isinstance(value.type, TileType) and len(_places(value.type)) > 1


def _places(type_: TileType) -> list[Place]:
    return [*product(*map(pieces_of, type_.shape))]


def _part(type_: TileType, place: Place) -> TileType:
    return tile(type_.element, [size for _, size in place], type_.lanes, type_.group)


class _Split:
    """The parts of the values of a kernel that are cut."""

    def __init__(self) -> None:
        self.parts: dict[SSAValue, dict[Place, SSAValue]] = {}
        self.replaced: list[Operation] = []
        self.arguments: list[BlockArgument] = []

    def kernel(self, kernel: KernelOp) -> None:
        self.block(kernel.body.block)
        for op in reversed(self.replaced):
            op.detach()
            op.erase()
        for argument in self.arguments:
            argument.block.erase_arg(argument)

    def block(self, block: Block) -> None:
        for op in [*block.ops]:
            cut = any(map(_is_cut, (*op.operands, *op.results)))
            if isinstance(op, ForOp):
                self.block(self.loop(op).body.block if cut else op.body.block)
            elif isinstance(op, YieldOp):
                op.operands = self.all_of(op.operands)
            elif cut:
                self.replace(op, block)

    def part(self, value: SSAValue, place: Place) -> SSAValue:
        return self.parts[value][place] if value in self.parts else value

    def all_of(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        return [v for value in values for v in (
            self.parts[value].values() if value in self.parts else (value,))]

    def keep(self, value: SSAValue, place: Place, part: SSAValue) -> None:
        """Note a part of a value, or replace a value that is not cut."""
        part.name_hint = value.name_hint
        if _is_cut(value):
            self.parts.setdefault(value, {})[place] = part
        else:
            value.replace_all_uses_with(part)

    def loop(self, op: ForOp) -> ForOp:
        """The loop that carries parts."""
        body = op.detach_region(op.body)
        new = ForOp.of(op.lower.data, op.upper.data, op.step.data.constant or 1, op.indices,
                       self.all_of(op.carried), unroll=op.unroll.data.constant or 1,
                       kind=op.kind.data, body=body)
        arguments, results = [*body.block.args[1:]], iter(new.results)
        for argument, result in zip(arguments, op.results, strict=True):
            for place in _places(tile_type(result)):
                self.keep(result, place, next(results))
                if _is_cut(argument):
                    part = body.block.insert_arg(_part(tile_type(argument), place), argument.index)
                    self.keep(argument, place, part)
        self.arguments += [a for a in arguments if _is_cut(a)]
        block = op.parent
        assert block is not None
        block.insert_op_before(new, op)
        set_location(new, op)
        self.replaced.append(op)
        return new

    def replace(self, op: Operation, block: Block) -> None:
        """Put the parts of an operation in its place."""
        shaped = op.value if isinstance(op, StoreOp) else op.results[0]
        for place in _places(tile_type(shaped)):
            made = [*self.made(op, place)]
            block.insert_ops_before(made, op)
            for new in made:
                set_location(new, op)
            for result, part in zip(op.results, made[-1].results, strict=True):
                self.keep(result, place, part)
        self.replaced.append(op)

    # ------------------------------------------------------------------ the part at a place
    def made(self, op: Operation, place: Place) -> Iterator[Operation]:
        """What computes a part of an operation's results, in order."""
        match op:
            case LoadOp() | IndexOp():
                yield self.indexed(op, place)
            case StoreOp():
                yield self.stored(op, place)
            case FullOp():
                yield FullOp.of(op.number, _part(tile_type(op.result), place))
            case ValidOp():
                type_ = tile_type(op.result)
                yield ValidOp.of(_moved(op.expr.data, place), _moved(op.bound.data, place),
                                 op.indices, [n for _, n in place], type_.lanes, type_.group)
            case MapOp():
                yield self.mapped(op, place)
            case ReduceOp():
                yield from self.reduced(op, place)
            case DotOp():
                yield from self.multiplied(op, place)
            case _:
                raise PassError(BlockSplitTiles.name, [(location_name(op), (
                    f"{op.name} cannot be cut: give its tile powers of two as sizes"))])

    def at(self, values: Sequence[SSAValue], dims: Sequence[Sequence[int]], place: Place
           ) -> list[SSAValue]:
        """The parts of values whose dims are dims of a place."""
        return [self.part(v, tuple(place[d] for d in own))
                for v, own in zip(values, dims, strict=True)]

    def indexed(self, op: LoadOp | IndexOp, place: Place) -> LoadOp | IndexOp:
        type_, dims = tile_type(op.result), dim_lists(op.index_dims.data)
        indices = self.at(op.indices, dims, place)
        if isinstance(op, IndexOp):
            return IndexOp.of(_moved(op.expr.data, place), indices, [n for _, n in place],
                              type_.lanes, dims)
        return LoadOp.of(op.buffer, [_moved(e, place) for e in op.exprs], indices,
                         _part(type_, place), checks=op.checked_dims, pad=op.pad_value,
                         index_dims=dims, assumed=op.assumed_dims)

    def stored(self, op: StoreOp, place: Place) -> StoreOp:
        dims = dim_lists(op.index_dims.data)
        new = StoreOp.of(
            self.part(op.value, place), op.buffer, [_moved(e, place) for e in op.exprs],
            self.at(op.indices, dims, place), checks=op.checked_dims, index_dims=dims,
            assumed=op.assumed_dims)
        new.combiner = op.combiner
        return new

    def mapped(self, op: MapOp, place: Place) -> MapOp:
        types = [_part(tile_type(r), place) for r in op.results]
        return MapOp.of(self.at(op.inputs, op.dim_lists, place), op.dim_lists, types,
                        op.body.clone())

    def reduced(self, op: ReduceOp, place: Place) -> Iterator[Operation]:
        total: SSAValue | None = None
        for piece in pieces_of(tile_type(op.value).shape[op.axis]):
            whole = (*place[:op.axis], piece, *place[op.axis:])
            part = ReduceOp.of(op.combiner.data, self.part(op.value, whole), op.axis)
            yield part
            if total is None:
                total = part.result
                continue
            joined = _combined(op.combiner.data, total, part.result)
            yield joined
            total = joined.results[0]

    def multiplied(self, op: DotOp, place: Place) -> Iterator[DotOp]:
        total = self.part(op.c, place)
        for piece in pieces_of(tile_type(op.b).shape[0]):
            new = DotOp.of(self.part(op.a, (*place[:-1], piece)),
                           self.part(op.b, (piece, place[-1])), total, op.precision.data)
            new.unsigned = op.unsigned
            yield new
            total = new.result


def _moved(expr: Expr, place: Place) -> Expr:
    """An expression at the positions of a part."""
    return expr.substitute({Symbol.place(d): Expr.symbol(Symbol.place(d)) + start
                            for d, (start, _) in enumerate(place) if start})


def _combined(kind: str, a: SSAValue, b: SSAValue) -> MapOp:
    """Two tiles of one shape combined element by element."""
    type_ = tile_type(a)
    dims = [*range(type_.rank)]
    found = MapOp.of([a, b], [dims, dims], [type_])
    body = found.body.block
    op = combine(kind, *body.args)
    body.add_ops([op, YieldOp.of(*op.results)])
    return found
