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

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from compiler.diagnostics import StrataError
from compiler.instrument import Instrument
from compiler.options import CompileOptions, Specialize
from compiler.pipeline.driver import Compiler
from compiler.pipeline.source import Snapshot
from compiler.recompilation import Recompiler
from compiler.variants import WATCHED, Shapes, Specialization, Variants, shapes_of
from dialects.strata.binding import EvaluationError, bind_sizes
from dialects.symbolic.symbol import Symbol
from targets.base import Executable as Program

if TYPE_CHECKING:
    from compiler.io.signature import Signature
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step
    from dialects.strata.types import Array

log = logging.getLogger("strata")

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
    """Compiles a snapshot of a model for given sizes."""

    snapshot: Snapshot
    signature: Signature
    options: CompileOptions

    def sizes(self, inputs: Sequence[Array]) -> dict[Symbol, int]:
        """The values of the model's size symbols. Raises EvaluationError."""
        return bind_sizes(self.signature.input_types, inputs, self.signature.input_names)

    def compile(self, sizes: Mapping[Symbol, int]) -> Program:
        """The program for these sizes. Raises StrataError, CompilerFault, or Stopped."""
        snapshot = replace(self.snapshot, sizes=self.named(sizes))
        compilation = Compiler(snapshot, self.options, [_UntilExit()])
        return compilation.load(compilation.prepare())

    def named(self, sizes: Mapping[Symbol, int]) -> dict[str, int]:
        """Sizes by the model's own names."""
        return {symbol.name: value for symbol, value in sizes.items()}


# ---------------------------------------------------------------------- counting
@dataclass
class _Record:
    """The record of one set of input shapes. `calls`: the number of calls without a program."""

    needed: int
    calls: int = 0
    answered: int = 0
    sizes: Mapping[Symbol, int] = field(default_factory=dict[Symbol, int])
    program: Program | None = None
    state: str = ""
    remark: str = ""

    @property
    def is_busy(self) -> bool:
        return self.state in ("compiling", "ready")


class Specializing(Variants):
    """The general program with its specialized programs. It is thread-safe."""

    def __init__(
        self, general: Program, specializer: Specializer, choice: Specialize,
        recompiler: Recompiler,
    ):
        super().__init__(general, recompiler)
        self.specializer, self._choice = specializer, choice
        self._records: OrderedDict[Shapes, _Record] = OrderedDict()  # least recently used first
        self._compiling = False
        self._failures = 0

    # ------------------------------------------------------------------ calls
    def run(self, inputs: Sequence[Array]) -> list[Array]:
        shapes = shapes_of(inputs)
        found = self._program(shapes)
        if found is not None:
            return self._run_special(*found, inputs)
        outputs = super().run(inputs)
        due = None if self.is_needed(shapes) else self._count(shapes)
        if due is not None:
            self._start(due, inputs)
        return outputs

    def _program(self, shapes: Shapes) -> tuple[_Record, Program] | None:
        """The program for these shapes, if there is one, marked as recently used."""
        with self._lock:
            record = self._records.get(shapes)
            if record is None or record.program is None:
                return None
            self._records.move_to_end(shapes)
            return record, record.program

    def _run_special(
        self, record: _Record, program: Program, inputs: Sequence[Array]
    ) -> list[Array]:
        """Run a specialized program; if it fails, run the general one."""
        try:
            outputs = program.run(inputs)
        except Exception as error:  # the general program's error, if it has one, is the caller's
            outputs = super().run(inputs)
            self._refuse(record, f"it failed where the general program does not: {error}")
            return outputs
        with self._lock:
            record.answered += 1
        return outputs

    def _count(self, shapes: Shapes) -> _Record | None:
        """Count a successful call. Returns the record if these sizes are to get a program now."""
        with self._lock:
            record = self._records.setdefault(shapes, _Record(self._choice.after))
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
            for old in others[: max(0, len(others) + 1 - self._choice.most)]:
                old.program, old.state, old.calls, old.needed = None, "dropped", 0, 2 * old.needed
                old.remark = f"of {self._choice.most} that are kept, all others were used later"

    def _refuse(self, record: _Record, remark: str) -> None:
        with self._lock:
            record.program, record.state, record.remark = None, "failed", remark
            self._failures += 1
        log.warning("strata: no program of its own for the sizes %s: %s",
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
