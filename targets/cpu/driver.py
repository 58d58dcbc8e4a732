"""The host function as one native entry: one call runs the whole model.

    void strata_entry(void *arena, void **table, const int64_t *sizes, int32_t threads)

The table holds the addresses of the thread pool's functions, then of the inputs, the outputs and
the constants. The entry opens one parallel region for the whole model; in it every thread walks
all launches, runs its share of each one's programs, and waits at a barrier where the next launch
may need what others wrote. Launches with little work are left to thread 0. Flush-to-zero is on
inside the region only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from dialects import block as bl
from dialects import host
from dialects.expr import Expr, product
from dialects.types import BufferType
from targets.cpu.cost import PARALLEL_PAYS, program_cost
from targets.cpu.driver_frame import ENTRY, frame
from targets.cpu.emit.index import Indices
from targets.cpu.emit.writer import Writer
from targets.cpu.machine import Machine
from targets.cpu.threads import FUNCTIONS

_ALIGNMENT = 64


@dataclass
class DriverText:
    """The LLVM text of a driver, and what its caller must provide."""

    module: str
    arena_bytes: Expr
    """Bytes of memory for intermediate values, over the host function's sizes."""
    constants: tuple[host.ConstantOp, ...]
    """The constants, in table order."""


@dataclass(frozen=True)
class KernelInfo:
    """What the driver must know of a kernel."""

    function: str
    op: bl.KernelOp
    cost: int

    @staticmethod
    def of(function: str, op: bl.KernelOp, machine: Machine) -> KernelInfo:
        return KernelInfo(function, op, program_cost(op, machine.lanes))


def emit_driver(
    func: host.FuncOp, kernels: Mapping[str, KernelInfo], machine: Machine
) -> DriverText:
    """The entry function of a host function. Raises ValueError for a launch of no kernel."""
    return _Driver(func, kernels, machine).emit()


