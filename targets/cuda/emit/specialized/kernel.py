"""Warp-specialized kernels with a producer warp, in Gluon, Triton's lower-level language.

A schedule with `specialize = 1` has groups of four consumer warps, each with a tile of its own, and
one producer warp. The producer copies factors into shared memory, up to `stages` steps ahead. The
groups' tiles lie below each other and share everything that does not depend on rows. Kernels are
persistent: a program computes one such column of tiles after another, and while the epilogue of one
runs, the factors of the next are loaded. The exception is columns of different cost (`descend`),
where each program computes only one. Each kind of kernel defines its loads and its computation:

    products.py    sums of products      attention.py    online softmax

Barriers in shared memory signal that a stage is full or free; each use of a stage flips their
phase. The epilogue is printed as in other kernels, in the layout of the sums. Triton's interpreter
does not support Gluon.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from xdsl.ir import Operation, SSAValue

from dialects.block import KernelOp, StoreOp
from dialects.block.programs import tile_type
from dialects.strata import types as t
from dialects.strata.types import buffer_type
from dialects.symbolic.expr import Expr
from dialects.text.syntax import location_names
from targets.cuda.emit.context import Context
from targets.cuda.emit.programs import bind_program_ids
from targets.cuda.emit.specialized.copied import SWIZZLES, Copied, rectangle
from targets.cuda.emit.values import Value
from targets.origins import comment, once

GROUP = 4
"""Consumer warps that compute one tile."""
GROUP_ROWS = 64
"""The rows that a group multiplies at a time."""
HELPERS = ("""\
@gluon.jit
def following(stage, phase, stages: gl.constexpr):
    last = stage == stages - 1
    return tl.where(last, 0, stage + 1), phase ^ last.to(tl.int32)
""", """\
@gluon.jit
def preceding(stage, stages: gl.constexpr):
    return tl.where(stage == 0, stages - 1, stage - 1)
