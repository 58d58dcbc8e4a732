"""One host function as LLVM text: allocations, copies and launches; see `module.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xdsl.ir import Operation

from dialects import host
from dialects.strata.assumptions import LARGEST_NUMBER, MAX_SIZE
from dialects.strata.requirements import RequireOp, TrapOp
from dialects.strata.sizes import AssumeOp, SizeOp, defined_sizes
from dialects.strata.types import buffer_type
from dialects.symbolic.expr import Expr, maximum
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_name
from targets.communication import Exchange
from targets.cpu.driver.clock import HOST, LAUNCHES, OUTSIDE, stamp
from targets.cpu.driver.exchange import exchange, failed
from targets.cpu.driver.frame import body
from targets.cpu.driver.heap import heap
from targets.cpu.driver.launches import Step
from targets.cpu.driver.statements import Statements
from targets.cpu.driver.turns import begin, next_range
from targets.cpu.llvm.writer import Writer, size_arguments
from targets.cpu.runtime.checks import (
    access_check,
    assume_check,
    exchange_check,
    index_check,
    size_check,
)
from targets.cpu.runtime.heap import RESULTS
from targets.cpu.runtime.threads import FIRST_ARGUMENT, TURNS_ENTRY


class _Private(NamedTuple):
    """The private memory of a launch: its address, and that of this thread's part."""

    whole: str
    own: str


