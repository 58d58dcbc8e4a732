"""What the LLVM text of a host function is written with: values, memory, checks and barriers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from xdsl.ir import Attribute, Operation, SSAValue

from dialects import host
from dialects.records import dataclass
from dialects.strata.elements import byte_width
from dialects.strata.requirements import TrapOp
from dialects.strata.types import BufferType
from dialects.symbolic.expr import Expr
from targets.communication import Exchange
from targets.cpu.driver.frame import fill
from targets.cpu.driver.heap import allocate, copy, heap, release
from targets.cpu.driver.launches import KernelInfo, Step
from targets.cpu.driver.table import barrier
from targets.cpu.emit.index import Indices
from targets.cpu.llvm.native import Native
from targets.cpu.llvm.operands import symbol_names
from targets.cpu.llvm.writer import Writer
from targets.cpu.runtime.checks import (
    Check,
    memory_check,
)
from targets.cpu.runtime.heap import CHECK_WORD, SEEN_WORD, SEEN_WORDS
from targets.cpu.runtime.threads import FIRST_ARGUMENT

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
    used: dict[str, Native[..., Any]] = field(default_factory=dict[str, "Native[..., Any]"])
    """The native functions that are called."""
    profiled: bool = False
    """Whether launches are timed; the first constant of the table is then the clock's memory."""
    launches: list[host.LaunchOp | host.CollectiveOp] = field(
        default_factory=list["host.LaunchOp | host.CollectiveOp"])
    """All launches and collective operations, in the order of the text."""

    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    """All collective operations, in the order of the text."""

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
        return first + place + self.profiled

    @property
    def clock_entry(self) -> int:
        """The table entry of the memory that `clock.py` counts in."""
        return FIRST_ARGUMENT + len(self.main.body.block.args)

    @cached_property
    def function_names(self) -> Mapping[str, str]:
        """The native name of each host function."""
        names = symbol_names(f"strata_call_{name}" for name in self.functions)
        return dict(zip(self.functions, names, strict=True))


class Statements:
    """The statements of one function that is being written."""

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

    def scalar(self, expr: Expr) -> str:
        """The value of an expression over this function's sizes."""
        return self.indices.scalar(expr.substitute(self.sizes))

    def product(self, sizes: Sequence[Expr]) -> Expr:
        """The product of expressions over this function's sizes, in terms of LLVM names."""
        return self.indices.product([size.substitute(self.sizes) for size in sizes])

    def byte_size(self, type_: BufferType) -> Expr:
        """The bytes of a buffer, in terms of LLVM names."""
        return self.product(type_.shape) * byte_width(type_.element)

    def native(self, function: Native[..., Any], *arguments: str) -> str:
        """The text of a call of a native function, which becomes part of the module."""
        self.program.used[function.name] = function
        return function.call(*arguments)

    def store(self, value: str, type_: str, base: str, word: int) -> None:
        place = self.writer.assign(f"getelementptr i64, ptr {base}, i64 {word}")
        self.writer.emit(f"store {type_} {value}, ptr {place}")

    def load(self, type_: str, base: str, word: int) -> str:
        place = self.writer.assign(f"getelementptr i64, ptr {base}, i64 {word}")
        return self.writer.assign(f"load {type_}, ptr {place}")

    def copy(self, target: str, source: str, count: str) -> None:
        w = self.writer
        mine = w.assign(self._mine(count))
        w.declarations[copy.name] = copy.declaration
        w.emit(copy.call(target, source, mine, "false"))

    def _mine(self, count: str) -> str:
        """The whole count on thread 0, and 0 on the other threads."""
        first = self.writer.hoist("icmp eq i64 %thread, 0")
        return f"select i1 {first}, i64 {count}, i64 0"

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
        memory = w.assign(self.native(allocate, "%table", count, "%thread", "%threads"))
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
        w.emit(fill.call(memory, "-1", mine, "false"))
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
        self.writer.emit(self.native(release, "%table", memory, "%thread"))

    def check(self, holds: str, check: Check, seen: Sequence[str]) -> None:
        """End the call with status 1 if `holds` is false, and record the values in `seen`."""
        self.uses_heap = True
        w, number = self.writer, len(self.program.checks)
        self.program.checks.append(check)
        go, fail = w.fresh("go"), w.fresh("fail")
        w.emit(f"br i1 {holds}, label %{go}, label %{fail}")
        w.start_block(fail)
        words = w.assign(self.native(heap, "%table"))
        self.store(str(number), "i64", words, CHECK_WORD)
        for k, value in enumerate(seen[:SEEN_WORDS]):
            self.store(value, "i64", words, SEEN_WORD + k)
        w.emit("ret i32 1")
        w.start_block(go)

    def sync(self) -> None:
        """Make all earlier work visible to all threads; the next step waits until all have read."""
        if self.last_alone is not None:
            self._barrier()
        self.last_alone = False

    def wait(self, alone: bool) -> None:
        """A barrier before a step, unless thread 0 alone did the last step and does this one."""
        if self.last_alone is not None and not (alone and self.last_alone):
            self._barrier()
        self.last_alone = alone

    def _barrier(self) -> None:
        self.writer.emit(self.native(barrier, "%table", "%threads"))
