"""Private memory of a program, for values that are read at other positions or are costly.

`passes.analyses.loop.private` and `passes.analyses.loop.reuse` decide which values these are.

    %s = nest (i, j) outs([i, j])          grid i tile 32 lanes, loop j tile 14
    ->  %b = block.scratch : f32[1037, 32]     %s at [i, j] lies at %b[j, i - 32*@program]

Along an axis that the grid divides, the memory holds the program's tile. Along others it holds
everything, with room for a last tile that reaches beyond the end. No access needs a check, and
lanes are contiguous. A value reuses the memory of another one if that is read for the last time
where the new value is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xdsl.ir import SSAValue

from dialects.block import StoreOp
from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Schedule
from dialects.strata.types import BufferType, SizesAttr, TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.private import is_elsewhere, reads_in
from passes.analyses.loop.reuse import kept_values, read_values
from passes.analyses.loop.runs import common_rows
from passes.loop_to_block.access import place
from passes.loop_to_block.state import AxisState, Symbols, Tile
from passes.rewrites.loop.nests import Read, plain_axes


class Kept(NamedTuple):
    """The memory of a value: which of the value's dims it has, and where the program's part starts.
    """

    buffer: SSAValue
    stored: tuple[Expr, ...]
    """The index expressions, over axes, at which the value is computed."""
    dims: tuple[int, ...]
    origins: tuple[Expr, ...]

    def is_elsewhere(self, read: Read) -> bool:
        return is_elsewhere(read, self.stored)

    def at(self, map_: Sequence[Expr]) -> tuple[Expr, ...]:
        """The position of an element of the value in the memory."""
        return tuple(map_[d] - o for d, o in zip(self.dims, self.origins, strict=True))

    def store(
        self, tile: Tile, states: Mapping[Symbol, AxisState], symbols: Symbols
    ) -> StoreOp:
        """Store a tile in full, including the part beyond the end of an axis."""
        assert isinstance(self.buffer.type, BufferType)
        there = place(self.at(self.stored), self.buffer.type.shape, tile.axes, states, symbols,
                      False)
        exprs, values, index_dims = symbols.refer(there.exprs, tile.axes)
        return StoreOp.of(tile.value, self.buffer, exprs, values, checks=there.checks,
                          index_dims=index_dims)


class Plan:
    """The memory for a kernel's private values, once the positions of its programs are known."""

    def __init__(
        self, kernel: KernelOp, schedule: Schedule, states: Mapping[Symbol, AxisState]
    ):
        self.kernel, self.schedule, self.states = kernel, schedule, states
        self.groups: list[list[SSAValue]] = []
        """Values that share memory, in order."""
        self.values = kept_values(kernel, schedule)
        for value in self.values:
            shared = next((g for g in self.groups if self._takes_over(value, g[-1])), None)
            if shared is None:
                self.groups.append([value])
            else:
                shared.append(value)

    def memory(self, group: Sequence[SSAValue]) -> BufferType:
        """A memory that is large enough for each of some values that use it in turn."""
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
        """The dims of a value in which a program has more than one position, lanes last."""
        stored = self._stored(value)
        more = [d for d, e in enumerate(stored) if e.constant is None and not (
            self._state(value, d).origin is not None and self._state(value, d).tile == 1)]
        return tuple(sorted(more, key=lambda d: stored[d].as_symbol == self.schedule.lanes))

    def _sizes(self, value: SSAValue) -> list[Expr]:
        """Per dim, the length of the program's tile, or of the range that it walks."""
        states = [self._state(value, d) for d in self._dims(value)]
        return [s.upper - s.lower if s.origin is None else Expr.of(s.tile) for s in states]

    def _beyond(self, value: SSAValue, dim: int) -> int:
        """How far beyond the end of a dim the last tiles that write or read it can reach."""
        state = self._state(value, dim)
        if state.origin is not None:
            return 0
        maps = [self._stored(value), *(r.map for r in reads_in(self.kernel, value))]
        length = state.upper - state.lower
        return max((self._overhang(m[dim], s, length) for m in maps for s in m[dim].symbols
                    if s in self.states), default=0)

    def _overhang(self, expr: Expr, axis: Symbol, length: Expr) -> int:
        """How far the last tile of an axis reaches beyond the end, at most."""
        tile = self._last_tile(axis)
        if expr.as_symbol == axis and length.constant is not None:
            return -length.constant % tile
        return tile - 1 if (length % tile).terms else 0

    def _last_tile(self, axis: Symbol) -> int:
        return [x.tile for x in self.schedule.levels if x.axis == axis][-1]

    # ------------------------------------------------------------------ sharing of memory
    def _takes_over(self, value: SSAValue, source: SSAValue) -> bool:
        """Whether a value may use another one's memory. It must be computed from that value,
        position by position, and nothing may read that value later or, in the same loops, at other
        positions."""
        nest = value.owner
        assert isinstance(nest, NestOp)
        stored = self._stored(value)
        if not nest.is_elementwise or source not in nest.inputs or plain_axes(stored) is None:
            return False
        nests, own = self.kernel.nests, {s for e in stored for s in e.symbols}
        later = nests[nests.index(nest) + 1:]
        walked = own - set(common_rows(self.kernel))
        return not any(source in read_values(n, self.values) for n in later) and all(
            r.map == stored for r in reads_in(self.kernel, source)
            if any(e.symbols & walked for e in r.map)) and self._is_alike(value, source)

    def _is_alike(self, value: SSAValue, source: SSAValue) -> bool:
        assert isinstance(value.type, TensorType) and isinstance(source.type, TensorType)
        return value.type.element == source.type.element and (
            self._dims(value), self._sizes(value)) == (self._dims(source), self._sizes(source))
