"""One block kernel as one LLVM function: the traversal of its operations.

    define void @k(ptr noalias %buffer0, ..., i64 %size.n, ..., i64 %lo, i64 %hi)

The function runs the programs lo <= p < hi of the flattened grid, whose last axis varies fastest.
If their private memory is too large for the stack, the last argument is its address, for all
programs of this call in turn; whoever calls provides `private_bytes`, aligned to a line.
All loops are bottom-tested; carried tiles have one phi per register.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from xdsl.ir import Attribute, Block, Operation, SSAValue

from dialects import block as bl
from dialects.block.programs import tile_type
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.strata.schedule_options import STREAM
from dialects.strata.types import TileType, buffer_type
from dialects.symbolic.expr import Expr, maximum
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from dialects.walking import walked
from targets.cpu.driver.sorting import sort_definition, sorted_row, without_rows
from targets.cpu.emit.access import Access, Buffer
from targets.cpu.emit.build import Builder
from targets.cpu.emit.compute import Compute
from targets.cpu.emit.index import Indices
from targets.cpu.emit.loops import Loops
from targets.cpu.emit.maps import EmitAt, Maps
from targets.cpu.emit.marks import Marks
from targets.cpu.emit.matrices import Matrices
from targets.cpu.emit.memory import Memory
from targets.cpu.emit.runs import runs_of
from targets.cpu.emit.values import SCALAR, Reg, Tile, memory_type, positions
from targets.cpu.instructions import builder_for
from targets.cpu.llvm.modules import ModuleText
from targets.cpu.llvm.operands import Number
from targets.cpu.llvm.places import Places
from targets.cpu.llvm.writer import Writer, size_arguments
from targets.cpu.machine import Machine
from targets.cpu.runtime.results import LARGE
from targets.interface import TargetError
from targets.walking import operations

STACK_BYTES = 1 << 18
"""The most bytes of a program's private memory that are placed on the stack."""
LINE_BYTES = 64
"""Bytes of a cache line, to whose multiples private memory is aligned and rounded."""


def private_bytes(kernel: bl.KernelOp) -> Expr | None:
    """The bytes of memory that a call of a kernel needs from its caller, over the kernel's sizes;
    None if it needs none."""
    found = [_provided(op) for op in walked(kernel) if type(op) is bl.ScratchOp or sorted_row(op)]
    given = [size for size in found if size is not None]
    return sum(given, Expr.of(0)) if given else None


def _provided(op: Operation) -> Expr | None:
    """The bytes of private memory, in whole lines; None if it is on the stack."""
    if isinstance(op, bl.ScratchOp):
        type_ = buffer_type(op.result)
        size = product(type_.shape) * t.byte_width(type_.element)
    else:
        row = sorted_row(op)
        size = Expr.of(row.words * t.byte_width(t.i64) if row else 0)
    on_stack = size.constant is not None and size.constant <= STACK_BYTES
    return None if on_stack else size.ceildiv(LINE_BYTES) * LINE_BYTES


@dataclass(frozen=True)
class KernelText:
    """The LLVM text of a kernel in parts, so that several kernels fit into one module."""

    name: str
    signature: str
    """What follows the name in the first line: arguments and attributes."""
    lines: str
    constants: tuple[str, ...]
    declarations: Mapping[str, str]

    @property
    def module(self) -> ModuleText:
        function = f"define void @{self.name}{self.signature} {{\n{self.lines}"
        return ModuleText((*self.constants, function), self.declarations)

    @property
    def content_name(self) -> str:
        """A name that kernels with equal text share."""
        return f"k{hashlib.sha256(self.module.text.encode()).hexdigest()[:24]}"

    def renamed(self, name: str) -> KernelText:
        """The same kernel under another name, for a module of its own: constants keep theirs."""
        return replace(self, name=name)


