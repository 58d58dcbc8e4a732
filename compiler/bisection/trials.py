"""A model at every step of the pipeline, on the inputs of one seed, judged as `verify` does.

Snapshots of the module are taken as passes run, so that any step can be repeated with fewer
rewrites. Nothing is cached, and the module is verified after every pass.
"""

from __future__ import annotations

import argparse
import copy
import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from xdsl.utils.exceptions import VerifyException

from compiler.bisection.imports import differs_from_peer
from compiler.bisection.outcome import CODE, OPTIONS, PHASE, RIGHT, Outcome
from compiler.bisection.quiet import QuietCompiler
from compiler.cli import arguments as shared
from compiler.cli.execution import WantedInputs
from compiler.diagnostics import StrataError, kind_and_text
from compiler.faults import CompilerFault
from compiler.instrument.verify import Verify
from compiler.pipeline.levels import ContractError
from compiler.pipeline.state import State
from compiler.recompilation import fitting, fixable_sizes
from passes.allowance import Allowance, Rewritten
from passes.base import PassError
from targets.reference.interpret import interpret

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from compiler.options import CompileOptions
    from compiler.pipeline.driver import Compiler
    from compiler.pipeline.plan import PlannedStep
    from dialects.strata.weights import WeightStore


@dataclass(frozen=True)
class Phases:
    """The file that says what is done now, as an outcome, in case the process dies of it, and in
    words, for whoever waits.
    """

    path: Path

    def tell(self, outcome: Outcome, words: str = "") -> None:
        facts = {**outcome.facts(), PHASE: words or outcome.name}
        self.path.write_text(json.dumps(facts), encoding="utf-8")


@dataclass(frozen=True)
class Snapshot:
    """A module after some steps."""

    module: ModuleOp
    weights: WeightStore
    level: str
    after: tuple[str, ...]


