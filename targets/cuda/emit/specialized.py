"""Products whose factors a warp of their own loads: in Gluon, Triton's lower language.

A schedule with `specialize = 1` has groups of four warps that multiply, each a tile of its own, and
one more warp that copies factors into shared memory, up to `stages` steps ahead. The groups' tiles
lie below each other, and so have the columns' factor in common. Programs stay, and take one such
column of tiles after another: while the ends of tiles are computed, the next ones' factors come.

    def contract_loads(...):                def contract_sums(..., group):
        for program in ...:                     for program in ...:
            for k in ...:                           for k in ...:
                wait until a stage is free              wait until a stage is full
                load the factors of k into it           multiply; the stage before is free
                                                    map, store

Barriers in shared memory tell that stages are full, and free again; each use of a stage changes
their phase. What is behind the loop is printed as in other kernels: it takes the layouts of the
sums. Triton's interpreter has no Gluon.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from xdsl.ir import Attribute, Operation, SSAValue

from dialects import types as t
from dialects.block import KernelOp, StoreOp
from dialects.expr import Expr
from targets.cuda.emit.context import Context, buffer_type, tile_type
from targets.cuda.emit.programs import bind_program_ids
from targets.cuda.emit.scalar import NATIVE_FLOATS
from targets.cuda.emit.specialized_form import (
    SWIZZLES,
    Rectangle,
    Specialized,
    rectangle,
    specialized_form,
)
from targets.cuda.emit.values import NATIVE_POINTERS, Value, dtype_text, pointer_type
from targets.cuda.errors import EmitError

GROUP = 4
"""Warps that multiply a tile."""
HEADER = """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait)

# Triton 3.6 has other names than later versions
tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
"""
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
    "ready", "stage"))
"""Those that stand in texts, so that nothing of the kernel's own may have them."""
GROUPS = 2
"""At most: more leave threads too few registers to begin with."""
REGISTERS, LOADER_REGISTERS = 240, 24
"""Of a thread that multiplies, and of one that loads."""
PART = 256
"""The bytes of a row of results that are stored at once."""


