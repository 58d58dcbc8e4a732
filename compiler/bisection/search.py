"""The search for what makes a model fail.

Numbers are judged at the ends of levels first; between two ends, the first wrong pass is found by
bisection, as is the first wrong rewrite of this pass. A pass that raises, hangs or ends its process
names its last rewrite itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from compiler.bisection.outcome import CODE, OPTIONS, PHASE, RIGHT, Finding, Outcome
from compiler.reduction.process import Gone, Process


@dataclass
class Search:
    """`process` answers questions; `report` is told what is done.

    Passes see no inputs, so for seeds after the first only the code runs, unless it is wrong.
    """

    process: Process
    report: Callable[[str], None]
    is_onnx: bool
    asked: int = 0

    def run(self, seeds: range) -> Finding | None:
        """What fails with the first seed with which anything does; None if nothing does."""
        self.process.on_phase = self._tell
        for seed in seeds:
            self.seed, first = seed, seed == seeds[0]
            failure = self.ask("whole", quick=not first)
            if failure.step == CODE and failure.kind != RIGHT and not first:
                failure = self.ask("whole", quick=False)
            if failure.kind != RIGHT:
                return self._found(failure)
        return None

    def ask(self, do: str, **more: Any) -> Outcome:
        """The outcome of a trial, even if the process dies of it."""
        self.asked += 1
        try:
            return Outcome.of(self.process.ask({"do": do, "seed": self.seed, **more}))
        except Gone as gone:
            return replace(self._told(), kind=gone.kind, text=str(gone))

    def _told(self) -> Outcome:
        """What the process did last."""
        facts = self._facts(self.process.phase)
        facts.pop(PHASE, None)
        return Outcome.of(facts)

    def _tell(self, phase: str) -> None:
        """Report what the process does now."""
        if words := self._facts(phase).get(PHASE):
            self.report(f"seed {self.seed}, trial {self.asked}: {words}")

    @staticmethod
    def _facts(phase: str) -> dict[str, Any]:
        try:
            return json.loads(phase)
        except ValueError:  # it is being written
            return {}

    # ------------------------------------------------------------------ where
    def _found(self, failure: Outcome) -> Finding:
        if failure.step == 0:
            return self._in_import(failure)
        if failure.step == CODE:
            return self._in_code(failure)
        if failure.kind != "wrong" and failure.step > 1:
            self.report(f"{failure.kind} in {failure.name}: checking its input")
            before = self.ask("judge", step=failure.step - 1)
            failure = before if before.kind == "wrong" else failure
        if failure.kind == "wrong":
            failure = self._first(failure, lambda step: self.ask("judge", step=step),
                                  failure.step)
        return self._in_pass(failure)

    def _first(self, failure: Outcome, trial: Callable[[int], Outcome], last: int) -> Outcome:
        """The outcome of the first number up to `last` from which on trials fail alike."""
        right = 0
        while last - right > 1:
            middle = (right + last) // 2
            self.report(f"{failure.kind}: between {right} and {last}")
            outcome = trial(middle)
            if outcome.is_like(failure):
                failure, last = outcome, middle
            else:
                right = middle
        return failure

    def _in_import(self, failure: Outcome) -> Finding:
        if failure.kind == "peer":
            found = self.ask("imported")
            failure = replace(failure, operation=found.operation, nodes=found.nodes,
                              done=found.done)
        elif self.is_onnx and not failure.nodes and failure.name != OPTIONS:
            failure = self._first_node(failure)
        return self._finding(failure, failure.done or None)

    def _first_node(self, failure: Outcome) -> Outcome:
        """The failure of the fewest first nodes whose import fails alike."""
        count, like = 1, failure
        while True:
            outcome = self.ask("prefix", most=count)
            if outcome.kind == "refused" and not outcome.done:
                return like
            if outcome.is_like(failure):
                return self._first(outcome, lambda most: self.ask("prefix", most=most), count)
            count *= 2

    # ------------------------------------------------------------------ in a pass
    def _in_pass(self, failure: Outcome) -> Finding:
        step = failure.step
        self.report(f"{failure.kind} after {failure.name}: searching its rewrites")
        whole = self.ask("rewrites", step=step, most=None)
        if not whole.is_like(failure):
            return self._finding(failure, None)
        if self.ask("rewrites", step=step, most=0).is_like(failure) or not whole.done + whole.tried:
            changed = self.ask("values", step=step) if failure.kind == "wrong" else Outcome()
            failure = replace(failure, operation=changed.operation, nodes=changed.nodes)
            return self._finding(failure, None, whole.done)
        if failure.kind in ("wrong", "invalid"):
            found = self._first(whole, lambda most: self.ask("rewrites", step=step, most=most),
                                whole.done)
        else:
            found = whole
        if not found.nodes and found.kind == "wrong":
            found = replace(found, nodes=self.ask("values", step=step).nodes)
        return self._finding(found, found.done + found.tried,
                             max(whole.done, found.done + found.tried))

    # ------------------------------------------------------------------ in code
    def _in_code(self, failure: Outcome) -> Finding:
        self.report(f"{failure.kind} in code for {failure.name}: searching its kernels")
        found = self.ask("kernels")
        if found.kind == RIGHT:
            return self._finding(failure, None)
        if found.kernel:
            scalar = self.ask("scalars", kernel=found.kernel)
            found = found if scalar.kind == RIGHT else replace(
                found, operation=scalar.operation, nodes=scalar.nodes)
        text = found.text if found.kind == failure.kind else failure.text
        return self._finding(replace(
            failure, text=text, operation=found.operation, nodes=found.nodes,
            kernel=found.kernel), None)

    def _finding(
        self, outcome: Outcome, rewrite: int | None, rewrites: int = 0
    ) -> Finding:
        return Finding(outcome.name, outcome.kind, outcome.text, self.seed, rewrite, rewrites,
                       outcome.rule, outcome.operation, tuple(outcome.nodes), outcome.kernel)
