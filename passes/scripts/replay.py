"""Apply all steps of a script to a kernel, and find the step that made an illegal schedule illegal.

A script may pass through illegal schedules, for instance before a `reorder` moves a sum inside the
other loops. Therefore only the final schedule is checked. If it has a fault, the message names the
first step after which every later schedule has the fault, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from dialects.loop import KernelOp
from dialects.strata.schedule import Schedule
from dialects.strata.schedule_options import KnownOptions
from passes.loop_to_block.legality import Fault, faults
from passes.rewrites.loop.sums_apart import set_sums_apart
from passes.scripts.place import StepError
from passes.scripts.steps import Step


class Refusal(Exception):
    """A script is refused. `step`: the step at fault; None if the schedule with which the script
    begins is at fault. `reason`: why."""

    def __init__(self, step: Step | None, reason: str):
        super().__init__(reason)
        self.step, self.reason = step, reason


def replay(
    kernel: KernelOp, begin: Schedule, steps: Sequence[Step], known: KnownOptions
) -> Schedule:
    """The schedule that steps make of the one they begin with. Raises Refusal."""
    passed = [begin]
    for step in steps:
        try:
            _check_option(step, known)
            passed.append(step.change(passed[-1]))
        except StepError as error:
            raise Refusal(step, str(error)) from None
    _check(kernel, passed, steps)
    return passed[-1]


def faults_of(kernel: KernelOp, schedule: Schedule) -> list[Fault]:
    """Why a schedule does not fit a kernel in the form in which `loop-to-block` lowers it."""
    apart = kernel.clone()
    set_sums_apart(apart)
    return faults(apart, schedule)


def _check_option(step: Step, known: KnownOptions) -> None:
    """Raises StepError for an unknown option, and for one that this target does not read."""
    if step.value is None:
        return
    if fault := known.fault(step.option, step.value):
        raise StepError(fault)
    if not known.reads(step.option):
        raise StepError(f"this target does not read the option {step.option}, so it would have "
                        "no effect")


def _check(kernel: KernelOp, passed: Sequence[Schedule], steps: Sequence[Step]) -> None:
    """Raises Refusal if the last schedule is illegal. `passed`: before and after each step."""
    left = faults_of(kernel, passed[-1])
    if not left:
        return
    blamed = len(steps)
    while blamed > 0 and left[0] in faults_of(kernel, passed[blamed - 1]):
        blamed -= 1
    before = faults_of(kernel, passed[blamed - 1]) if blamed else []
    reason = "; ".join(fault.text for fault in dict.fromkeys(left) if fault not in before)
    raise Refusal(steps[blamed - 1] if blamed else None, reason)
