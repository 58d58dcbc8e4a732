"""Specialized programs for the sizes with which a model is called most often.

A model with open sizes is one program that runs at any size. This module counts the sizes of
calls. Frequent sizes get a specialized program in which they are constants, and which then answers
calls with these sizes. Its results are the same except for rounding, because kernels may add in
another order.

The general program remains (`variants.py`). It answers calls whose sizes have no specialized
program, and calls in which a specialized program fails. Callers therefore never see a failure of
specialization; it is recorded in `Specialization.remark`.

Specialized programs share weights with the general one where they use the same ones. Each has its
own buffer for intermediate values.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from compiler.diagnostics import StrataError, log
from compiler.instrument import Instrument
from compiler.options import CompileOptions, Specialize
from compiler.pipeline.driver import Compiler
from compiler.pipeline.source import Snapshot
from compiler.recompilation import Fits, Recompiler
from compiler.variants import WATCHED, Entry, Shapes, Specialization, Variants, shapes_of
from dialects.strata.assumptions import ChoiceError
from dialects.strata.binding import EvaluationError, bind_sizes
from dialects.strata.sizes import has_choices
from dialects.symbolic.symbol import Symbol
from targets.base import Executable as Program

if TYPE_CHECKING:
    from compiler.io.signature import Signature
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step
    from dialects.strata.types import Array

FAILURES = 3
"""The number of failures after which specialization stops: the model must be the cause."""
THREAD = "strata-specialize"

# ---------------------------------------------------------------------- compiling
class Stopped(Exception):
    """The process is ending, so the program is no longer needed."""


class _UntilExit(Instrument):
    """Ends a compilation in a thread once the main thread has ended."""

    def before(self, step: Step, state: State) -> None:
        if not threading.main_thread().is_alive():
            raise Stopped


@dataclass(frozen=True)
class Specializer:
    """Compiles a snapshot of a model for given sizes, or the model itself, if the sizes break a
    choice that the snapshot holds."""

    snapshot: Snapshot
    signature: Signature
    options: CompileOptions
    recompiler: Recompiler

    def sizes(self, inputs: Sequence[Array]) -> dict[Symbol, int]:
        """The values of the model's size symbols. Raises EvaluationError."""
        return bind_sizes(self.signature.input_types, inputs, self.signature.input_names)

    def compile(self, sizes: Mapping[Symbol, int]) -> Program:
        """The program for these sizes. Raises StrataError, CompilerFault, or Stopped."""
        snapshot = replace(self.snapshot, sizes=self.named(sizes))
        compilation = Compiler(snapshot, self.options, [_UntilExit(), Fits([])])
        try:
            return compilation.load(compilation.prepare())
        except (ChoiceError, StrataError):
            if not has_choices(self.snapshot.source.module) or self.recompiler.refusal:
                raise
        return self.recompiler.compile_fixed(self.named(sizes), [_UntilExit()])

    def named(self, sizes: Mapping[Symbol, int]) -> dict[str, int]:
        """Sizes by the model's own names."""
        return {symbol.name: value for symbol, value in sizes.items()}


# ---------------------------------------------------------------------- counting
@dataclass(eq=False)
class _Record(Entry):
    """The record of one set of input shapes. `calls`: the number of calls without a program."""

    shapes: Shapes
    needed: int
    calls: int = 0
    sizes: Mapping[Symbol, int] = field(default_factory=dict[Symbol, int])
    state: str = ""
    remark: str = ""

    @property
    def is_busy(self) -> bool:
        return self.state in ("compiling", "ready")


