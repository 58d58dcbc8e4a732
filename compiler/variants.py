"""Programs beside the general one, which answer calls with certain sizes.

A model with open sizes is one general program. For some sizes, a call is answered by another one:

    needed     the sizes break a choice of the compiler (`compiler/frontend/choices.py`), such as a
               size that is 1 and must be stretched. It is compiled in the call that first needs it.
    frequent   the sizes come often, and are constants in it (`specialization.py`).

Both are in one table, by the shapes of a call's inputs, so that a call costs one look-up, and none
while the general program has answered all calls. A needed program fits all sizes that need
the same outcomes: usually, one size is 1 and all others stay open. At most MOST of them are kept.

Nothing here imports xDSL, since a program from the cache runs without it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from compiler.diagnostics import StrataError, log
from compiler.recompilation import TRIALS, Decisions, Recompiler
from dialects.records import dataclass
from dialects.strata.assumptions import ChoiceError, SizeError
from targets.interface import Executable as Program
from targets.locks import SafeLock, Turns

if TYPE_CHECKING:
    from collections.abc import Collection

    from dialects.strata.types import Array

MOST = 16
"""The number of needed programs that are kept; the least recently used one is dropped."""
WATCHED = 256
"""The number of sets of shapes that are remembered."""

Shapes = tuple[tuple[int, ...], ...]


class Specialization(NamedTuple):
    """Sizes with a program of their own, by the model's own names.

    `calls`: the number of calls that it has answered. `state`: "compiling", "ready", "dropped"
    (evicted) or "failed"; `remark` gives the reason, or why a program is needed.
    """

    sizes: Mapping[str, int]
    calls: int
    state: str
    remark: str = ""


@dataclass(eq=False)
class Entry:
    """A program for some sizes, if there is one. `answered`: the number of its calls."""

    program: Program | None = field(default=None, kw_only=True)
    answered: int = field(default=0, kw_only=True)


@dataclass(eq=False)
class Needed(Entry):
    """A program for sizes that broke a choice, or why there is none."""

    decisions: Decisions
    reason: str
    failure: Exception | None = None


class Variants(Program):
    """The general program with the others. It is thread-safe."""

    def __init__(self, general: Program, recompiler: Recompiler, needed: Sequence[Needed] = ()):
        self.input_names, self.output_names = general.input_names, general.output_names
        self.takes_gpu_tensors, self.notes = general.takes_gpu_tensors, general.notes
        self._general, self.recompiler = general, recompiler
        self._lock = SafeLock()
        self._turns = Turns("compilation for sizes that need other code", SizeError)
        self._needed = OrderedDict({n.decisions: n for n in needed})  # least recently used first
        self._table: dict[Shapes, Entry] = {}

    @property
    def general(self) -> Program:
        return self._general

    def donate(self, inputs: Mapping[int, int]) -> Collection[int]:
        return self._general.donate(inputs)

    # ------------------------------------------------------------------ calls
    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the program for the sizes of these inputs, or else the general one."""
        if self._table:
            entry = self._table.get(shapes_of(inputs))
            program = None if entry is None else entry.program
            if entry is not None and program is not None:
                outputs = self.run_entry(entry, program, inputs)
                if outputs is not None:
                    return outputs
        return self.run_general(inputs)

    def run_entry(
        self, entry: Entry, program: Program, inputs: Sequence[Array]
    ) -> list[Array] | None:
        """Run a program of the table; None if it does not fit, since data need another one."""
        try:
            outputs = program.run(inputs)
        except SizeError:
            with self._lock:
                self._table.pop(shapes_of(inputs), None)
            return None
        with self._lock:
            entry.answered += 1
            if isinstance(entry, Needed) and entry.decisions in self._needed:
                self._needed.move_to_end(entry.decisions)
        return outputs

    def run_general(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the general program, or else the needed one, compiling it if there is none."""
        try:
            return self._general.run(inputs)
        except ChoiceError as broken:
            return self._run_fitting(Decisions(), broken, inputs)

    def _run_fitting(
        self, decisions: Decisions, broken: ChoiceError, inputs: Sequence[Array]
    ) -> list[Array]:
        """Run a program that fits, compiling it if there is none. Raises SizeError."""
        tried: set[Decisions] = set()
        while len(tried) < TRIALS:
            following = [d for d in decisions.after(broken, self.recompiler.fixable)
                         if d not in tried]
            if not following:
                break
            try:
                needed, program = self._fitting(following, broken, inputs)
                decisions = needed.decisions
                tried.add(decisions)
                outputs = program.run(inputs)
            except _More as more:
                decisions, broken = more.decisions, more.broken
                tried.add(decisions)
            except ChoiceError as again:
                broken = again
            else:
                self._remember(needed, inputs)
                return outputs
        raise SizeError(f"{broken.reason}; no code fits what this run met before as well")

    def _fitting(
        self, following: Sequence[Decisions], broken: ChoiceError, inputs: Sequence[Array]
    ) -> tuple[Needed, Program]:
        """A program for the first of these decisions that can be compiled. Raises SizeError."""
        failures: list[Exception] = []
        for decisions in following:
            needed = self._found(decisions) or self._compiled(decisions, broken, inputs)
            if needed.program is not None:
                return needed, needed.program
            failures.append(needed.failure or broken)
        raise SizeError(f"{broken.reason}, and it cannot be compiled for that: "
                        f"{failures[-1]}") from failures[-1]

    # ------------------------------------------------------------------ programs
    def _found(self, decisions: Decisions) -> Needed | None:
        with self._lock:
            needed = self._needed.get(decisions)
            if needed is not None:
                self._needed.move_to_end(decisions)
            return needed

    def _compiled(
        self, decisions: Decisions, broken: ChoiceError, inputs: Sequence[Array]
    ) -> Needed:
        """A new program, compiled by one thread at a time. Raises _More if it needs others."""
        with self._turns:
            if (there := self._found(decisions)) is not None:
                return there
            needed = Needed(decisions, broken.reason)
            if why := self.recompiler.refusal:
                raise SizeError(f"{broken}; it cannot be compiled again: {why}") from broken
            log().info("strata: compiling %s for %s: %s", self.recompiler.model, decisions,
                     broken.reason)
            try:
                needed.program = self.recompiler.compile(decisions, inputs)
                needed.program.share(self._general)
            except ChoiceError as more:
                raise _More(decisions, more) from more
            except StrataError as error:
                needed.failure = error
            self._keep(needed)
            return needed

    def _keep(self, needed: Needed) -> None:
        """Keep a program, and drop the least recently used one if there are too many."""
        with self._lock:
            self._needed[needed.decisions] = needed
            while len(self._needed) > MOST:
                _, old = self._needed.popitem(last=False)
                for shapes in [s for s, entry in self._table.items() if entry is old]:
                    del self._table[shapes]
                log().info("strata: dropping the program of %s for %s", self.recompiler.model,
                         old.decisions)

    def _remember(self, needed: Needed, inputs: Sequence[Array]) -> None:
        """Let later calls with these shapes find the program at once."""
        with self._lock:
            needed.answered += 1
            if needed.decisions in self._needed:
                self._table[shapes_of(inputs)] = needed
            there = [s for s, entry in self._table.items() if isinstance(entry, Needed)]
            for shapes in there[:-WATCHED]:
                del self._table[shapes]

    @property
    def needed(self) -> list[Needed]:
        """The programs for sizes that the general one does not fit."""
        with self._lock:
            return list(self._needed.values())

    @property
    def specializations(self) -> list[Specialization]:
        """The sizes that have programs of their own, the most recently used last."""
        return [Specialization(dict(n.decisions.dims), n.answered,
                               "failed" if n.program is None else "ready",
                               str(n.failure or n.reason)) for n in self.needed]


class _More(Exception):
    """The sizes of a call break another choice of the model compiled with these decisions."""

    def __init__(self, decisions: Decisions, broken: ChoiceError):
        super().__init__(str(broken))
        self.decisions, self.broken = decisions, broken


def shapes_of(inputs: Sequence[Any]) -> Shapes:
    """The shapes of a call's inputs."""
    return tuple([tuple(a.shape) for a in inputs])
