"""One host function as LLVM text: allocations, copies and launches; see `module.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from xdsl.ir import Attribute, Operation, SSAValue

from dialects import host
from dialects.strata.assumptions import LARGEST_NUMBER
from dialects.strata.elements import byte_width
from dialects.strata.requirements import RequireOp, TrapOp
from dialects.strata.sizes import MAX_SIZE, AssumeOp, SizeOp, defined_sizes
from dialects.strata.types import BufferType
from dialects.symbolic.expr import Expr, maximum
from dialects.symbolic.symbol import Symbol
from targets.cpu.driver.launches import KernelInfo, Step
from targets.cpu.emit.index import Indices
from targets.cpu.emit.writer import Writer, size_arguments
from targets.cpu.runtime.checks import (
    Check,
    access_check,
    assume_check,
    index_check,
    memory_check,
    size_check,
)
from targets.cpu.runtime.heap import CHECK_WORD, RESULTS, SEEN_WORD, SEEN_WORDS
from targets.cpu.runtime.threads import FIRST_ARGUMENT, TURNS_ENTRY

_MOST_BYTES = float(2**47)


@dataclass
class Program:
    """What the functions of a model share while they are written."""

    main: host.FuncOp
    functions: Mapping[str, host.FuncOp]
    kernels: Mapping[str, KernelInfo]
    constants: list[host.ConstantOp] = field(default_factory=list[host.ConstantOp])
    places: dict[tuple[Attribute, BufferType], int] = field(
        default_factory=dict[tuple[Attribute, BufferType], int])
    """The position in `constants` of a value with its type."""
    checks: list[Check] = field(default_factory=list[Check])

    @cached_property
    def poisons(self) -> bool:
        """Whether memory is poisoned before it is written, because accesses are checked."""
        return any(isinstance(op, TrapOp) for f in self.functions.values()
                   for op in f.body.block.ops)

    def constant_entry(self, op: host.ConstantOp) -> int:
        """The table entry of a constant; equal constants share one."""
        first = FIRST_ARGUMENT + len(self.main.body.block.args)
        place = self.places.setdefault((op.value, op.type), len(self.constants))
        if place == len(self.constants):
            self.constants.append(op)
        return first + place

    def function_name(self, name: str) -> str:
        return "strata_call_" + re.sub(r"[^\w.$]", "_", name)


class FunctionText:
    """Writes one function. Subclasses add operations in `other`."""

    def __init__(self, program: Program, func: host.FuncOp):
        self.program, self.func = program, func
        self.is_main = func is program.main
        self.writer = Writer(func.sym_name.data)
        self.indices = Indices(self.writer)
        names = self.writer.size_arguments(func.size_names)
        self.sizes = {s: self.indices.symbol(name, 0)
                      for s, name in zip(func.size_names, names, strict=True)}
        self.pointers: dict[SSAValue, str] = {}
        self.steps: list[Step] = []
        self.uses_heap = bool(func.return_op.values)
        self.arena: str | None = "%arena" if self.is_main else None
        self.last_alone: bool | None = None if self.is_main else False
        """Whether only thread 0 did the last step; None right after a barrier."""

    def emit(self) -> str:
        self._begin()
        for op in self.func.body.block.ops:
            self._operation(op)
        return "\n".join([self._header(), "entry:", *self.writer.scopes[0].lines, "}"])

    # ------------------------------------------------------------------ arguments
    def _header(self) -> str:
        if self.is_main:
            return ("define internal i32 @strata_body(ptr %arena, ptr %table, ptr %sizes, "
                    "i64 %thread, i64 %threads) nounwind {")
        sizes = [f"i64 {name}" for name in size_arguments(self.func.size_names)]
        arguments = [f"ptr %arg{k}" for k, _ in enumerate(self.func.input_arguments)]
        parameters = ["ptr %table", "ptr %results", "i64 %thread", "i64 %threads", *sizes,
                      *arguments]
        name = self.program.function_name(self.func.sym_name.data)
        return f"define internal i32 @{name}({', '.join(parameters)}) nounwind {{"

    def _begin(self) -> None:
        """Name the arguments, and allocate the arena."""
        if self.is_main:
            load_sizes(self.writer, self.func.size_names)
            for k, argument in enumerate(self.func.body.block.args):
                self.pointers[argument] = self._table_entry(FIRST_ARGUMENT + k)
            return
        for k, argument in enumerate(self.func.input_arguments):
            self.pointers[argument] = f"%arg{k}"
        size = self.func.arena_bytes or Expr.of(0)
        if size.constant != 0:
            self.arena = self.allocate(size.substitute(self.sizes), self.func)

    def _table_entry(self, k: int) -> str:
        place = self.writer.assign(f"getelementptr ptr, ptr %table, i64 {k}")
        return self.writer.assign(f"load ptr, ptr {place}")

    # ------------------------------------------------------------------ operations
    def _operation(self, op: Operation) -> None:
        match op:
            case host.ConstantOp():
                self.pointers[op.result] = self._table_entry(self.program.constant_entry(op))
            case host.AllocOp():
                self.pointers[op.result] = self._placed(op)
            case host.ViewOp():
                self.pointers[op.result] = self.pointers[op.source]
            case host.CopyOp():
                self._copy(op)
            case host.LaunchOp():
                self._launch(self._step(op))
            case host.FreeOp():
                self.wait(alone=True)
                self.release(self.pointers[op.buffer])
            case host.ReturnOp():
                self._return(op)
            case SizeOp():
                self._read_sizes(op)
            case RequireOp():
                self._require(op)
            case TrapOp():
                self._trap(op)
            case AssumeOp():
                self._assume(op)
            case _:
                self.other(op)

    def other(self, op: Operation) -> None:
        raise ValueError(f"{op.name} cannot stand in a host function")

    def _placed(self, op: host.AllocOp) -> str:
        """The address of a buffer at its offset in the arena, or in memory of its own."""
        if op.offset is None:
            return self.allocate(self.byte_size(op.type), op)
        place = self.scalar(op.offset.data)
        return self.writer.assign(f"getelementptr i8, ptr {self.arena}, i64 {place}")

    def scalar(self, expr: Expr) -> str:
        """The value of an expression over this function's sizes."""
        return self.indices.scalar(expr.substitute(self.sizes))

    def product(self, sizes: Sequence[Expr]) -> Expr:
        """The product of expressions over this function's sizes, in terms of LLVM names."""
        return self.indices.product([size.substitute(self.sizes) for size in sizes])

    def byte_size(self, type_: BufferType) -> Expr:
        """The bytes of a buffer, in terms of LLVM names."""
        return self.product(type_.shape) * byte_width(type_.element)

    def _copy(self, op: host.CopyOp) -> None:
        """Copy a buffer, on thread 0."""
        assert isinstance(op.source.type, BufferType)
        self.wait(alone=True)
        self.copy(self.pointers[op.target], self.pointers[op.source],
                  self.indices.scalar(self.byte_size(op.source.type)))

    def copy(self, target: str, source: str, count: str) -> None:
        w = self.writer
        mine = w.assign(self._mine(count))
        w.emit(w.call("llvm.memcpy.p0.p0.i64", "void", [
            ("ptr", target), ("ptr", source), ("i64", mine), ("i1", "false")]))

    def _mine(self, count: str) -> str:
        """The whole count on thread 0, and 0 on the other threads."""
        first = self.writer.hoist("icmp eq i64 %thread, 0")
        return f"select i1 {first}, i64 {count}, i64 0"

    def _return(self, op: host.ReturnOp) -> None:
        """Store the address and shape of each returned buffer."""
        if self.arena is not None and not self.is_main:
            self.wait(alone=True)
            self.release(self.arena)
        place = 0
        target = "%results"
        if self.is_main and op.values:
            heap = self.writer.assign("call ptr @strata_heap(ptr %table)")
            target, place = heap, RESULTS
        for value in op.values:
            assert isinstance(value.type, BufferType)
            self.store(self.pointers[value], "ptr", target, place)
            for k, size in enumerate(value.type.shape, 1):
                self.store(self.scalar(size), "i64", target, place + k)
            place += 1 + value.type.rank
        self.writer.emit("ret i32 0")

    # ------------------------------------------------------------------ memory and checks
    def store(self, value: str, type_: str, base: str, word: int) -> None:
        place = self.writer.assign(f"getelementptr i64, ptr {base}, i64 {word}")
        self.writer.emit(f"store {type_} {value}, ptr {place}")

    def load(self, type_: str, base: str, word: int) -> str:
        place = self.writer.assign(f"getelementptr i64, ptr {base}, i64 {word}")
        return self.writer.assign(f"load {type_}, ptr {place}")

    def allocate(self, size: Expr, op: Operation) -> str:
        """Memory of its own, the same on every thread; ends the run if there is not enough.

        The size in bytes is in terms of LLVM names.
        """
        count = self.indices.scalar(size)
        if size.constant is None:
            huge = self.writer.assign(f"fcmp ogt double {self._estimate(size)}, {_MOST_BYTES:e}")
            count = self.writer.assign(f"select i1 {huge}, i64 -1, i64 {count}")
        return self.allocate_bytes(count, op)

    def allocate_bytes(self, count: str, op: Operation) -> str:
        """Like `allocate`, for `count` bytes."""
        self.uses_heap = True
        w = self.writer
        memory = w.assign(f"call ptr @strata_allocate(ptr %table, i64 {count}, i64 %thread, "
                          "i64 %threads)")
        self.last_alone = None
        there = w.assign(f"icmp ne ptr {memory}, null")
        self.check(there, memory_check(op), [count])
        if self.program.poisons:
            self._poison(memory, count)
        return memory

    def _poison(self, memory: str, count: str) -> None:
        """Fill memory with NaN or -1, on thread 0."""
        w = self.writer
        mine = w.assign(self._mine(count))
        w.emit(f"call void @llvm.memset.p0.i64(ptr {memory}, i8 -1, i64 {mine}, i1 false)")
        self._barrier()
        self.last_alone = None

    def _estimate(self, size: Expr) -> str:
        """A size as a double, which does not overflow."""
        w, total = self.writer, "0.0"
        for atoms, factor in size.terms:
            term = f"{float(factor):e}"
            for atom in atoms:
                whole = self.indices.scalar(Expr((((atom,), 1),)))
                real = w.assign(f"sitofp i64 {whole} to double")
                term = w.assign(f"fmul double {term}, {real}")
            total = w.assign(f"fadd double {total}, {term}")
        return total

    def release(self, memory: str) -> None:
        self.uses_heap = True
        self.writer.emit(f"call void @strata_release(ptr %table, ptr {memory}, i64 %thread)")

    def check(self, holds: str, check: Check, seen: Sequence[str]) -> None:
        """End the call with status 1 if `holds` is false, and record the values in `seen`."""
        self.uses_heap = True
        w, number = self.writer, len(self.program.checks)
        self.program.checks.append(check)
        go, fail = w.fresh("go"), w.fresh("fail")
        w.emit(f"br i1 {holds}, label %{go}, label %{fail}")
        w.start_block(fail)
        heap = w.assign("call ptr @strata_heap(ptr %table)")
        self.store(str(number), "i64", heap, CHECK_WORD)
        for k, value in enumerate(seen[:SEEN_WORDS]):
            self.store(value, "i64", heap, SEEN_WORD + k)
        w.emit("ret i32 1")
        w.start_block(go)

    def sync(self) -> None:
        """Make all earlier work visible to all threads; the next step waits until all have read."""
        if self.last_alone is not None:
            self._barrier()
        self.last_alone = False

    def _read_sizes(self, op: SizeOp) -> None:
        self.sync()
        for k, name in enumerate(defined_sizes(op)):
            value = self.load("i64", self.pointers[op.source], k)
            holds = self.writer.assign(f"icmp ule i64 {value}, {MAX_SIZE}")
            self.check(holds, size_check(op), [value])
            self.sizes[name] = self.indices.symbol(value, 0)

    def _require(self, op: RequireOp) -> None:
        """Check the index farthest from the lower bound, by an unsigned comparison of distances."""
        self.sync()
        w = self.writer
        low, high = (self.scalar(e.data) for e in (op.low, op.high))
        found = self.load("i64", self.pointers[op.values], 0)
        if op.farthest is not None:
            distance = w.assign(f"xor i64 {found}, {-2**63}")
            found = w.assign(f"add i64 {distance}, {low}")
        else:
            distance = w.assign(f"sub i64 {found}, {low}")
        room = self.scalar(maximum(op.high.data - op.low.data, Expr.of(1)))
        self.check(w.assign(f"icmp ult i64 {distance}, {room}"), index_check(op),
                   [found, low, high])

    def _trap(self, op: TrapOp) -> None:
        self.sync()
        found = self.load("i64", self.pointers[op.fault], 0)
        self.check(self.writer.assign(f"icmp eq i64 {found}, 0"), access_check(op), [found])

    def _assume(self, op: AssumeOp) -> None:
        """Check an assumption, unless that was done before the run."""
        if self.is_main and op.symbols <= {*self.func.size_names}:
            return
        if op.assumption.is_limit:
            total = self._estimate(op.left.data.substitute(self.sizes))
            holds = self.writer.assign(f"fcmp ole double {total}, {float(LARGEST_NUMBER):e}")
        else:
            left, right = self.scalar(op.left.data), self.scalar(op.right.data)
            test = "eq" if op.relation.data == "==" else "sle"
            holds = self.writer.assign(f"icmp {test} i64 {left}, {right}")
        self.check(holds, assume_check(op),
                   [self.scalar(Expr.symbol(s)) for s in sorted(op.symbols)])

    # ------------------------------------------------------------------ launches
    def _step(self, op: host.LaunchOp) -> Step:
        kernel = self.program.kernels.get(op.kernel.data)
        if kernel is None:
            raise ValueError(f"host.launch of @{op.kernel.data}: the module has no such kernel")
        values = dict(zip(kernel.op.size_names, op.sizes.data, strict=True))
        grid = tuple(extent.substitute(values) for extent in kernel.op.grid.data)
        step = Step(op, kernel, grid, op.sizes.data)
        self.steps.append(step)
        return step

    def _launch(self, step: Step) -> None:
        """Run this thread's share of the programs."""
        w = self.writer
        total = self.indices.scalar(self.product(step.grid))
        sizes = [self.scalar(s) for s in step.sizes]
        self.wait(alone=step.is_parallel is False)
        run, done = w.fresh("run"), w.fresh("done")
        if step.is_parallel is False:
            low, high, following = "0", w.assign(self._mine(total)), done
        else:
            low, high, following = self._ask(step, total)
        w.emit(f"br i1 {w.assign(f'icmp slt i64 {low}, {high}')}, label %{run}, label %{done}")
        w.start_block(run)
        arguments = ", ".join([*(f"ptr {self.pointers[b]}" for b in step.op.buffers),
                               *(f"i64 {s}" for s in (*sizes, low, high))])
        w.emit(f"call void @{step.kernel.function}({arguments})")
        w.emit(f"br label %{following}")
        w.start_block(done)

    def _ask(self, step: Step, total: str) -> tuple[str, str, str]:
        """Take part in a launch. Returns the range of programs and the block that asks for more.

        If only run time shows that there is little work, thread 0 does all of it.
        """
        w, threads = self.writer, "%threads"
        if step.is_parallel is None:
            shared = w.assign(f"icmp sge i64 {total}, {step.least_programs}")
            alone = w.assign(self._mine(total))
            total = w.assign(f"select i1 {shared}, i64 {total}, i64 {alone}")
            threads = w.assign(f"select i1 {shared}, i64 %threads, i64 1")
        place = w.hoist(f"getelementptr ptr, ptr %table, i64 {TURNS_ENTRY}")
        turns, ask = w.hoist(f"load ptr, ptr {place}", place), w.fresh("ask")
        w.emit(f"call void @strata_begin(ptr {turns}, i64 %thread)")
        w.emit(f"br label %{ask}")
        w.start_block(ask)
        pair = w.assign(f"call {{i64, i64}} @strata_next(ptr %table, ptr {turns}, "
                        f"i64 {total}, i64 {step.least_turn}, i64 %thread, i64 {threads})")
        low, high = (w.assign(f"extractvalue {{i64, i64}} {pair}, {k}") for k in (0, 1))
        return low, high, ask

    def wait(self, alone: bool) -> None:
        """A barrier before a step, unless thread 0 alone did the last step and does this one."""
        if self.last_alone is not None and not (alone and self.last_alone):
            self._barrier()
        self.last_alone = alone

    def _barrier(self) -> None:
        self.writer.emit("call void @strata_barrier(ptr %table, i64 %threads)")


def load_sizes(writer: Writer, sizes: Sequence[Symbol]) -> None:
    for k, name in enumerate(size_arguments(sizes)):
        place = writer.assign(f"getelementptr i64, ptr %sizes, i64 {k}")
        writer.emit(f"{name} = load i64, ptr {place}")