def programs_of(extents: Sequence[int], groups: int, at_once: int) -> int:
    """How many programs run for a grid, so many tiles of rows each at a time; they stay."""
    *outer, rows, columns = extents
    return min(prod(outer) * -(-rows // groups) * columns, at_once)


@dataclass(frozen=True)
class Copied:
    """Tiles that are copied at once, and the memory they are copied to or from."""

    tile: Rectangle
    extents: tuple[int, int]
    memory: str

    @property
    def layout(self) -> str:
        return (f"NVMMASharedLayout(swizzle_byte_width={self.tile.swizzle}, "
                f"element_bitwidth={8 * self.tile.width}, rank=2)")

    @property
    def element(self) -> Attribute:
        return buffer_type(self.tile.buffer).element

    @property
    def pointer(self) -> str:
        """The type of a parameter that says where the tiles are in memory."""
        element = NATIVE_POINTERS.get(self.element) or pointer_type(self.element)
        return f"tensordesc<{element[1:]}{list(self.extents)},{self.layout}>"

    def allocation(self, count: int) -> str:
        element = (NATIVE_FLOATS.get(self.element) or dtype_text(self.element))
        return (f"{self.memory} = gl.allocate_shared_memory({element}, "
                f"{[count, *self.extents]}, gl.{self.layout})")


@dataclass
class Emission:
    """The text of one kernel: its functions, in the order in which they call each other."""

    kernel: KernelOp
    context: Context
    groups: int
    stages: int
    strip: int
    emit: Callable[[Operation, Context], None]

    def __post_init__(self) -> None:
        self.form: Specialized = specialized_form(self.kernel)
        fresh = self.context.writer.fresh
        self.left = Copied(self.form.left, self.form.left.extents, fresh("left_tiles"))
        self.right = Copied(self.form.right, self.form.right.extents, fresh("right_tiles"))
        self.result = self._result()
        self.full, self.free = fresh("full"), fresh("free")

    def _result(self) -> Copied | None:
        """What is stored, if that is one tile that can be copied in one or two parts."""
        stores = [op for op in self.form.behind if isinstance(op, StoreOp)]
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
        return Copied(found, (rows, columns), self.context.writer.fresh("result_tiles"))

    @property
    def pointers(self) -> Mapping[SSAValue, str]:
        """The types of parameters that are not plain pointers."""
        copied = [self.left, self.right, *([self.result] if self.result else [])]
        return {c.tile.buffer: c.pointer for c in copied}

    # ------------------------------------------------------------------ functions
    def text(self, name: str, signature: Sequence[tuple[str, str]]) -> str:
        """All functions; what a kernel's text says of it comes before."""
        loads, sums = (self.context.writer.fresh(f"{name}_{x}") for x in ("loads", "sums"))
        shared = [c.memory for c in (self.left, self.right, self.result) if c]
        parameters = [p for p, _ in signature]
        inner = ", ".join([*parameters, *shared, self.full, self.free])
        texts = [self._function(f"{loads}({inner})", self._loads),
                 self._function(f"{sums}({inner}, group: gl.constexpr)", self._sums),
                 self._function(f"{name}({', '.join(parameters)})",
                                lambda: self._start(loads, sums, inner))]
        return "\n\n".join(texts)

    def _function(self, head: str, body: Callable[[], None]) -> str:
        """Tiles that name no layout take that of what they meet."""
        writer = self.context.writer
        writer.lines, self.context.products = [], {}
        with writer.indented():
            body()
            lines, writer.lines = writer.lines, []
            for product, name in self.context.products.items():
                writer.line(f"{name} = {product}")
        text = "\n".join(["@gluon.jit", f"def {head}:", *writer.lines, *lines, ""])
        return text.replace("tl.full(", "gl.full(")

    def _start(self, loads: str, sums: str, inner: str) -> None:
        line = self.context.writer.line
        line(self.left.allocation(self.stages * self.groups))
        line(self.right.allocation(self.stages))
        if self.result:
            line(self.result.allocation(self.groups))
        for barriers in (self.full, self.free):
            line(f"{barriers} = gl.allocate_shared_memory(gl.int64, [{self.stages}, 1], "
                 "mbarrier.MBarrierLayout())")
        line(f"for stage in gl.static_range({self.stages}):")
        with self.context.writer.indented():
            line(f"mbarrier.init({self.full}.index(stage), count=1)")
            line(f"mbarrier.init({self.free}.index(stage), count={self.groups})")
        line("fence_async_shared()")
        parts = [f"({sums}, ({inner}, {group}))" for group in range(self.groups)]
        registers = [REGISTERS] * (self.groups - 1)
        line(f"gl.warp_specialize([{', '.join([*parts, f'({loads}, ({inner}))'])}], "
             f"{[GROUP] * (self.groups - 1) + [1]}, {[*registers, LOADER_REGISTERS]})")

    # ------------------------------------------------------------------ tiles of a program
    @contextmanager
    def _programs(self) -> Generator[None]:
        """A loop over what a program takes, a column of tiles at a time."""
        context = self.context
        *outer, rows, columns = self.kernel.grid.data
        extents = [*outer, rows.ceildiv(self.groups), columns]
        count, program = context.product(extents).text, context.writer.fresh("program")
        context.writer.line(
            f"for {program} in range(tl.program_id(0), {count}, tl.num_programs(0)):")
        with context.writer.indented():
            bind_program_ids(context, self.strip, program, extents)
            yield

    def _row(self, group: str) -> Value:
        """The position of a group's tile among those of rows."""
        value, rows = self.context.values[self._row_id], self.kernel.grid.data[-2]
        text = value.text if self.groups == 1 else f"({self.groups}*{value.text} + {group})"
        return Value(text, (), Expr.of(0), rows - 1)

    @property
    def _row_id(self) -> SSAValue:
        return self.kernel.program_ids[-2]

    def _place(self, tile: Rectangle) -> str:
        """Where a tile begins."""
        found = self.context.indices(tile.origin, (), tile.indices)
        return f"[{', '.join(v.text for v in found)}]"

    @property
    def _steps(self) -> range:
        """Of the loop over the sum."""
        loop = self.form.loop
        lower, upper, step = (e.data.constant for e in (loop.lower, loop.upper, loop.step))
        assert lower is not None and upper is not None and step
        return range(lower, upper, step)

    # ------------------------------------------------------------------ loads
    def _loads(self) -> None:
        context, line = self.context, self.context.writer.line
        line("stage = 0")
        line("phase = 1")
        with self._programs():
            counter = self._counter()
            line(f"for {counter} in {self._steps}:")
            with context.writer.indented():
                line(f"mbarrier.wait({self.free}.index(stage), phase)")
                line(f"ready = {self.full}.index(stage)")
                line(f"mbarrier.expect(ready, {self._step_bytes})")
                shared = context.values[self._row_id]
                for group in range(self.groups):
                    context.values[self._row_id] = self._row(str(group))
                    self._load(self.left, self._left_stage(str(group)))
                    context.values[self._row_id] = shared
                self._load(self.right, "stage")
                line(f"stage, phase = following(stage, phase, {self.stages})")

    def _load(self, copied: Copied, number: str) -> None:
        name = self.context.values[copied.tile.buffer].text
        self.context.writer.line(f"tma_load({name}, {self._place(copied.tile)}, ready, "
                                 f"{copied.memory}.index({number}))")

    @property
    def _step_bytes(self) -> int:
        left, right = (prod(c.extents) * c.tile.width for c in (self.left, self.right))
        return self.groups * left + right

    def _left_stage(self, group: str) -> str:
        """The number of a group's tile of a stage."""
        return "stage" if self.groups == 1 else f"{self.groups}*stage + {group}"

    def _counter(self) -> str:
        loop = self.form.loop
        counter = self.context.writer.fresh(loop.counter.name_hint or "k")
        self.context.values[loop.counter] = Value(counter)
        return counter

    # ------------------------------------------------------------------ sums
    def _sums(self) -> None:
        context, line = self.context, self.context.writer.line
        rows, columns = self.form.rows, self.form.columns
        depth = 256 // (8 * self.left.tile.width)
        line("layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], "
             f"warps_per_cta=[{GROUP}, 1], instr_shape=[16, {min(columns, 256)}, {depth}])")
        zeros = f"gl.zeros([{rows}, {columns}], gl.float32, layout)"
        line("stage = 0")
        line("phase = 0")
        with self._programs():
            context.values[self._row_id] = self._row("group")
            total = context.writer.fresh("sums")
            line(f"{total} = {zeros}")
            if self._part == len(self._steps):
                self._multiply(total)
            else:
                self._multiply_in_parts(total, zeros)
            context.values[self.form.loop.results[0]] = Value(total, (rows, columns))
            self._end()
        if self.result:
            line("tma.store_wait(0)")

    @property
    def _part(self) -> int:
        """After how many steps a sum of fewer bits than f32 has is added to another: such as are
        equal parts of all."""
        steps, promote = len(self._steps), self.context.promote
        if not promote or promote >= steps * self._steps.step:
            return steps
        if promote < self._steps.step:
            raise EmitError(f"sums of {promote} products are no steps of {self._steps.step}")
        return max(n for n in range(1, promote // self._steps.step + 1) if steps % n == 0)

    @property
    def _factors(self) -> str:
        """The tiles of a step that a group multiplies."""
        return ", ".join(
            f"{c.memory}.index({number})" + ".permute((1, 0))" * c.tile.transposed
            for c, number in ((self.left, self._left_stage("group")), (self.right, "stage")))

    def _multiply(self, sums: str) -> None:
        """Add the products of all steps; what a step has read is free when the next is begun."""
        line = self.context.writer.line
        counter = self._counter()
        line(f"for {counter} in {self._steps}:")
        with self.context.writer.indented():
            line(f"mbarrier.wait({self.full}.index(stage), phase)")
            line(f"{sums} = warpgroup_mma({self._factors}, {sums}, is_async=True)")
            line(f"{sums} = warpgroup_mma_wait(1, deps=[{sums}])")
            line(f"mbarrier.arrive({self._preceding}, pred={counter} > {self._steps.start})")
            line(f"stage, phase = following(stage, phase, {self.stages})")
        line(f"{sums} = warpgroup_mma_wait(0, deps=[{sums}])")
        line(f"mbarrier.arrive({self._preceding})")

    def _multiply_in_parts(self, total: str, zeros: str) -> None:
        """Add the products of all steps, those of a few of them at a time."""
        line, indented = self.context.writer.line, self.context.writer.indented
        fresh = self.context.writer.fresh
        sums, part, step = fresh("part"), fresh("k"), fresh("step")
        line(f"for {part} in range({len(self._steps) // self._part}):")
        with indented():
            line(f"{sums} = {zeros}")
            line(f"for {step} in gl.static_range({self._part}):")
            with indented():
                line(f"mbarrier.wait({self.full}.index(stage), phase)")
                line(f"{sums} = warpgroup_mma({self._factors}, {sums}, use_acc={step} > 0, "
                     "is_async=True)")
                line(f"if {step} > 0:")
                with indented():
                    line(f"{sums} = warpgroup_mma_wait(1, deps=[{sums}])")
                    line(f"mbarrier.arrive({self._preceding})")
                line(f"stage, phase = following(stage, phase, {self.stages})")
            line(f"{sums} = warpgroup_mma_wait(0, deps=[{sums}])")
            line(f"mbarrier.arrive({self._preceding})")
            line(f"{total} = {total} + {sums}")

    @property
    def _preceding(self) -> str:
        """The barrier of the stage before, which no product reads any more."""
        return f"{self.free}.index(preceding(stage, {self.stages}))"

    # ------------------------------------------------------------------ behind the sums
    def _end(self) -> None:
        """Of a group's tile, if there is one: the last of those below each other may be none."""
        context, rows = self.context, self.kernel.grid.data[-2]
        if not (rows % self.groups).terms:
            self._behind()
            return
        context.writer.line(f"if {context.values[self._row_id].text} < {context.size(rows).text}:")
        with context.writer.indented():
            self._behind()

    def _behind(self) -> None:
        for op in self.form.behind:
            if isinstance(op, StoreOp) and self.result:
                self._store(op, self.result)
            else:
                self.emit(op, self.context)

    def _store(self, op: StoreOp, result: Copied) -> None:
        """Through shared memory, while the next tile is begun."""
        context, line = self.context, self.context.writer.line
        rows, columns = result.extents
        value, count = context.values[op.value].text, tile_type(op.value).shape[1] // columns
        parts = [value]
        if count == 2:
            parts = [context.writer.fresh("half") for _ in range(2)]
            line(f"{', '.join(parts)} = {value}.reshape([{rows}, 2, {columns}])"
                 ".permute((0, 2, 1)).split()")
        first, second = context.indices(result.tile.origin, (), result.tile.indices)
        for k, part in enumerate(parts):
            place = f"{second.text} + {k*columns}" if k else second.text
            line("tma.store_wait(0)")
            line(f"{result.memory}.index(group).store({part})")
            line("fence_async_shared()")
            line(f"tma_store({context.values[result.tile.buffer].text}, "
                 f"[{first.text}, {place}], {result.memory}.index(group))")

