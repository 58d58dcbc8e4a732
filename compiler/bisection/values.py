"""The first operation that computes something else than before a pass that counts no rewrites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compiler.bisection.outcome import RIGHT, Outcome
from compiler.instrument.values import Program, first_change
from compiler.measuring.comparison import worst

if TYPE_CHECKING:
    from compiler.bisection.trials import Trials
    from dialects.strata.types import Array


def first_changed(trials: Trials, step: int) -> Outcome:
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