""")
NAMES = frozenset((
    "gl", "gluon", "fence_async_shared", "mbarrier", "tma", "tma_load", "tma_store",
    "warpgroup_mma", "warpgroup_mma_wait", "following", "preceding", "group", "layout", "phase",
    "ready", "stage", "turn"))
"""Names that occur in the templates, so that no variable of a kernel may have them."""
GROUPS = 3
"""The most groups; with more, threads would start with too few registers."""
REGISTERS, LOADER_REGISTERS = {1: 240, 2: 240, 3: 160}, 24
"""Registers per thread of consumer warps and of the producer warp."""
PART = 256
"""The most bytes of a row of results in one store."""


@dataclass(frozen=True)
class Ring:
    """Stages of shared memory, filled and freed in turn.

    `full`, `free`: the names of the barriers. `stage`, `phase`: the names of the variables that
    track the next use.
    """

    stages: int
    full: str
    free: str
    stage: str
    phase: str

    @property
    def is_full(self) -> str:
        return f"mbarrier.wait({self.full}.index({self.stage}), {self.phase})"

    @property
    def is_free(self) -> str:
        return f"mbarrier.wait({self.free}.index({self.stage}), {self.phase})"

    @property
    def next(self) -> str:
        return (f"{self.stage}, {self.phase} = "
                f"following({self.stage}, {self.phase}, {self.stages})")


@dataclass
class Emission(ABC):
    """The text of one kernel: its functions, callees first."""

    kernel: KernelOp
    context: Context
    groups: int
    stages: int
    strip: int
    emit: Callable[[Operation, Context], None]

    # ------------------------------------------------------------------ kinds of kernels
    def __post_init__(self) -> None:
        self.epilogue: Sequence[Operation]
        """The operations of the epilogue."""
        self.row_axis: int
        """The grid axis along which the groups' tiles lie below each other."""
        self.memory: Sequence[tuple[Copied, int]]
        """The loaded tiles, and how many copies of each shared memory holds."""
        self.rings: Sequence[Ring]
        self.turns = ""
        """Barriers that tell each group when it is its turn, if the groups take turns."""
        self.recognize()
        self.result = _result(self.epilogue, self.context)

    @abstractmethod
    def recognize(self) -> None:
        """Set all of these from the kernel. Raises EmitError, which says what does not fit."""

    @abstractmethod
    def loads(self) -> None:
        """Emit the loads of the factors for a column of tiles."""

    @abstractmethod
    def layouts(self) -> Sequence[str]:
        """The definitions of layouts."""

    @abstractmethod
    def sums(self) -> None:
        """Emit the computation of a group's tile, up to the loop's results."""

    # ------------------------------------------------------------------ functions
    @property
    def pointers(self) -> Mapping[SSAValue, str]:
        """The types of the parameters that are tensor maps."""
        copied = [c for c, _ in self.memory] + ([self.result] if self.result else [])
        return {c.tile.buffer: c.pointer for c in copied}

    def text(self, name: str, signature: Sequence[tuple[str, str]]) -> str:
        """The text of all functions, to follow the kernel's comment."""
        loads, sums = (self.context.writer.fresh(f"{name}_{x}") for x in ("loads", "sums"))
        parameters = [p for p, _ in signature]
        memory = [c.memory for c, _ in self.memory] + (
            [self.result.memory] if self.result else [])
        inner = ", ".join([*parameters, *memory, *(name for name, _, _ in self._barriers)])
        texts = [self._function(f"{loads}({inner})", self._loads),
                 self._function(f"{sums}({inner}, group: gl.constexpr)", self._sums),
                 self._function(f"{name}({', '.join(parameters)})",
                                lambda: self._start(loads, sums, inner))]
        return "\n\n".join(texts)

    def _function(self, head: str, body: Callable[[], None]) -> str:
        """A function's text. Tiles without a layout get that of the values they meet."""
        writer = self.context.writer
        writer.lines, self.context.products = [], {}
        with writer.indented():
            body()
            lines, writer.lines = writer.lines, []
            for product, name in self.context.products.items():
                writer.line(f"{name} = {product}")
        nodes = [n for op in self.kernel.walk() for n in location_names(op)]
        text = "\n".join(["@gluon.jit", f"def {head}:{comment(nodes)}", *writer.lines,
                          *once(lines), ""])
        return text.replace("tl.full(", "gl.full(")

    def _start(self, loads: str, sums: str, inner: str) -> None:
        line = self.context.writer.line
        for copied, count in self.memory:
            line(copied.allocation(count))
        if self.result:
            line(self.result.allocation(self.groups))
        for name, count, arrivals in self._barriers:
            line(f"{name} = gl.allocate_shared_memory(gl.int64, [{count}, 1], "
                 "mbarrier.MBarrierLayout())")
            line(f"for stage in gl.static_range({count}):")
            with self.context.writer.indented():
                line(f"mbarrier.init({name}.index(stage), count={arrivals})")
        line("fence_async_shared()")
        parts = [f"({sums}, ({inner}, {group}))" for group in range(self.groups)]
        registers = [REGISTERS[self.groups]] * (self.groups - 1)
        line(f"gl.warp_specialize([{', '.join([*parts, f'({loads}, ({inner}))'])}], "
             f"{[GROUP] * (self.groups - 1) + [1]}, {[*registers, LOADER_REGISTERS]})")

    @property
    def _barriers(self) -> list[tuple[str, int, int]]:
        """The name of each set of barriers, how many there are, and the arrivals at each."""
        found = [b for ring in self.rings for b in ((ring.full, ring.stages, 1),
                                                    (ring.free, ring.stages, self.groups))]
        return [*found, *([(self.turns, self.groups, 1)] if self.turns else [])]

    def _loads(self) -> None:
        self._begin(1)
        with self._programs():
            self.loads()

    def _sums(self) -> None:
        for definition in self.layouts():
            self.context.writer.line(definition)
        self._begin(0)
        if self.turns:
            self.context.writer.line("turn = 1 - group")
        with self._programs():
            self.context.values[self.row_id] = self.row("group")
            self.sums()
            self._end()
        if self.result:
            self.context.writer.line("tma.store_wait(0)")

    def _begin(self, phase: int) -> None:
        """Start at the first stages: in phase 0 to wait for them, in phase 1 to fill them."""
        for ring in self.rings:
            self.context.writer.line(f"{ring.stage} = 0")
            self.context.writer.line(f"{ring.phase} = {phase}")

    # ------------------------------------------------------------------ tiles of a program
    @contextmanager
    def _programs(self) -> Generator[None]:
        """Emit the loop over a program's columns of tiles, or the only one without a loop."""
        context = self.context
        extents = list(self.kernel.grid.data)
        extents[self.row_axis] = self.row_tiles.ceildiv(self.groups)
        program = context.writer.fresh("program")
        if not self.stays:
            context.writer.line(f"{program} = tl.program_id(0)")
            self._bind(program, extents)
            yield
            return
        count = context.product(extents).text
        context.writer.line(
            f"for {program} in range(tl.program_id(0), {count}, tl.num_programs(0)):")
        with context.writer.indented():
            self._bind(program, extents)
            yield

    @property
    def stays(self) -> bool:
        """Whether the kernel is persistent. Where columns differ in cost, it is not: the hardware
        gives the next one to whichever multiprocessor is free."""
        return not self.context.descends

    def _bind(self, program: str, extents: Sequence[Expr]) -> None:
        bind_program_ids(self.context, self.strip, program, extents)
        self._shared_row = self.context.values[self.row_id]

    def row(self, group: str) -> Value:
        """The position of a group's tile along the row axis."""
        value = self._shared_row
        text = value.text if self.groups == 1 else f"({self.groups}*{value.text} + {group})"
        return Value(text, (), Expr.of(0), self.row_tiles - 1)

    @property
    def row_id(self) -> SSAValue:
        return self.kernel.program_ids[self.row_axis]

    @property
    def row_tiles(self) -> Expr:
        return self.kernel.grid.data[self.row_axis]

    # ------------------------------------------------------------------ loads
    def fill(self, ring: Ring, tiles: Sequence[tuple[Copied, str, bool]]) -> None:
        """Load tiles into the next stage. Each is a tile, its number in shared memory, and whether
        every group has its own."""
        context, line = self.context, self.context.writer.line
        line(ring.is_free)
        line(f"ready = {ring.full}.index({ring.stage})")
        size = sum(c.tile.bytes * (self.groups if each else 1) for c, _, each in tiles)
        line(f"mbarrier.expect(ready, {size})")
        for copied, number, each in tiles:
            for group in map(str, range(self.groups if each else 1)):
                context.values[self.row_id] = self.row(group) if each else self._shared_row
                self._load(copied, self.own(number, group) if each else number)
        line(ring.next)

    def _load(self, copied: Copied, number: str) -> None:
        name = self.context.values[copied.tile.buffer].text
        place = ", ".join(copied.tile.place(self.context))
        self.context.writer.line(
            f"tma_load({name}, [{place}], ready, {copied.memory}.index({number}))")

    def own(self, stage: str, group: str) -> str:
        """The number of a group's tile within a stage."""
        return stage if self.groups == 1 else f"{self.groups}*{stage} + {group}"

    # ------------------------------------------------------------------ epilogue
    def _end(self) -> None:
        """Emit the epilogue of a group's tile; the last group may have no tile."""
        context, rows = self.context, self.row_tiles
        if not (rows % self.groups).terms:
            self._epilogue()
            return
        context.writer.line(f"if {context.values[self.row_id].text} < {context.size(rows).text}:")
        with context.writer.indented():
            self._epilogue()

    def _epilogue(self) -> None:
        for op in self.epilogue:
            if isinstance(op, StoreOp) and self.result:
                self._store(op, self.result)
            else:
                self.emit(op, self.context)

    def _store(self, op: StoreOp, result: Copied) -> None:
        """Store through shared memory, while the next tile is already started."""
        context, line = self.context, self.context.writer.line
        rows, columns = result.tile.extents
        value, count = context.values[op.value].text, tile_type(op.value).shape[1] // columns
        parts = [value]
        if count == 2:
            parts = [context.writer.fresh("half") for _ in range(2)]
            line(f"{', '.join(parts)} = {value}.reshape([{rows}, 2, {columns}])"
                 ".permute((0, 2, 1)).split()")
        *first, second = result.tile.place(context)
        for k, part in enumerate(parts):
            place = [*first, f"{second} + {k*columns}" if k else second]
            line("tma.store_wait(0)")
            line(f"{result.matrix('group')}.store({part})")
            line("fence_async_shared()")
            line(f"tma_store({context.values[result.tile.buffer].text}, "
                 f"[{', '.join(place)}], {result.memory}.index(group))")


def _result(epilogue: Sequence[Operation], context: Context) -> Copied | None:
    """The stored tile, if there is one that TMA can copy in one or two parts; else None."""
    stores = [op for op in epilogue if isinstance(op, StoreOp)]
    if len(stores) != 1 or len(list(stores[0].buffer.uses)) != 1:
        return None
    found = rectangle(stores[0], tile_type(stores[0].value).shape)
    if found is None or found.transposed or found.width > 4 or (
            buffer_type(found.buffer).element == t.i1):
        return None
    rows, columns = found.extents
    parts = columns * found.width // PART
    columns = columns // max(parts, 1)
    if parts > 2 or columns * found.width % SWIZZLES[-1]:
        return None
    part = replace(found, box=(*found.box[:-1], columns), extents=(rows, columns))
    return Copied(part, context.writer.fresh("result_tiles"))