class Trials:
    """All trials with one seed. Raises StrataError if the model cannot be read.

    `earlier`: those with another seed, of which this one needs no pass again: passes see no inputs.
    """

    def __init__(
        self, arguments: argparse.Namespace, seed: int, phases: Phases,
        earlier: Trials | None = None,
    ):
        self.arguments, self.phases, self.earlier = arguments, phases, earlier
        given = copy.copy(arguments)
        given.seed = seed
        wanted = WantedInputs(given)
        self.verify = Verify(wanted.arrays, lambda row: None, arguments.tolerance)
        self.options = replace(shared.options_from(arguments), cache="off")
        self.model = arguments.model
        self.faults: dict[int, Outcome] = {}
        self.accepted: dict[int, Verify] = {}
        self.rounding: dict[int, bool] = {}

    def _started(self, options: CompileOptions) -> tuple[Compiler, State]:
        compilation = QuietCompiler(self.model, options)
        state = compilation.read()
        self.verify.start(state)
        return compilation, state

    def start(self) -> None:
        """Read the model, and compute what it means on these inputs."""
        self.phases.tell(Outcome())
        self.compilation, self.state = fitting(
            self._started, self.options,
            lambda: fixable_sizes(self.verify.signature, self.verify.structures))
        lowers = self.compilation.target.lowers
        self.planned: list[PlannedStep] = self.compilation.plan(self.state, None) if lowers else []
        self.compilation.planned = self.planned
        self.snapshots = [self._kept(self.state)]
        if self.earlier is not None and self.repeats(self.earlier):
            self.snapshots, self.faults = self.earlier.snapshots, self.earlier.faults
            self.rounding = self.earlier.rounding

    def repeats(self, earlier: Trials) -> bool:
        """Whether the passes of other trials started with the same module, and end."""
        return earlier.begun.kind == RIGHT and len(earlier.snapshots) > len(self.planned) and (
            self.at(0).body_text() == earlier.at(0).body_text())

    @cached_property
    def begun(self) -> Outcome:
        """What reading the model led to."""
        try:
            QuietCompiler(self.model, self.options)
        except StrataError as error:
            return Outcome("refused", str(error), name=OPTIONS)
        try:
            self.start()
        except StrataError as error:
            nodes = [p.node for p in error.problems if p.node]
            return Outcome("refused", str(error), 0, nodes=nodes)
        except CompilerFault as fault:
            return Outcome("fault", _text(fault.cause), 0)
        return Outcome()

    # ------------------------------------------------------------------ modules
    @staticmethod
    def _kept(state: State) -> Snapshot:
        return Snapshot(state.module.clone(), state.context.weights.copy(), state.level,
                        state.after)

    def at(self, step: int) -> State:
        """A module of its own after some steps, none of which fails."""
        kept = self.snapshots[step]
        context = self.state.context.clone()
        context.weights = kept.weights.copy()
        return State(kept.module.clone(), context, self.state.name, kept.level, kept.after)

    def lowered(self, step: int) -> Outcome:
        """Run passes up to a step, unless they have run; what the first faulty one led to."""
        if self.begun.kind != RIGHT:
            return self.begun
        for k in range(len(self.snapshots), step + 1):
            if k not in self.faults:
                state = self.at(k - 1)
                outcome = self._run(state, k, Allowance(watched=True, tell=None))
                if outcome.kind == RIGHT:
                    self.snapshots.append(self._kept(state))
                    continue
                self.faults[k] = outcome
            return self.faults[k]
        return Outcome()

    def _run(self, state: State, step: int, allowance: Allowance) -> Outcome:
        """Run one pass, and verify the module that it leaves."""
        item = self.planned[step - 1]
        state.context.allowance = allowance
        self.phases.tell(self._named(step))
        try:
            item.pass_.apply(state.context, state.module)
            state.moved(item.step.level, item.label)
            state.module.verify()
            if allowance.most is None:
                self.compilation.check(state, item, self._ends_level(step))
        except (PassError, StrataError) as error:
            return self._outcome("refused", error, step, allowance)
        except (VerifyException, ContractError) as error:
            return self._outcome("invalid", error, step, allowance)
        except Exception as error:  # whatever a faulty pass raises
            return self._outcome("fault", error, step, allowance)
        return _with(replace(self._named(step), done=allowance.done), allowance.last)

    def _outcome(self, kind: str, error: Exception, step: int, allowance: Allowance) -> Outcome:
        outcome = replace(self._named(step), kind=kind, text=_text(error), done=allowance.done)
        if kind != "invalid" and allowance.tried is not None:
            return replace(_with(outcome, allowance.tried), tried=True)
        return _with(outcome, allowance.last)

    def _ends_level(self, step: int) -> bool:
        return step == len(self.planned) or (
            self.planned[step].step.level != self.planned[step - 1].step.level)

    # ------------------------------------------------------------------ questions
    def whole(self, quick: bool = False) -> Outcome:
        """All passes, then the numbers at the ends of levels and of the target's code; if `quick`,
        only of the code, if there is any.
        """
        outcome = self.lowered(len(self.planned) if self.begun.kind == RIGHT else 0)
        if outcome.kind != RIGHT:
            return outcome
        last = 0 if quick and self._has_code else len(self.planned)
        for step in range(1, last + 1):
            if self._ends_level(step) or self._rounds(step + 1):
                outcome = self.judge(step)
                if outcome.kind != RIGHT:
                    return outcome
        outcome = self._code()
        if outcome.kind != RIGHT:
            return outcome
        self.phases.tell(self._named(CODE), "onnxruntime")
        return differs_from_peer(self.model, self.verify)

    def judge(self, step: int) -> Outcome:
        """The numbers after some steps."""
        found = self.lowered(step)
        return found if found.kind != RIGHT else self._judged(self.at(step), step)

    def rewrites(self, step: int, most: int | None) -> Outcome:
        """The numbers after a step that may make only so many rewrites."""
        found = self.lowered(step - 1)
        if found.kind != RIGHT:
            return found
        state, allowance = self.at(step - 1), Allowance(most, watched=True)
        allowance.tell = lambda: self.phases.tell(self._outcome("crash", _DIED, step, allowance))
        ran = self._run(state, step, allowance)
        if ran.kind != RIGHT:
            return ran
        judged = self._judged(state, step)
        return replace(ran, kind=judged.kind, text=judged.text)

    def _judged(self, state: State, step: int) -> Outcome:
        named = self._named(step)
        self.phases.tell(named, f"numbers after {named.name}")
        verify = self.reference(step)
        verify.check_outputs("", lambda inputs: interpret(
            state.module, state.context.weights, inputs))
        wrong = verify.rows[-1].wrong
        return replace(named, kind="wrong", text=wrong) if wrong else named

    def reference(self, step: int) -> Verify:
        """What the numbers after a step are compared with: the import, or the last pass up to it
        that rounds on purpose.
        """
        found = self.verify
        for k in filter(self._rounds, range(1, step + 1)):
            if k not in self.accepted:
                self.accepted[k] = found = copy.copy(found)
                found.rows = []
                found.accept(self.at(k))
            found = self.accepted[k]
        return found

    def _rounds(self, step: int) -> bool:
        """Whether a pass has changed numbers on purpose."""
        if step > len(self.planned) or not self.planned[step - 1].step.rounds:
            return False
        if step not in self.rounding:
            texts = [self.at(k).body_text() for k in (step - 1, step)]
            self.rounding[step] = texts[0] != texts[1]
        return self.rounding[step]

    @property
    def _has_code(self) -> bool:
        """Whether the passes lead to a module of which the target makes code."""
        last = len(self.planned)
        return last > 0 and self.compilation.is_final(self.at(last))

    def _code(self) -> Outcome:
        """The numbers of the target's code."""
        last, code = len(self.planned), self._named(CODE)
        if not self._has_code:
            return Outcome()
        self.phases.tell(code, "the target's code")
        verify = self.reference(last)
        try:
            loaded = self.compilation.load(self.at(last))
            outputs = loaded.run(verify.inputs)
        except CompilerFault as fault:
            return replace(code, kind="fault", text=_text(fault.cause))
        except (StrataError, ValueError) as error:
            return replace(code, kind="refused", text=str(error))
        verify.check_outputs("", lambda _: outputs)
        wrong = verify.rows[-1].wrong
        return replace(code, kind="wrong", text=wrong) if wrong else code

    def _named(self, step: int) -> Outcome:
        """A right outcome of a step."""
        if step == CODE:
            return Outcome(step=CODE, name=self.compilation.target.name)
        return Outcome(step=step, name=self.planned[step - 1].label)


_DIED = RuntimeError("the process died")


def _with(outcome: Outcome, rewritten: Rewritten | None) -> Outcome:
    if rewritten is None:
        return outcome
    return replace(outcome, operation=rewritten.operation, rule=rewritten.rule,
                   nodes=rewritten.nodes)


def _text(error: BaseException) -> str:
    return kind_and_text(error).splitlines()[0]
