"""Programs for the sizes that a model is called with most.

A model with open sizes is one program that runs at any size. Which sizes it is called with is
counted here; those that come often get a program of their own, in which they are constants. That
one answers from then on, with the same results but for rounding: kernels may add in another order.

The general program stays, and answers whatever has no program, and whatever a program fails at. So
nothing that goes wrong here is seen by the caller; it is in `Specialization.remark`.

The programs share the model's weights with the general one, as far as they use the same; each has a
buffer of its own for what lies between operators.
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
from dialects.strata.binding import EvaluationError, bind_sizes
from dialects.symbolic.symbol import Symbol
from targets.base import Executable as Program
from targets.locks import SafeLock

if TYPE_CHECKING:
    from compiler.io.signature import Signature
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step
    from dialects.strata.types import Array

log = logging.getLogger("strata")

WATCHED = 256
"""Sets of sizes without a program that are counted at a time."""
FAILURES = 3
"""After so many nothing more is tried: the fault lies with the model, not with the sizes."""
THREAD = "strata-specialize"

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Specialization:
    """One set of sizes, by the model's own names, that was met often.

    `calls`: how many calls the program for these sizes has answered. `state`: "compiling", "ready",
    "dropped" (others made it leave) or "failed"; `remark` says why.
    """

    sizes: Mapping[str, int]
    calls: int
    state: str
    remark: str = ""


# ---------------------------------------------------------------------- compiling
class Stopped(Exception):
    """The process ends, so nobody needs the program any more."""


class _UntilExit(Instrument):
    """Ends a compilation in a thread once the main thread has ended."""

    def before(self, step: Step, state: State) -> None:
        del step, state
        if not threading.main_thread().is_alive():
            raise Stopped


@dataclass(frozen=True)
class Specializer:
    """Compiles a model for given sizes: the model as it was read, and how it is compiled."""

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
    """What is known about the inputs' shapes of some calls. `calls`: since there is no program."""

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


class Specializing(Program):
    """The general program, and those for the sizes of most calls. Any thread may call it."""

    def __init__(self, general: Program, specializer: Specializer, choice: Specialize):
        self.input_names, self.output_names = general.input_names, general.output_names
        self.takes_gpu_tensors = general.takes_gpu_tensors
        self.general, self.specializer, self._choice = general, specializer, choice
        self._lock = SafeLock()
        self._records: OrderedDict[Shapes, _Record] = OrderedDict()  # the last used is last
        self._compiling = False
        self._failures = 0

    # ------------------------------------------------------------------ calls
    def run(self, inputs: Sequence[Array]) -> list[Array]:
        shapes = tuple([tuple(a.shape) for a in inputs])
        found = self._program(shapes)
        if found is not None:
            return self._run_special(*found, inputs)
        outputs = self.general.run(inputs)
        due = self._count(shapes)
        if due is not None:
            self._start(due, inputs)
        return outputs

    def _program(self, shapes: Shapes) -> tuple[_Record, Program] | None:
        """The program for these shapes, if there is one; that counts as a use of it."""
        with self._lock:
            record = self._records.get(shapes)
            if record is None or record.program is None:
                return None
            self._records.move_to_end(shapes)
            return record, record.program

    def _run_special(
        self, record: _Record, program: Program, inputs: Sequence[Array]
    ) -> list[Array]:
        """What a program for these sizes answers; if it fails, what the general one does."""
        try:
            outputs = program.run(inputs)
        except Exception as error:  # the general program's error, if it has one, is the caller's
            outputs = self.general.run(inputs)
            self._refuse(record, f"it failed where the general program does not: {error}")
            return outputs
        with self._lock:
            record.answered += 1
        return outputs

    def _count(self, shapes: Shapes) -> _Record | None:
        """Count a call that succeeded. The record, if these sizes are to get a program now."""
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
        """Of sets of sizes without a program, keep the last that were met."""
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
        """Give a set of sizes its program, or the remark why it cannot have one."""
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
        """Let a program answer, and drop the one used longest ago if there are too many.

        Sizes whose program is dropped need twice as many calls the next time, so that many sizes
        that take turns do not keep the compiler busy for ever.
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
        """All sets of sizes that had calls enough, the last used last."""
        with self._lock:
            return [Specialization(self.specializer.named(r.sizes), r.answered, r.state, r.remark)
                    for r in self._records.values() if r.state]


def specialize(program: Program, inputs: Sequence[Array]) -> Program:
    """A program for the sizes of these inputs, at once, whatever was counted.

    Raises StrataError where the model has no open sizes, or cannot have these fixed.
    """
    if not isinstance(program, Specializing):
        raise StrataError("the model has no open sizes, so there is nothing to specialize")
    specializer = program.specializer
    return specializer.compile(specializer.sizes(inputs))