class FunctionText(Statements):
    """Writes one function. Subclasses add operations in `other`."""

    def emit(self) -> str:
        self._begin()
        for op in self.func.body.block.ops:
            self._operation(op)
        return "\n".join([self._header(), "entry:", *self.writer.scopes[0].lines, "}"])

    # ------------------------------------------------------------------ arguments
    def _header(self) -> str:
        if self.is_main:
            return body.header
        sizes = [f"i64 {name}" for name in size_arguments(self.func.size_names)]
        arguments = [f"ptr %arg{k}" for k, _ in enumerate(self.func.input_arguments)]
        parameters = ["ptr %table", "ptr %results", "i64 %thread", "i64 %threads", *sizes,
                      *arguments]
        name = self.program.function_names[self.func.sym_name.data]
        return f"define internal i32 @{name}({', '.join(parameters)}) nounwind {{"

    def _begin(self) -> None:
        """Name the arguments, and allocate the arena."""
        if self.is_main:
            load_sizes(self.writer, self.func.size_names)
            for k, argument in enumerate(self.func.body.block.args):
                self.pointers[argument] = self._table_entry(FIRST_ARGUMENT + k)
            self._stamp(HOST)
            return
        for k, argument in enumerate(self.func.input_arguments):
            self.pointers[argument] = f"%arg{k}"
        size = self.func.arena_bytes or Expr.of(0)
        if size.constant != 0:
            self.arena = self.allocate(size.substitute(self.sizes), self.func)

    def _table_entry(self, k: int) -> str:
        place = self.writer.assign(f"getelementptr i64, ptr %table, i64 {k}")
        return self.writer.assign(f"load ptr, ptr {place}")

    # ------------------------------------------------------------------ operations
    def _operation(self, op: Operation) -> None:
        match op:
            case host.ConstantOp():
                self.pointers[op.result] = self._table_entry(self.program.constant_entry(op))
            case host.AllocOp():
                self.pointers[op.result] = self._placed(op)
            case host.PartOp():
                offset = self.scalar(op.offset)
                self.pointers[op.result] = self.writer.assign(
                    f"getelementptr i8, ptr {self.pointers[op.source]}, i64 {offset}")
            case host.ViewOp():
                self.pointers[op.result] = self.pointers[op.source]
            case host.CopyOp():
                self._copy(op)
            case host.CollectiveOp():
                self._exchange(op)
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
        """The address of a buffer at its offset in the arena, or in memory of its own.

        Where the arena is empty, so are its buffers, and there is no address.
        """
        if op.offset is None:
            return self.allocate(self.byte_size(op.type), op)
        if self.arena is None:
            return "null"
        place = self.scalar(op.offset.data)
        return self.writer.assign(f"getelementptr i8, ptr {self.arena}, i64 {place}")

    def _copy(self, op: host.CopyOp) -> None:
        """Copy a buffer, on thread 0, unless the caller has given both the same memory."""
        self.wait(alone=True)
        self._stamp(HOST)
        target, source = self.pointers[op.target], self.pointers[op.source]
        count = self.indices.scalar(self.byte_size(buffer_type(op.source)))
        if self.is_main:
            is_same = self.writer.assign(f"icmp eq ptr {target}, {source}")
            count = self.writer.assign(f"select i1 {is_same}, i64 0, i64 {count}")
        self.copy(target, source, count)

    def _exchange(self, op: host.CollectiveOp) -> None:
        """Perform a collective operation, on thread 0; end the run if it fails."""
        self.wait(alone=True)
        self.program.launches.append(op)
        self._stamp(LAUNCHES + len(self.program.launches) - 1)
        self.uses_heap = True
        number, exchanges = len(self.program.exchanges), self.program.exchanges
        exchanges.append(Exchange(
            op.collective, buffer_type(op.source).dtype.name, location_name(op)))
        buffers = (op.source, op.target)
        counts = [self.indices.scalar(self.product(buffer_type(b).shape)) for b in buffers]
        self.writer.emit(self.native(
            exchange, "%table", str(number), *(self.pointers[b] for b in buffers), *counts,
            "%thread"))
        self.sync()
        self._stamp(HOST)
        status = self.writer.assign(self.native(failed, "%table"))
        self.check(self.writer.assign(f"icmp eq i64 {status}, 0"), exchange_check(op), [])

    def _return(self, op: host.ReturnOp) -> None:
        """Store the address and shape of each returned buffer."""
        if self.is_main and self.program.profiled:
            self._barrier()  # the last launch ends when all threads have left it
            self._stamp(OUTSIDE)
        if self.arena is not None and not self.is_main:
            self.wait(alone=True)
            self.release(self.arena)
        place = 0
        target = "%results"
        if self.is_main and op.values:
            target, place = self.writer.assign(self.native(heap, "%table")), RESULTS
        for value in op.values:
            type_ = buffer_type(value)
            self.store(self.pointers[value], "ptr", target, place)
            for k, size in enumerate(type_.shape, 1):
                self.store(self.scalar(size), "i64", target, place + k)
            place += 1 + type_.rank
        self.writer.emit("ret i32 0")

    # ------------------------------------------------------------------ sizes and checks
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
        grid += () if op.when is None else (op.when.data,)
        step = Step(op, kernel, grid, op.sizes.data)
        self.steps.append(step)
        self.program.launches.append(op)
        return step

    def _stamp(self, number: int) -> None:
        """Let the clock of a profile count for another step, which starts now."""
        if self.program.profiled:
            counts = self._table_entry(self.program.clock_entry)
            self.writer.emit(self.native(stamp, counts, str(number), "%thread"))

    def _launch(self, step: Step) -> None:
        """Run this thread's share of the programs."""
        w = self.writer
        total = self.indices.scalar(self.product(step.grid))
        sizes = [self.scalar(s) for s in step.sizes]
        private = self._private(step)
        self.wait(alone=step.is_parallel is False)
        self._stamp(LAUNCHES + len(self.program.launches) - 1)
        run, done = w.fresh("run"), w.fresh("done")
        if step.is_parallel is False:
            low, high, following = "0", w.assign(self._mine(total)), done
        else:
            low, high, following = self._ask(step, total)
        w.emit(f"br i1 {w.assign(f'icmp slt i64 {low}, {high}')}, label %{run}, label %{done}")
        w.start_block(run)
        arguments = ", ".join([*(f"ptr {self.pointers[b]}" for b in step.op.buffers),
                               *(f"i64 {s}" for s in (*sizes, low, high)),
                               *([] if private is None else [f"ptr {private.own}"])])
        w.emit(f"call void @{step.kernel.function}({arguments})")
        w.emit(f"br label %{following}")
        w.start_block(done)
        if private is not None:  # which no thread may use any more
            self._barrier()
            self.release(private.whole)
            self.last_alone = None

    def _private(self, step: Step) -> _Private | None:
        """The memory of a launch that its programs use in turn, a part for each thread."""
        if step.kernel.private is None:
            return None
        w, threads = self.writer, 1 if step.is_parallel is False else self.indices.symbol(
            "%threads", 1)
        values = dict(zip(step.kernel.op.size_names, step.sizes, strict=True))
        each = step.kernel.private.substitute(values).substitute(self.sizes)
        whole = self.allocate(each * threads, step.op)
        if step.is_parallel is False:
            return _Private(whole, whole)
        before = w.assign(f"mul i64 {self.indices.scalar(each)}, %thread")
        return _Private(whole, w.assign(f"getelementptr i8, ptr {whole}, i64 {before}"))

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
        place = w.hoist(f"getelementptr i64, ptr %table, i64 {TURNS_ENTRY}")
        turns, ask = w.hoist(f"load ptr, ptr {place}", place), w.fresh("ask")
        w.emit(self.native(begin, turns, "%thread"))
        w.emit(f"br label %{ask}")
        w.start_block(ask)
        pair = w.assign(self.native(next_range, "%table", turns, total, str(step.least_turn),
                                    "%thread", threads))
        low, high = (w.assign(f"extractvalue {{i64, i64}} {pair}, {k}") for k in (0, 1))
        return low, high, ask


def load_sizes(writer: Writer, sizes: Sequence[Symbol]) -> None:
    for k, name in enumerate(size_arguments(sizes)):
        place = writer.assign(f"getelementptr i64, ptr %sizes, i64 {k}")
        writer.emit(f"{name} = load i64, ptr {place}")
