"""`block.map`: a scalar body at every position of a tile.

Small bodies are unrolled over all registers. A long body (such as an exponential) over many
registers would be thousands of instructions, slow to compile and no faster to run. It becomes a
loop over the tile's positions, with the operands that differ between positions in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from xdsl.dialects import arith, math
from xdsl.ir import Operation, SSAValue

from dialects import block as bl
from dialects.strata.types import TileType
from dialects.symbolic.expr import Expr
from targets.cpu.emit.build import Builder
from targets.cpu.emit.compute import Compute
from targets.cpu.emit.index import splat
from targets.cpu.emit.loops import Loops
from targets.cpu.emit.scalar import instruction_of, operands_of, scalar_function
from targets.cpu.emit.values import (
    Chunk,
    Reg,
    Tile,
    first_registers,
    lane_literal,
    positions,
    tile_chunks,
    unrolled_dims,
    unrolled_shape,
)

EmitAt = Callable[[Sequence[int]], str]
"""Emits one position of a tile, and returns its register."""

_LONG = 450
"""The number of instructions from which unrolling a body over all registers is too long."""

_SHORT_MATH = (math.AbsFOp, math.AbsIOp, math.CeilOp, math.FloorOp, math.TruncOp, math.RoundOp,
               math.RoundEvenOp, math.SqrtOp, math.RsqrtOp, math.FmaOp, math.CopySignOp)
_FUNCTION_LENGTH = 20
"""The approximate number of instructions of a transcendental function."""


class _Source(NamedTuple):
    """One operand's registers of one chunk: the same at every position, or in memory."""

    reg: Reg
    """That register, or the one of the first position."""
    memory: str | None


