"""All steps of a script on a kernel, and, where the outcome is illegal, the step that made it so.

A script passes through schedules that are not legal yet, as when loops come before their order. So
what counts is the end; a fault that is left there is told at the step that it has been there since.
"""

from __future__ import annotations

from collections.abc import Sequence

from dialects.loop import KernelOp
from dialects.strata.schedule import Schedule
from dialects.strata.schedule_options import KnownOptions
from passes.loop_to_block.apart import set_sums_apart
from passes.loop_to_block.legality import faults
from passes.scripts.place import StepError
from passes.scripts.steps import Step


class Refusal(Exception):
    """A step that cannot be taken, or None for what the script begins with, and why."""

    def __init__(self, step: Step | None, reason: str):
        super().__init__(reason)
        self.step, self.reason = step, reason


def replay(
    kernel: KernelOp, begin: Schedule, steps: Sequence[Step], known: KnownOptions
) -> Schedule:
    """The schedule that steps make of another one. Raises Refusal."""
    passed = [begin]
    for step in steps:
        try:
            _check_option(step, known)
            passed.append(step.change(passed[-1]))
        except StepError as error:
            raise Refusal(step, str(error)) from None
    _check(kernel, passed, steps)
    return passed[-1]


def _check_option(step: Step, known: KnownOptions) -> None:
    """Raises StepError for an option that there is not, or that this target does not read."""
    if step.value is None:
        return
    if fault := known.fault(step.option, step.value):
        raise StepError(fault)
    if not known.reads(step.option):
        raise StepError(f"this target does not read the option {step.option}, so that it would "
                        "have no effect")


def _check(kernel: KernelOp, passed: Sequence[Schedule], steps: Sequence[Step]) -> None:
    """Raises Refusal for an illegal outcome."""
    apart = kernel.clone()
    set_sums_apart(apart)
    left = faults(apart, passed[-1])
    if not left:
        return
    blamed = len(steps)
    while blamed > 0 and left[0] in faults(apart, passed[blamed - 1]):
        blamed -= 1
    before = faults(apart, passed[blamed - 1]) if blamed else []
    reason = "; ".join(fault for fault in left if fault not in before)
    raise Refusal(steps[blamed - 1] if blamed else None, reason)
