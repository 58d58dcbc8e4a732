"""Where a program keeps values that are read elsewhere than they are made, or cost much to compute.

Which these are, `passes.analyses.loop.private` and `passes.analyses.loop.reuse` know.

    %s = nest (i, j) outs([i, j])          grid i tile 32 lanes, loop j tile 14
    ->  %b = block.scratch : f32[1037, 32]     %s at [i, j] lies at %b[j, i - 32*@program]

Of an axis that the grid divides, memory holds the program's tile; of others everything, with room
for a last tile that reaches beyond. Nothing needs a check, and lanes lie side by side. A value
takes over the memory of another one that is read for the last time where it is made itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from dialects.block import StoreOp
from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Schedule
from dialects.strata.types import BufferType, SizesAttr, TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.private import is_elsewhere, reads_in
from passes.analyses.loop.reuse import kept_values
from passes.analyses.loop.runs import common_rows
from passes.loop_to_block.access import place
from passes.loop_to_block.state import AxisState, Symbols, Tile
from passes.rewrites.loop.nests import Read, plain_axes


@dataclass(frozen=True)
class Kept:
    """The memory of a value: which dims of the value it has, and where the program's part starts.
    """

    buffer: SSAValue
    stored: tuple[Expr, ...]
    """Where the value is made, over axes."""
    dims: tuple[int, ...]
    origins: tuple[Expr, ...]

    def is_elsewhere(self, read: Read) -> bool:
        return is_elsewhere(read, self.stored)

    def at(self, map_: Sequence[Expr]) -> tuple[Expr, ...]:
        """Where an element of the value lies in the memory."""
        return tuple(map_[d] - o for d, o in zip(self.dims, self.origins, strict=True))

    def store(
        self, tile: Tile, states: Mapping[Symbol, AxisState], symbols: Symbols
    ) -> StoreOp:
        """Keep a tile, also what of it lies beyond the end of an axis."""
        assert isinstance(self.buffer.type, BufferType)
        there = place(self.at(self.stored), self.buffer.type.shape, tile.axes, states, symbols,
                      False)
        exprs, values, index_dims = symbols.refer(there.exprs, tile.axes)
        return StoreOp.of(tile.value, self.buffer, exprs, values, checks=there.checks,
                          index_dims=index_dims)


class Plan:
    """What memory the private values of a kernel need, once its programs' places are known."""

    def __init__(
        self, kernel: KernelOp, schedule: Schedule, states: Mapping[Symbol, AxisState]
    ):
        self.kernel, self.schedule, self.states = kernel, schedule, states
        self.groups: list[list[SSAValue]] = []
        """Values that share their memory, in order."""
        for value in kept_values(kernel, schedule):
            shared = next((g for g in self.groups if self._takes_over(value, g[-1])), None)
            if shared is None:
                self.groups.append([value])
            else:
                shared.append(value)

    def memory(self, group: Sequence[SSAValue]) -> BufferType:
        """The memory that holds each of some values, one after another."""
        sizes = self._sizes(group[0])
        beyond = [max(self._beyond(v, self._dims(v)[k]) for v in group) for k in range(len(sizes))]
        assert isinstance(group[0].type, TensorType)
        return BufferType(group[0].type.element, SizesAttr.of(
            [size + more for size, more in zip(sizes, beyond, strict=True)]))

    def kept(self, value: SSAValue, buffer: SSAValue) -> Kept:
        dims, stored = self._dims(value), self._stored(value)
        starts = [self._state(value, d) for d in dims]
        origins = tuple(s.lower if s.origin is None else s.origin for s in starts)
        return Kept(buffer, stored, dims, origins)

    # ------------------------------------------------------------------ the parts of a program
    def _stored(self, value: SSAValue) -> tuple[Expr, ...]:
        nest = value.owner
        assert isinstance(nest, NestOp)
        return nest.stored_at(value)

    def _state(self, value: SSAValue, dim: int) -> AxisState:
        axis = self._stored(value)[dim].as_symbol
        assert axis is not None
        return self.states[axis]

    def _dims(self, value: SSAValue) -> tuple[int, ...]:
        """The dims of a value of which a program has more than one place, lanes last."""
        stored = self._stored(value)
        more = [d for d, e in enumerate(stored) if e.constant is None and not (
            self._state(value, d).origin is not None and self._state(value, d).tile == 1)]
        return tuple(sorted(more, key=lambda d: stored[d].as_symbol == self.schedule.lanes))

    def _sizes(self, value: SSAValue) -> list[Expr]:
        """Per dim the program's tile, or what it walks."""
        states = [self._state(value, d) for d in self._dims(value)]
        return [s.upper - s.lower if s.origin is None else Expr.of(s.tile) for s in states]

    def _beyond(self, value: SSAValue, dim: int) -> int:
        """How many places behind the end of a dim the last tiles reach that are made or read."""
        state = self._state(value, dim)
        if state.origin is not None:
            return 0
        maps = [self._stored(value), *(r.map for r in reads_in(self.kernel, value))]
        length = state.upper - state.lower
        return max((self._overhang(m[dim], s, length) for m in maps for s in m[dim].symbols
                    if s in self.states), default=0)

    def _overhang(self, expr: Expr, axis: Symbol, length: Expr) -> int:
        """How many places the last tile of an axis reaches too far, at most."""
        tile = self._last_tile(axis)
        if expr.as_symbol == axis and length.constant is not None:
            return -length.constant % tile
        return tile - 1 if (length % tile).terms else 0

    def _last_tile(self, axis: Symbol) -> int:
        return [x.tile for x in self.schedule.levels if x.axis == axis][-1]

    # ------------------------------------------------------------------ who follows whom
    def _takes_over(self, value: SSAValue, source: SSAValue) -> bool:
        """Whether a value may lie where another one does: it is made from that one, place by place,
        and nobody reads that one later, or in the same loops at other places."""
        nest = value.owner
        assert isinstance(nest, NestOp)
        stored = self._stored(value)
        if not nest.is_elementwise or source not in nest.inputs or plain_axes(stored) is None:
            return False
        nests, own = self.kernel.nests, {s for e in stored for s in e.symbols}
        later = nests[nests.index(nest) + 1:]
        walked = own - set(common_rows(self.kernel))
        return not any(source in n.inputs for n in later) and all(
            r.map == stored for r in reads_in(self.kernel, source)
            if any(e.symbols & walked for e in r.map)) and self._is_alike(value, source)

    def _is_alike(self, value: SSAValue, source: SSAValue) -> bool:
        assert isinstance(value.type, TensorType) and isinstance(source.type, TensorType)
        return value.type.element == source.type.element and (
            self._dims(value), self._sizes(value)) == (self._dims(source), self._sizes(source))