class Specializing(Variants):
    """The general program with its specialized programs. It is thread-safe."""

    def __init__(
        self, general: Program, specializer: Specializer, choice: Specialize
    ):
        super().__init__(general, specializer.recompiler)
        self.specializer, self._choice = specializer, choice
        self._records: OrderedDict[Shapes, _Record] = OrderedDict()  # least recently used first
        self._compiling = False
        self._failures = 0

    # ------------------------------------------------------------------ calls
    def run_general(self, inputs: Sequence[Array]) -> list[Array]:
        outputs = super().run_general(inputs)
        self._count_call(inputs)
        return outputs

    def run_entry(
        self, entry: Entry, program: Program, inputs: Sequence[Array]
    ) -> list[Array] | None:
        if isinstance(entry, _Record):
            return self._run_special(entry, program, inputs)
        outputs = super().run_entry(entry, program, inputs)
        if outputs is not None:
            self._count_call(inputs)
        return outputs

    def _run_special(
        self, record: _Record, program: Program, inputs: Sequence[Array]
    ) -> list[Array]:
        """Run a specialized program; if it fails, run the general one."""
        try:
            outputs = program.run(inputs)
        except Exception as error:  # the general program's error, if it has one, is the caller's
            outputs = super().run_general(inputs)
            self._refuse(record, f"it failed where the general program does not: {error}")
            return outputs
        with self._lock:
            record.answered += 1
            if record.shapes in self._records:
                self._records.move_to_end(record.shapes)
        return outputs

    def _count_call(self, inputs: Sequence[Array]) -> None:
        due = self._count(shapes_of(inputs))
        if due is not None:
            self._start(due, inputs)

    def _count(self, shapes: Shapes) -> _Record | None:
        """Count a successful call. Returns the record if these sizes are to get a program now."""
        with self._lock:
            record = self._records.setdefault(shapes, _Record(shapes, self._choice.after))
            self._records.move_to_end(shapes)
            self._forget_some()
            record.calls += 1
            if record.calls < record.needed or record.state not in ("", "dropped"):
                return None
            if self._compiling or self._failures >= FAILURES:
                return None
            record.state, self._compiling = "compiling", True
            return record

    def _forget_some(self) -> None:
        """Forget the oldest set of sizes without a program if there are too many."""
        if len(self._records) > WATCHED + self._choice.most:
            del self._records[next(
                k for k, r in list(self._records.items()) if not r.is_busy)]

    # ------------------------------------------------------------------ programs
    def _start(self, record: _Record, inputs: Sequence[Array]) -> None:
        """Compile a program for the sizes of these inputs, here or in a thread."""
        try:
            record.sizes = self.specializer.sizes(inputs)
            if self._choice.background:
                threading.Thread(target=self._compile, args=[record], name=THREAD).start()
                return
        except (EvaluationError, RuntimeError) as error:  # no more threads, or the process ends
            self._compiling = False
            self._refuse(record, str(error))
            return
        self._compile(record)

    def _compile(self, record: _Record) -> None:
        """Compile the program of a set of sizes, or record why that failed."""
        try:
            self._admit(record, self.specializer.compile(record.sizes))
        except Stopped:
            pass
        except Exception as error:  # whatever it is, the general program answers
            self._refuse(record, str(error))
        finally:
            if record.state == "compiling":  # it was interrupted
                record.state = ""
            self._compiling = False

    def _admit(self, record: _Record, program: Program) -> None:
        """Activate a program, and evict the least recently used one if there are too many.

        Sizes whose program is evicted need twice the number of calls the next time. Otherwise many
        sizes taking turns would keep the compiler busy forever.
        """
        with self._lock:
            others = [r for r in self._records.values() if r.program is not None]
            record.program, record.state, record.remark = program, "ready", ""
            self._table[record.shapes] = record
            for old in others[: max(0, len(others) + 1 - self._choice.most)]:
                old.program, old.state, old.calls, old.needed = None, "dropped", 0, 2 * old.needed
                old.remark = f"of {self._choice.most} that are kept, all others were used later"
                self._table.pop(old.shapes, None)

    def _refuse(self, record: _Record, remark: str) -> None:
        with self._lock:
            record.program, record.state, record.remark = None, "failed", remark
            self._table.pop(record.shapes, None)
            self._failures += 1
        log().warning("strata: no program of its own for the sizes %s: %s",
                      self.specializer.named(record.sizes), remark)

    @property
    def specializations(self) -> list[Specialization]:
        """All sets of sizes with enough calls, the most recently used last, after those that need
        other code."""
        needed = super().specializations
        with self._lock:
            return needed + [Specialization(
                self.specializer.named(r.sizes), r.answered, r.state, r.remark)
                for r in self._records.values() if r.state]


def specialize(program: Program, inputs: Sequence[Array]) -> Program:
    """Compile a program for the sizes of these inputs now, regardless of counts.

    Raises StrataError if the model has no open sizes, or if these cannot be fixed.
    """
    if not isinstance(program, Specializing):
        raise StrataError("the model has no open sizes, so there is nothing to specialize")
    specializer = program.specializer
    return specializer.compile(specializer.sizes(inputs))
