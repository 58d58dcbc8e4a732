"""`block.map`: a scalar body at every position of a tile.

Small bodies are written out for every register. A long body (an exponential, say) over many
registers would be thousands of instructions, slow to compile and no faster to run: it becomes a
loop over the tile's positions, with the operands that differ between positions in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, math
from xdsl.ir import Operation, SSAValue

from dialects import block as bl
from dialects.expr import Expr
from dialects.types import TileType
from targets.cpu.emit.compute import Compute
from targets.cpu.emit.index import splat
from targets.cpu.emit.loops import Loops
from targets.cpu.emit.scalar import emit_scalar
from targets.cpu.emit.values import Chunk, Reg, Tile, positions, tile_chunks, unrolled_dims

_LONG = 300
"""Instructions from which on a body written out for all registers is too long."""

_SHORT_MATH = (math.AbsFOp, math.AbsIOp, math.CeilOp, math.FloorOp, math.TruncOp, math.RoundOp,
               math.RoundEvenOp, math.SqrtOp, math.RsqrtOp, math.FmaOp, math.CopySignOp)
_FUNCTION_LENGTH = 20
"""Instructions of a transcendental function, roughly."""


@dataclass(frozen=True)
class _Source:
    """One operand's registers of one chunk: the same at every position, or in memory."""

    reg: Reg
    """That register, or the one of the first position."""
    memory: str | None


class Maps:
    """Emits the maps of a function."""

    def __init__(self, compute: Compute, loops: Loops):
        self.compute, self.loops = compute, loops
        self.writer, self.builder = compute.writer, compute.builder

    def emit(self, op: bl.MapOp, inputs: Sequence[Tile | Reg]) -> list[Tile]:
        """The results; what several positions share is computed once."""
        laid_out = [self._fit(value, dims, op.result_type)
                    for value, dims in zip(inputs, op.dim_lists, strict=True)]
        parts = tile_chunks(op.result_type, self.compute.lanes)
        places = list(positions(op.result_type))
        rows = [[self._operands(op, laid_out, position, number) for number in range(len(parts))]
                for position in places]
        length = _body_length(op) * len(parts)
        if len(places) >= 4 and length * len(places) > _LONG:
            columns = self._looped(op, rows, parts)
        else:
            columns = self._written_out(op, rows, parts)
        types = [r.type for r in op.results if isinstance(r.type, TileType)]
        return [Tile(type_, tuple(column), parts)
                for type_, column in zip(types, columns, strict=True)]

    # ------------------------------------------------------------------ operands
    def _fit(self, value: Tile | Reg, dims: Sequence[int], type_: TileType) -> Tile | Reg:
        """A tile with its lanes in the dim that is in lanes in the result, or with none."""
        if isinstance(value, Reg):
            return value
        wanted = dims.index(type_.lanes) if type_.lanes in dims else None
        return value if value.type.lanes == wanted else self.compute.convert(value, wanted)

    def _operands(
        self, op: bl.MapOp, values: Sequence[Tile | Reg], position: tuple[int, ...], number: int
    ) -> list[Reg]:
        place = dict(zip(unrolled_dims(op.result_type), position, strict=True))
        return [_operand(value, dims, place, number)
                for value, dims in zip(values, op.dim_lists, strict=True)]

    def _body(self, op: bl.MapOp, operands: Sequence[Reg]) -> list[Reg]:
        """The scalar body on one register of each operand."""
        known: dict[SSAValue, Reg] = dict(zip(op.body.block.args, operands, strict=True))
        for inner in op.body.block.ops:
            if isinstance(inner, bl.YieldOp):
                break
            regs = [known[v] for v in inner.operands]
            known[inner.results[0]] = emit_scalar(self.builder, inner, regs)
        return [known[v] for v in op.yielded]

    # ------------------------------------------------------------------ written out
    def _written_out(
        self, op: bl.MapOp, rows: Sequence[Sequence[Sequence[Reg]]], parts: Sequence[Chunk]
    ) -> list[list[str]]:
        """Per result: the registers of all positions and chunks."""
        columns: list[list[str]] = [[] for _ in op.results]
        for row in rows:
            for operands, chunk in zip(row, parts, strict=True):
                for column, reg in zip(columns, self._body(op, operands), strict=True):
                    column.append(splat(self.writer, reg, chunk.width).name)
        return columns

    # ------------------------------------------------------------------ as a loop
    def _looped(
        self, op: bl.MapOp, rows: Sequence[Sequence[Sequence[Reg]]], parts: Sequence[Chunk]
    ) -> list[list[str]]:
        """A loop over the positions; in it the chunks of one position are written out."""
        inputs = [[self._source([row[number][k] for row in rows])
                   for k in range(len(op.inputs))] for number in range(len(parts))]
        kinds = [[Reg.of("", r.type.element, chunk.width) for chunk in parts] for r in op.results
                 if isinstance(r.type, TileType)]
        outputs = [self._space(kind, len(rows)) for kind in kinds]

        def trip(counter: Expr, _: list[Tile]) -> list[Tile]:
            for number, chunk in enumerate(parts):
                operands = [self._read(source, counter) for source in inputs[number]]
                for space, reg in zip(outputs, self._body(op, operands), strict=True):
                    value = splat(self.writer, reg, chunk.width)
                    self._write(space[number], counter, value)
            return []

        count = Expr.of(len(rows))
        self.loops.emit(Expr.of(0), count, 1, count - 1, [], trip)
        return [[self._fetch(space[c], Expr.of(k), kind[c]) for k in range(len(rows))
                 for c in range(len(parts))] for space, kind in zip(outputs, kinds, strict=True)]

    def _source(self, regs: Sequence[Reg]) -> _Source:
        """Registers of all positions: kept if they are one, else put into memory."""
        first = regs[0]
        if all(reg == first for reg in regs):
            return _Source(first, None)
        space = self._space([first], len(regs))[0]
        for k, reg in enumerate(regs):
            self._write(space, Expr.of(k), reg)
        return _Source(first, space)

    def _space(self, kinds: Sequence[Reg], count: int) -> list[str]:
        """Memory of the function for `count` registers of each kind."""
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


def _operand(
    value: Tile | Reg, dims: Sequence[int], place: Mapping[int, int], number: int
) -> Reg:
    if isinstance(value, Reg):
        return value
    position = tuple(place[d] for d in dims if d in place)
    return value.reg(position, 0 if value.type.lanes is None else number)


def _body_length(op: bl.MapOp) -> int:
    return sum(map(_length, op.body.block.ops))


def _length(op: Operation) -> int:
    """About how many instructions a scalar operation takes."""
    if isinstance(op, arith.ConstantOp):
        return 0
    is_function = op.name.startswith("math.") and not isinstance(op, _SHORT_MATH)
    return _FUNCTION_LENGTH if is_function else 1
