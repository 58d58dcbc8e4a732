"""The process of trials: `python -m compiler.bisection.probe WORDS --phases FILE`.

It reads a question per line, as JSON, and answers each with an outcome on a line. It may die of
one; the file of phases then says what it did.

    {"do": "whole", "seed": 0, "quick": false}   all passes, the ends of all levels, the code
    {"do": "judge", "seed": 0, "step": 7}        the numbers after seven passes
    {"do": "rewrites", "seed": 0, "step": 7, "most": 3}   ... with three rewrites of the seventh
    {"do": "values", "seed": 0, "step": 7}       the first operation that the seventh changes
    {"do": "kernels", "seed": 0}                 the first kernel with wrong code
    {"do": "scalars", "seed": 0, "kernel": "k"}  its first scalar operation with wrong code
    {"do": "prefix", "most": 3}                  the import of the first three nodes
    {"do": "imported", "seed": 0}                the first node that onnxruntime computes otherwise
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.bisection import imports, kernels, scalars
from compiler.bisection.arguments import add_arguments
from compiler.bisection.outcome import RIGHT, Outcome
from compiler.bisection.trials import Phases, Trials
from compiler.instrument.values import Program, first_change
from compiler.measuring.comparison import worst

if TYPE_CHECKING:
    from dialects.strata.types import Array


def main() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parser.add_argument("--phases", type=Path)
    given = parser.parse_args()
    phases, trials = Phases(given.phases), dict[int, Trials]()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what models and libraries print
    for line in sys.stdin:
        asked = json.loads(line)
        outcome = _answer(asked, given, phases, trials)
        answers.write(json.dumps(outcome.facts()) + "\n")
        answers.flush()


def _answer(
    asked: dict[str, Any], given: argparse.Namespace, phases: Phases, known: dict[int, Trials]
) -> Outcome:
    if asked["do"] == "prefix":
        return imports.of_first_nodes(given, asked["most"], phases.path.parent)
    seed = asked["seed"]
    earlier = next(iter(known.values()), None)
    trials = known[seed] = known.get(seed) or Trials(given, seed, phases, earlier)
    match asked["do"]:
        case "whole":
            return trials.whole(asked["quick"])
        case "judge":
            return trials.judge(asked["step"])
        case "rewrites":
            return trials.rewrites(asked["step"], asked["most"])
        case "values":
            return _first_changed(trials, asked["step"])
        case "kernels":
            return kernels.first_wrong(trials)
        case "scalars":
            return scalars.first_wrong(trials, asked["kernel"])
        case _:
            return trials.begun if trials.begun.kind != RIGHT else imports.first_unlike(
                trials.model, trials.verify, trials.options, phases.path.parent)


def _first_changed(trials: Trials, step: int) -> Outcome:
    """The first operation after a step that differs from the same nodes' before it."""
    lowered = trials.lowered(step)
    if lowered.kind != RIGHT:
        return lowered
    before, after = (Program(s.module, s.context.weights)
                     for s in (trials.at(step - 1), trials.at(step)))
    found = first_change(before, after, trials.verify.inputs, _differ)
    if found is None:
        return Outcome(step=step)
    return Outcome("wrong", "", step, operation=found.operation, nodes=found.nodes)


def _differ(got: Sequence[Array], want: Sequence[Array]) -> bool:
    return worst(got, want)[1] is not None


if __name__ == "__main__":
    main()