@dataclass
class _Step:
    """One launch: its grid, and whether threads share it (None: known only at run time)."""

    op: host.LaunchOp
    kernel: KernelInfo
    total: Expr
    sizes: tuple[Expr, ...]

    @property
    def is_parallel(self) -> bool | None:
        schedule = self.kernel.op.schedule
        if schedule is not None and schedule.data.option("serial", 0):
            return False
        total = self.total.constant
        return None if total is None else total >= self.least_programs

    @property
    def least_programs(self) -> int:
        """The number of programs from which on threads share the launch."""
        return max(2, PARALLEL_PAYS // self.kernel.cost)


@dataclass
class _Driver:
    func: host.FuncOp
    kernels: Mapping[str, KernelInfo]
    machine: Machine
    constants: list[host.ConstantOp] = field(default_factory=list[host.ConstantOp])
    pointers: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])

    def __post_init__(self) -> None:
        self.writer = Writer("strata_body")
        self.indices = Indices(self.writer)
        self.sizes = {s: self.indices.symbol(self.writer.argument(f"%size.{s}"), 0)
                      for s in self.func.size_names}
        self.arena = self.func.arena_bytes or Expr.of(0)
        self.last_alone: bool | None = None

    def emit(self) -> DriverText:
        self._load_arguments()
        for op in self.func.body.block.ops:
            self._operation(op)
        body = ["define internal void @strata_body(ptr %arena, ptr %table, ptr %sizes, "
                "i64 %thread, i64 %threads) nounwind {", "entry:",
                *self.writer.scopes[0].lines, "  ret void", "}"]
        steps = [s for s in map(self._step, self.func.body.block.ops) if s is not None]
        module = "\n".join([
            frame(self.machine, self._parallel_condition(steps)), *body,
            *_kernel_declarations([s.kernel for s in steps]),
            *self.writer.declarations.values(), ""])
        return DriverText(module, self.arena, tuple(self.constants))

    # ------------------------------------------------------------------ arguments
    def _load_arguments(self) -> None:
        _load_sizes(self.writer, self.func.size_names)
        for k, argument in enumerate(self.func.body.block.args):
            self.pointers[argument] = self._table_entry(len(FUNCTIONS) + k)

    def _table_entry(self, k: int) -> str:
        place = self.writer.assign(f"getelementptr ptr, ptr %table, i64 {k}")
        return self.writer.assign(f"load ptr, ptr {place}")

    # ------------------------------------------------------------------ operations
    def _operation(self, op: object) -> None:
        match op:
            case host.ConstantOp():
                place = len(FUNCTIONS) + len(self.func.body.block.args) + len(self.constants)
                self.constants.append(op)
                self.pointers[op.result] = self._table_entry(place)
            case host.AllocOp():
                self.pointers[op.result] = self._allocate(op)
            case host.ViewOp():
                self.pointers[op.result] = self.pointers[op.source]
            case host.CopyOp():
                self._copy(op)
            case host.LaunchOp():
                step = self._step(op)
                assert step is not None
                self._launch(step)
            case _:
                pass

    def _allocate(self, op: host.AllocOp) -> str:
        """At its place in the arena; a buffer that has none yet goes behind all others."""
        if op.offset is None:
            offset = _round_up(self.arena)
            self.arena = offset + op.type.byte_size
        else:
            offset = op.offset.data
        place = self.indices.scalar(offset.substitute(self.sizes))
        return self.writer.assign(f"getelementptr i8, ptr %arena, i64 {place}")

    def _copy(self, op: host.CopyOp) -> None:
        """Thread 0 copies."""
        assert isinstance(op.source.type, BufferType)
        count = self.indices.scalar(op.source.type.byte_size.substitute(self.sizes))
        self._wait(alone=True)
        w = self.writer
        mine = w.assign(self._mine(count))
        self.writer.emit(w.call("llvm.memcpy.p0.p0.i64", "void", [
            ("ptr", self.pointers[op.target]), ("ptr", self.pointers[op.source]),
            ("i64", mine), ("i1", "false")]))

    def _mine(self, count: str) -> str:
        """All for thread 0, nothing for the others."""
        first = self.writer.hoist("icmp eq i64 %thread, 0")
        return f"select i1 {first}, i64 {count}, i64 0"

    def _step(self, op: object) -> _Step | None:
        if not isinstance(op, host.LaunchOp):
            return None
        kernel = self.kernels.get(op.kernel.data)
        if kernel is None:
            raise ValueError(f"host.launch of @{op.kernel.data}, which is no kernel here")
        values = dict(zip(kernel.op.size_names, op.sizes.data, strict=True))
        total = product(kernel.op.grid.data).substitute(values)
        return _Step(op, kernel, total, op.sizes.data)

    def _launch(self, step: _Step) -> None:
        """This thread's share of the programs, if it has any."""
        w, parallel = self.writer, step.is_parallel
        total = self.indices.scalar(step.total.substitute(self.sizes))
        sizes = [self.indices.scalar(s.substitute(self.sizes)) for s in step.sizes]
        self._wait(alone=parallel is False)
        low, high = self._share(step, total)
        some, run, skip = w.assign(f"icmp slt i64 {low}, {high}"), w.fresh("run"), w.fresh("skip")
        w.emit(f"br i1 {some}, label %{run}, label %{skip}")
        w.start_block(run)
        arguments = ", ".join([*(f"ptr {self.pointers[b]}" for b in step.op.buffers),
                               *(f"i64 {s}" for s in (*sizes, low, high))])
        w.emit(f"call void @{step.kernel.function}({arguments})")
        w.emit(f"br label %{skip}")
        w.start_block(skip)

    def _share(self, step: _Step, total: str) -> tuple[str, str]:
        """The programs from `low` to below `high` are this thread's: balanced parts, in order."""
        w = self.writer
        if step.is_parallel is False:
            return "0", w.assign(self._mine(total))
        low, high = (self._part(total, t) for t in ("%thread", self._next_thread()))
        if step.is_parallel:
            return low, high
        shared = w.assign(f"icmp sge i64 {total}, {step.least_programs}")
        alone = w.assign(self._mine(total))
        return (w.assign(f"select i1 {shared}, i64 {low}, i64 0"),
                w.assign(f"select i1 {shared}, i64 {high}, i64 {alone}"))

    def _next_thread(self) -> str:
        return self.writer.hoist("add i64 %thread, 1")

    def _part(self, total: str, thread: str) -> str:
        scaled = self.writer.hoist(f"mul i64 {total}, {thread}", total, thread)
        return self.writer.hoist(f"udiv i64 {scaled}, %threads", scaled)

    def _wait(self, alone: bool) -> None:
        """A barrier before a step, unless thread 0 did the one before alone and does this too."""
        if self.last_alone is not None and not (alone and self.last_alone):
            self.writer.emit("call void @strata_barrier(ptr %table, i64 %threads)")
        self.last_alone = alone

    def _parallel_condition(self, steps: Sequence[_Step]) -> list[str]:
        """Text that ends in `%parallel = ...`: whether threads share any launch."""
        writer = Writer(ENTRY)
        indices = Indices(writer)
        found = "true" if any(s.is_parallel for s in steps) else "false"
        if found == "false":
            sizes = {s: indices.symbol(writer.argument(f"%size.{s}"), 0) for s in self.sizes}
            _load_sizes(writer, list(sizes))
            for step in (s for s in steps if s.is_parallel is None):
                total = indices.scalar(step.total.substitute(sizes))
                large = writer.assign(f"icmp sge i64 {total}, {step.least_programs}")
                found = writer.assign(f"or i1 {found}, {large}")
        return [*writer.scopes[0].lines, f"  %parallel = or i1 {found}, false"]


def _load_sizes(writer: Writer, names: Sequence[str]) -> None:
    for k, name in enumerate(names):
        place = writer.assign(f"getelementptr i64, ptr %sizes, i64 {k}")
        writer.emit(f"%size.{name} = load i64, ptr {place}")


def _round_up(size: Expr) -> Expr:
    return size.ceildiv(_ALIGNMENT) * _ALIGNMENT


def _kernel_declarations(kernels: Sequence[KernelInfo]) -> list[str]:
    lines: dict[str, str] = {}
    for kernel in kernels:
        types = ["ptr"] * len(kernel.op.buffers) + ["i64"] * (len(kernel.op.size_names) + 2)
        lines[kernel.function] = f"declare void @{kernel.function}({', '.join(types)})"
    return list(lines.values())