class Maps:
    """Emits the maps of a function."""

    def __init__(self, compute: Compute, loops: Loops):
        self.compute, self.loops = compute, loops
        self.writer = compute.writer
        self._bodies: dict[bl.MapOp, _Body] = {}
        """Those of maps that were emitted; in an unrolled loop, a map is emitted many times."""

    def emit(self, op: bl.MapOp, inputs: Sequence[Tile | Reg]) -> list[Tile]:
        """The results; what several positions share is computed once."""
        body = self._body(op)
        type_ = body.type
        parts, places = tile_chunks(type_, self.compute.lanes), positions(type_)
        columns = [self._registers(self._fit(value, dims, type_), dims, type_, parts)
                   for value, dims in zip(inputs, body.dims, strict=True)]
        rows = [[[column[p][c] for column in columns] for c in range(len(parts))]
                for p in range(len(places))]
        if len(places) >= 4 and body.length * len(parts) * len(places) > _LONG:
            results = self._looped(body, rows, parts)
        else:
            results = self._written_out(body, rows, parts)
        return [Tile(type_, tuple(result), parts)
                for type_, result in zip(body.types, results, strict=True)]

    def at(self, op: bl.MapOp, inputs: Sequence[Tile | Reg]) -> EmitAt:
        """Emits the only result at one position, for tiles that have no dim in lanes."""
        body = self._body(op)
        sources = [(self._fit(value, dims, body.type), dims)
                   for value, dims in zip(inputs, body.dims, strict=True)]

        def emit(position: Sequence[int]) -> str:
            operands = [value if isinstance(value, Reg) else value.reg([position[d] for d in dims])
                        for value, dims in sources]
            return body.emit(operands)[0].name

        return emit

    def _body(self, op: bl.MapOp) -> _Body:
        if op not in self._bodies:
            self._bodies[op] = _Body(op, self.compute.builder)
        return self._bodies[op]

    # ------------------------------------------------------------------ operands
    def _fit(self, value: Tile | Reg, dims: Sequence[int], type_: TileType) -> Tile | Reg:
        """A tile whose lanes lie in the dim that is in lanes in the result, or that has none."""
        if isinstance(value, Reg):
            return value
        wanted, group = (dims.index(d) if d in dims else None for d in (type_.lanes, type_.group))
        if value.type.lanes == wanted and value.type.group == group:
            return value
        return self.compute.convert(value, wanted, group)

    def _registers(
        self, value: Tile | Reg, dims: Sequence[int], type_: TileType, parts: Sequence[Chunk]
    ) -> list[list[Reg]]:
        """An operand's registers, for each position and chunk of the result."""
        if isinstance(value, Reg):
            return [[value] * len(parts)] * len(positions(type_))
        order = unrolled_dims(type_)
        source = tuple(order.index(d) for d in dims if d in order)
        numbers = range(len(parts)) if value.type.lanes is not None else [0] * len(parts)
        return [[self._spread(value, value.reg_after(first, number), chunk)
                 for number, chunk in zip(numbers, parts, strict=True)]
                for first in first_registers(value.strides, source, unrolled_shape(type_))]

    def _spread(self, value: Tile, reg: Reg, chunk: Chunk) -> Reg:
        """Widen a register to the chunk, if its tile has only one of the chunk's two dims.

        Without lanes, it is repeated for all lanes; without a group, for all elements of a group.
        """
        if reg.width in (0, chunk.width):
            return reg
        grouped, times = value.type.group is not None, chunk.width // reg.width
        lanes = [k % reg.width if grouped else k // times for k in range(chunk.width)]
        return reg.resized(self.writer.local(
            f"shufflevector {reg.typed}, {reg.type} poison, <{chunk.width} x i32> "
            f"{lane_literal(lanes, 'i32')}"), chunk.width)

    # ------------------------------------------------------------------ unrolled
    def _written_out(
        self, body: _Body, rows: Sequence[Sequence[Sequence[Reg]]], parts: Sequence[Chunk]
    ) -> list[list[str]]:
        """For each result, the registers of all positions and chunks."""
        columns: list[list[str]] = [[] for _ in body.results]
        for row in rows:
            for operands, chunk in zip(row, parts, strict=True):
                for column, reg in zip(columns, body.emit(operands), strict=True):
                    column.append(splat(self.writer, reg, chunk.width).name)
        return columns

    # ------------------------------------------------------------------ as a loop
    def _looped(
        self, body: _Body, rows: Sequence[Sequence[Sequence[Reg]]], parts: Sequence[Chunk]
    ) -> list[list[str]]:
        """A loop over the positions, in which the chunks of one position are unrolled."""
        inputs = [[self._source([row[number][k] for row in rows])
                   for k in range(len(rows[0][0]))] for number in range(len(parts))]
        kinds = [[Reg.of("", element, chunk.width) for chunk in parts]
                 for element in body.results]
        outputs = [self._space(kind, len(rows)) for kind in kinds]

        def trip(counter: Expr, _: list[Tile]) -> list[Tile]:
            for number, chunk in enumerate(parts):
                operands = [self._read(source, counter) for source in inputs[number]]
                for space, reg in zip(outputs, body.emit(operands), strict=True):
                    value = splat(self.writer, reg, chunk.width)
                    self._write(space[number], counter, value)
            return []

        count = Expr.of(len(rows))
        self.loops.emit(Expr.of(0), count, 1, count - 1, [], trip)
        return [[self._fetch(space[c], Expr.of(k), kind[c]) for k in range(len(rows))
                 for c in range(len(parts))] for space, kind in zip(outputs, kinds, strict=True)]

    def _source(self, regs: Sequence[Reg]) -> _Source:
        """The registers of all positions: kept if they are all the same, else stored in memory."""
        first = regs[0]
        if all(reg == first for reg in regs):
            return _Source(first, None)
        space = self._space([first], len(regs))[0]
        for k, reg in enumerate(regs):
            self._write(space, Expr.of(k), reg)
        return _Source(first, space)

    def _space(self, kinds: Sequence[Reg], count: int) -> list[str]:
        """Stack memory of the function for `count` registers of each kind."""
        return [self.writer.at_entry(f"alloca [{count} x {kind.type}], align 64")
                for kind in kinds]

    def _read(self, source: _Source, counter: Expr) -> Reg:
        if source.memory is None:
            return source.reg
        return source.reg.named(self._fetch(source.memory, counter, source.reg))

    def _fetch(self, space: str, counter: Expr, kind: Reg) -> str:
        return self.writer.assign(f"load {kind.type}, ptr {self._slot(space, counter, kind)}")

    def _write(self, space: str, counter: Expr, value: Reg) -> None:
        self.writer.emit(f"store {value.typed}, ptr {self._slot(space, counter, value)}")

    def _slot(self, space: str, counter: Expr, kind: Reg) -> str:
        place = self.compute.indices.scalar(counter)
        return self.writer.local(f"getelementptr {kind.type}, ptr {space}, i64 {place}")


class _Step(NamedTuple):
    """A scalar operation of a body: what emits it, and the instruction of two operands that is
    all of it, if there is one. Unrolled sums of products consist of such operations."""

    function: Callable[[Builder, Sequence[Reg]], Reg]
    instruction: str | None
    slots: list[int]
    """The numbers of the operands among the values of the body."""


class _Body:
    """The scalar body of a map, prepared for repeated emission."""

    def __init__(self, op: bl.MapOp, builder: Builder):
        self.builder = builder
        self.type, self.dims = op.result_type, op.dim_lists
        self.types = [r.type for r in op.results if isinstance(r.type, TileType)]
        slots: dict[SSAValue, int] = {a: k for k, a in enumerate(op.body.block.args)}
        self.steps: list[_Step] = []
        self.length = 0
        for inner in op.body.block.ops:
            if isinstance(inner, bl.YieldOp):
                break
            self.steps.append(_Step(scalar_function(inner), instruction_of(builder, inner),
                                    [slots[v] for v in operands_of(inner)]))
            self.length += _length(inner)
            slots[inner.results[0]] = len(slots)
        self.yielded = [slots[v] for v in op.yielded]
        self.results = [type_.element for type_ in self.types]

    def emit(self, operands: Sequence[Reg]) -> list[Reg]:
        """The results of the body on one register of each operand."""
        values = list(operands)
        for function, instruction, slots in self.steps:
            values.append(function(self.builder, [values[k] for k in slots])
                          if instruction is None else
                          self.builder.binary(instruction, values[slots[0]], values[slots[1]]))
        return [values[k] for k in self.yielded]


def _length(op: Operation) -> int:
    """About how many instructions a scalar operation needs."""
    if isinstance(op, arith.ConstantOp):
        return 0
    is_function = op.dialect_name() == "math" and not isinstance(op, _SHORT_MATH)
    return _FUNCTION_LENGTH if is_function else 1