def emit_kernel(kernel: bl.KernelOp, machine: Machine, name: str | None = None) -> str:
    """The LLVM text of a kernel as a module of its own, under the kernel's or another name."""
    return emit_kernel_text(kernel, machine, name).module.text


def emit_kernel_text(
    kernel: bl.KernelOp, machine: Machine, name: str | None = None, places: Places | None = None,
    builder: Callable[[Writer], Builder] | None = None,
) -> KernelText:
    """The LLVM text of a kernel in parts. Raises ValueError for what the target does not support.

    `places`: collects where instructions come from, which the text then names. `builder`: makes
    the builder of instructions, for another arithmetic than that of floats.
    """
    return _KernelEmitter(kernel, machine, name or kernel.sym_name.data, places, builder or (
        lambda writer: builder_for(writer, machine))).emit()


class _Site(NamedTuple):
    """The operands and properties of a load or store."""

    buffer: SSAValue
    exprs: Sequence[Expr]
    indices: Sequence[SSAValue]
    dims: Sequence[Any]
    checks: Sequence[int]


class _KernelEmitter:
    """The state of one kernel's emission: the LLVM form of each IR value."""

    def __init__(
        self, kernel: bl.KernelOp, machine: Machine, name: str, places: Places | None,
        builder: Callable[[Writer], Builder],
    ) -> None:
        self.kernel, self.machine, self.name = kernel, machine, name
        self.writer = Writer(name)
        self.marks = Marks(kernel, name, places)
        self.writer.mark = self.marks.of(kernel)
        self.indices = Indices(self.writer)
        self.builder = builder(self.writer)
        self.memory = Memory(self.writer, machine.lanes, machine.line_bytes)
        self.loops = Loops(self.writer, self.indices)
        self.compute = Compute(self.writer, self.indices, self.builder, machine)
        self.maps = Maps(self.compute, self.loops)
        self.matrices = self._matrices()
        names = self.writer.size_arguments(kernel.size_names)
        self.sizes = {s: self.indices.symbol(name, 0)
                      for s, name in zip(kernel.size_names, names, strict=True)}
        self.sorted = {op: row for op in walked(kernel) if (row := sorted_row(op))}
        self.tiles: dict[SSAValue, Tile] = {}
        self.buffers: dict[SSAValue, Buffer] = {}
        self._places: dict[Operation, Expr] = {}
        """Where private memory starts in what the caller provides."""
        self._runs: dict[Block, list[list[Operation]]] = {}
        self._sites: dict[Operation, _Site] = {}
        self._accesses: dict[Operation, Access] = {}
        """What is read off blocks and operations once; an unrolled loop repeats its body."""

    def _matrices(self) -> Matrices | None:
        """The emitter of matrix products, if the kernel has any and the machine supports them."""
        dots = [op for op in walked(self.kernel) if type(op) is bl.DotOp and _is_matrix(op.c)]
        unit = self.machine.matrix_unit
        for op in dots:
            if unit is None or not self.machine.multiplies_matrices(bl.element_type(op.a)):
                raise ValueError(f"kernel @{self.name} multiplies matrices of "
                                 f"{bl.element_type(op.a)}, which this processor cannot")
        return Matrices(self.writer, self.indices, self.memory, unit, dots) if (
            unit and dots) else None

    def emit(self) -> KernelText:
        for k, argument in enumerate(self.kernel.buffers):
            self._bind_buffer(argument, self.writer.argument(f"%buffer{k}"))
        streams = self._streams()
        extents = [e.substitute(self.sizes) for e in self.kernel.grid.data]
        lo, hi = (self.writer.argument(n) for n in ("%lo", "%hi"))
        bounds = (self.indices.symbol(lo, 0), self.indices.symbol(hi, 0))
        if self.matrices:
            self.matrices.start()
        count = self.indices.product(extents)
        if count.constant != 0:
            self.loops.emit(*bounds, 1, count - 1, [], lambda program, _: self._program(
                program, extents))
        if streams:  # other threads must see these stores before they see that the launch is done
            self.builder.fence()
        if self.matrices:
            self.matrices.release()
        self.writer.emit("ret void")
        return self._text()

    def _streams(self) -> bool:
        """Make stores to large buffers bypass the caches, if the schedule says so."""
        schedule = self.kernel.schedule
        if schedule is None or not schedule.data.option(STREAM) or not self.machine.streams:
            return False
        large = [b for b in self.buffers.values() if _is_large(b)]
        self.memory.streamed |= {b.pointer for b in large}
        return bool(large)

    def _text(self) -> KernelText:
        pointers = [f"ptr noalias {b.pointer}" for v, b in self.buffers.items()
                    if v in self.kernel.buffers]
        sizes = [f"i64 {name}" for name in size_arguments(self.kernel.size_names)]
        private = ["ptr noalias %private"] if self._places else []
        arguments = ", ".join([*pointers, *sizes, "i64 %lo", "i64 %hi", *private])
        # without this, spilled vectors straddle cache lines in some processes
        attributes = (f"alignstack({self.machine.vector_bytes}) nounwind"
                      f"{self.machine.function_attributes}{self.marks.function}")
        sorts = [sort_definition(self.name)] if self.sorted else []
        lines = ["entry:", *self.writer.scopes[0].lines, "}"]
        return KernelText(self.name, f"({arguments}) {attributes}", "\n".join(lines),
                          (*self.writer.constant_lines(), *sorts), self.writer.declarations)

    def _bind_buffer(self, value: SSAValue, pointer: str) -> None:
        type_ = buffer_type(value)
        shape = tuple(s.substitute(self.sizes) for s in type_.shape)
        strides = tuple(self.indices.product(shape[d + 1:]) for d in range(len(shape)))
        self.buffers[value] = Buffer(pointer, type_.element, shape, strides)

    def _program(self, program: Expr, extents: Sequence[Expr]) -> list[Tile]:
        """One program: its ids, computed from its flat number, then the kernel's body."""
        for k in reversed(range(len(extents))):
            inner = self.indices.product(extents[k + 1:])
            number = program // inner if k == 0 else (program // inner) % extents[k]
            value = self.indices.scalar(number)
            self.indices.bind(self.kernel.program_ids[k], Expr.of(value.value) if isinstance(
                value, Number) else self.indices.symbol(value, 0, extents[k] - 1))
        self._walk(self.kernel.body.block)
        return []

    # ------------------------------------------------------------------ operations
    def _walk(self, block: Block) -> None:
        if block not in self._runs:
            self._runs[block] = [*runs_of(without_rows(operations(block), self.sorted))]
        for run in self._runs[block]:
            before, self.writer.mark = self.writer.mark, self.marks.of(run[0])
            if len(run) == 1:
                _EMITTERS[type(run[0])](self, run[0])
            else:
                self._by_position(run)
            self.writer.mark = before

    def _by_position(self, run: Sequence[Operation]) -> None:
        """Emit loads and maps position by position."""
        found: list[tuple[str, list[str], EmitAt]] = []
        for op in run:
            assert isinstance(op, bl.LoadOp | bl.MapOp)
            self.writer.mark = mark = self.marks.of(op)
            found.append((mark, regs := [], self._load_at(op) if isinstance(op, bl.LoadOp) else
                          self.maps.at(op, self._inputs(op))))
            self.tiles[op.results[0]] = Tile(tile_type(op.results[0]), regs, (SCALAR,))
        for position in positions(tile_type(run[0].results[0])):
            for self.writer.mark, regs, emit in found:
                regs.append(emit(position))

    def _expr(self, expr: Expr, indices: Sequence[SSAValue]) -> Expr:
        return self.indices.resolve(expr, indices, self.sizes)

    def _access(
        self, op: bl.LoadOp | bl.StoreOp, type_: TileType
    ) -> Access:
        site = self._sites.get(op)
        if site is None:
            site = self._sites[op] = _Site(op.buffer, op.exprs, op.indices, op.index_dims.data,
                                           op.checked_dims)
        where = tuple([self._expr(e, site.indices) for e in site.exprs])
        buffer, last = self.buffers[site.buffer], self._accesses.get(op)
        access = last.moved(where) if last is not None and last.buffer is buffer else None
        self._accesses[op] = found = access or Access(
            self.writer, self.indices, buffer, where, type_, site.checks,
            self._index_tiles(site.indices, site.dims, type_))
        return found

    def _index_tiles(
        self, values: Sequence[SSAValue], dims: Sequence[Any], type_: TileType
    ) -> Mapping[Symbol, tuple[Tile, tuple[int, ...]]]:
        """The operands that are tiles, converted to the lanes of the access."""
        found: dict[Symbol, tuple[Tile, tuple[int, ...]]] = {}
        for k, (value, sizes) in enumerate(zip(values, dims, strict=True)):
            if value in self.tiles:
                places = tuple(e.constant or 0 for e in sizes.data)
                lanes = places.index(type_.lanes) if type_.lanes in places else None
                found[Symbol.operand(k)] = (self.compute.convert(self.tiles[value], lanes), places)
        return found

    def load(self, op: bl.LoadOp) -> None:
        type_ = tile_type(op.result)
        access = self._access(op, type_)
        self.tiles[op.result] = self.matrices.load(op, access) if (
            self.matrices and _is_matrix(op.result)) else (
            self.memory.load(access, type_, self._pad(op)))

    def _pad(self, op: bl.LoadOp) -> Any:
        """The value of elements outside the checked dims."""
        return self.builder.number(op.pad_value, bl.element_type(op.result))

    def _load_at(self, op: bl.LoadOp) -> EmitAt:
        access = self._access(op, tile_type(op.result))
        pad = self._pad(op)
        return lambda position: self.memory.load_one(access, position, pad)

    def store(self, op: bl.StoreOp) -> None:
        if op.combiner is not None:
            raise ValueError(f"kernel @{self.name} adds indivisibly; the CPU target does not have "
                             "the option atomic")
        tile = self.tiles[op.value]
        if op.value in self.builder.plain and t.is_float(tile.type.element):
            tile = self._embedded(tile)
        access = self._access(op, tile.type)
        if self.matrices and _is_matrix(op.value):
            self.matrices.store(access, tile.type)
        else:
            self.memory.store(access, tile)

    def _embedded(self, tile: Tile) -> Tile:
        """What stands for a tile of numbers in memory."""
        count = len(tile.chunks)
        regs = [self.builder.embedded(Reg.of(
            name, tile.type.element, tile.chunks[k % count].width)).name
            for k, name in enumerate(tile.regs)]
        return replace(tile, regs=tuple(regs))

    def prefetch(self, op: bl.PrefetchOp) -> None:
        where = tuple(self._expr(e, op.indices) for e in op.where.data)
        buffer = self.buffers[op.buffer]
        type_ = t.tile(buffer.element, ())
        self.memory.prefetch(Access(self.writer, self.indices, buffer, where, type_,
                                    range(len(where)), {}))

    def full(self, op: bl.FullOp) -> None:
        type_ = tile_type(op.result)
        self.tiles[op.result] = self.matrices.full(op, type_) if (
            self.matrices and type_.matrix) else self.compute.full(op.number, type_)

    def _inputs(self, op: bl.MapOp) -> list[Tile | Reg]:
        return [self.tiles[v] if v in self.tiles else self._index_operand(v) for v in op.inputs]

    def map(self, op: bl.MapOp) -> None:
        inputs = self._inputs(op)
        for result, tile in zip(op.results, self.maps.emit(op, inputs), strict=True):
            self.tiles[result] = tile

    def _index_operand(self, value: SSAValue) -> Reg:
        return Reg.of(self.indices.scalar(self.indices.values[value]), t.index)

    def reduce(self, op: bl.ReduceOp) -> None:
        self.tiles[op.result] = self.compute.reduce(
            op.combiner.data, self.tiles[op.value], op.axis, tile_type(op.result))

    def scan(self, op: bl.ScanOp) -> None:
        if row := self.sorted.get(op):
            start, end = (self._access(x, tile_type(op.result)).start for x in row.ends)
            spare = self._private(op, [Expr.of(row.words)], t.i64)
            return self.writer.emit(row.call(self.name, start, end, spare))
        self.tiles[op.result] = self.compute.scan(
            op.combiner.data, self.tiles[op.value], op.axis)

    def dot(self, op: bl.DotOp) -> None:
        if self.matrices and _is_matrix(op.c):
            self.tiles[op.result] = self.matrices.dot(op)
            return
        a, b, c = (self.tiles[v] for v in op.operands)
        self.tiles[op.result] = self.compute.dot(a, b, c, [op.is_unsigned(k) for k in (0, 1)])

    def index(self, op: bl.IndexOp) -> None:
        type_ = tile_type(op.result)
        tiles = self._index_tiles(op.indices, op.index_dims.data, type_)
        one = (Expr.of(1),)
        place = Buffer("", t.i8, one, one)  # of one dim, so that the flat offset is the expression
        access = Access(self.writer, self.indices, place,
                        (self._expr(op.expr.data, op.indices),), type_, (), tiles)
        self.tiles[op.result] = self.compute.index(access)

    def valid(self, op: bl.ValidOp) -> None:
        self.tiles[op.result] = self.compute.valid(
            self._expr(op.expr.data, op.indices), self._expr(op.bound.data, op.indices),
            tile_type(op.result))

    def convert(self, op: bl.ConvertOp) -> None:
        type_ = tile_type(op.result)
        self.tiles[op.result] = self.compute.convert(
            self.tiles[op.value], type_.lanes, type_.group)

    def scratch(self, op: bl.ScratchOp) -> None:
        shape, element = buffer_type(op.result).shape, buffer_type(op.result).element
        self._bind_buffer(op.result, self._private(op, shape, element))

    def _private(self, op: Operation, shape: Sequence[Expr], element: Attribute) -> str:
        """The address of an operation's private memory."""
        if _provided(op) is None:
            return self.writer.at_entry(f"alloca [{product(shape).constant} x "
                                        f"{memory_type(element)}], align 64")
        place = self.indices.scalar(self._place(op).substitute(self.sizes))
        return self.writer.at_entry(f"getelementptr i8, ptr %private, i64 {place}")

    def _place(self, op: Operation) -> Expr:
        """Where private memory starts, also if unrolled loops repeat the operation."""
        if op not in self._places:
            self._places[op] = sum((_provided(x) or Expr.of(0) for x in self._places), Expr.of(0))
        return self._places[op]

    # ------------------------------------------------------------------ loops
    def loop(self, op: bl.ForOp) -> None:
        for value in (v for v in op.indices if v in self.tiles):
            self.indices.bind_number(value, self.tiles[value].regs[0])
        lower, upper = (self._expr(e.data, op.indices) for e in (op.lower, op.upper))
        step, unroll = op.step.data.constant or 1, max(1, op.unroll.data.constant or 1)
        products = self.compute.products
        tiles = [products.in_blocks(self.tiles[v]) if products.only_adds_blocks(op, k)
                 else self.tiles[v] for k, v in enumerate(op.carried)]
        span = (upper - lower).constant
        if span is None:
            tiles = self._symbolic_loop(op, lower, upper, step, unroll, tiles)
        else:
            trips = max(0, -(-span // step))
            tiles = self._counted_loop(op, lower, trips, step, unroll, tiles)
        for result, tile, before in zip(op.results, tiles, op.carried, strict=True):
            keeps = self.tiles[before].blocks is not None
            self.tiles[result] = tile if keeps else products.in_rows(tile)

    def _counted_loop(
        self, op: bl.ForOp, lower: Expr, trips: int, step: int, unroll: int, tiles: list[Tile]
    ) -> list[Tile]:
        """A static number of iterations: whole groups of `unroll`, then the rest."""
        groups, rest = divmod(trips, unroll)
        middle = lower + groups * unroll * step
        if groups > 1:
            tiles = self.loops.emit(lower, middle, unroll * step, middle - unroll * step, tiles,
                               self._copies(op, step, unroll))
        elif groups == 1:
            tiles = self._copies(op, step, unroll)(lower, tiles)
        if rest > 1 and groups:
            end = middle + rest * step
            return self.loops.emit(middle, end, step, end - step, tiles, self._copies(op, step, 1))
        return self._copies(op, step, rest)(middle, tiles)

    def _symbolic_loop(
        self, op: bl.ForOp, lower: Expr, upper: Expr, step: int, unroll: int, tiles: list[Tile]
    ) -> list[Tile]:
        """A dynamic number of iterations: a loop of whole groups, then one of single iterations."""
        if unroll > 1:
            span = upper - lower
            if not self.indices.is_nonnegative(span):
                span = maximum(span, 0)
            groups = span.ceildiv(step) // unroll
            middle = lower + groups * (unroll * step)
            tiles = self.loops.emit(lower, middle, unroll * step, middle - unroll * step, tiles,
                               self._copies(op, step, unroll))
            lower = middle
        return self.loops.emit(lower, upper, step, upper - 1, tiles, self._copies(op, step, 1))

    def _copies(
        self, op: bl.ForOp, step: int, count: int
    ) -> Callable[[Expr, list[Tile]], list[Tile]]:
        """`count` copies of the body one after another, starting at a counter value."""
        def emit(counter: Expr, tiles: list[Tile]) -> list[Tile]:
            for k in range(count):
                self.indices.bind(op.counter, counter + k * step)
                self.tiles.update(zip(op.body.block.args[1:], tiles, strict=True))
                self._walk(op.body.block)
                tiles = [self.tiles[v] for v in op.yielded]
            return tiles
        return emit


def _is_large(buffer: Buffer) -> bool:
    """Whether a buffer is certainly large enough to be aligned to a cache line."""
    count = product(buffer.shape).constant or 0
    return count * t.byte_width(buffer.element) >= LARGE


def _is_matrix(value: SSAValue) -> bool:
    return isinstance(value.type, TileType) and value.type.matrix


def _loop(emitter: _KernelEmitter, op: bl.ForOp) -> None:
    """Raises TargetError for a loop that data end."""
    if op.is_conditional:
        raise TargetError(
            f"kernel @{emitter.kernel.sym_name.data} has a loop that data end; on the CPU, host "
            "functions have such loops: compile for this target from an earlier level")
    emitter.loop(op)


_EMITTERS: Mapping[type[Operation], Callable[[_KernelEmitter, Any], None]] = {
    bl.LoadOp: _KernelEmitter.load,
    bl.StoreOp: _KernelEmitter.store,
    bl.FullOp: _KernelEmitter.full,
    bl.MapOp: _KernelEmitter.map,
    bl.ReduceOp: _KernelEmitter.reduce,
    bl.ScanOp: _KernelEmitter.scan,
    bl.DotOp: _KernelEmitter.dot,
    bl.IndexOp: _KernelEmitter.index,
    bl.ValidOp: _KernelEmitter.valid,
    bl.ConvertOp: _KernelEmitter.convert,
    bl.ScratchOp: _KernelEmitter.scratch,
    bl.PrefetchOp: _KernelEmitter.prefetch,
    bl.BarrierOp: lambda emitter, op: None,  # instructions of one thread are in order
    bl.ForOp: _loop,
}
