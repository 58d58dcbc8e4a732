"""`loop-apply-schedules{file="..."}`: apply schedules from a file to kernels (`--schedule FILE`).

    # kernel name, where `*` matches any text, then the schedule as dumps show it
    @contract_0 <grid i0 tile 6, whole i1 tile 64 lanes, loop i2 tile 1 unroll 4>
    # or steps that transform the target's own schedule
    @map_*
        tile i0 by 4096
        vectorize i0

The first entry that names a kernel holds for it, whatever schedule it had. `passes/scripts` has the
steps. Enters: kernels whose axes are final. Axes keep the names that a dump of `loop-schedule`
shows. `early`: this stands before operands are packed, and puts there what says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from dialects.loop import KernelOp
from dialects.strata.schedule import Schedule, ScheduleAttr
from dialects.strata.types import format_symbols
from passes.analyses.loop.level_order import with_sums_inside
from passes.base import PassError, StrataContext, StrataPass
from passes.scripts.place import StepError
from passes.scripts.printing import from_loops
from passes.scripts.reading import Entry, Unreadable, read_entries
from passes.scripts.replay import Refusal, replay

NAME = "loop-apply-schedules"


@dataclass(frozen=True)
class LoopApplySchedules(StrataPass):
    """Apply a user's schedules to kernels."""

    name = NAME
    file: str
    early: bool = False

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
        try:
            entries = read_entries(Path(self.file), context.schedule_options)
        except Unreadable as error:
            raise PassError(NAME, [("", text) for text in error.faults]) from None
        found: list[str] = []
        used: set[int] = set()
        for kernel in kernels:
            entry = next((e for e in entries if e.matches(kernel)), None)
            if entry is not None:
                used.add(entry.line)
                found += self._apply(context, entry, kernel)
        there = ", ".join(f"@{k.sym_name.data}" for k in kernels)
        found += [f"{e.place}: no kernel is left for {e.pattern}; there are: {there}"
                  for e in entries if e.line not in used and e.early == self.early]
        if found:
            raise PassError(NAME, [("", text) for text in found])

    def _apply(self, context: StrataContext, entry: Entry, kernel: KernelOp) -> Sequence[str]:
        """What is wrong with an entry for a kernel."""
        if entry.early and not self.early and kernel.schedule is None:
            return [f"{entry.place}: it holds before operands are packed, and the module is past "
                    f"that; start @{kernel.sym_name.data} from the model"]
        if entry.early != self.early:
            return []
        schedule, faults = _scheduled(context, entry, kernel)
        kernel.properties["schedule"] = ScheduleAttr(schedule)
        return faults


def _scheduled(
    context: StrataContext, entry: Entry, kernel: KernelOp
) -> tuple[Schedule, Sequence[str]]:
    if entry.schedule is not None:
        found = misfits(entry.schedule, kernel)
        return entry.schedule, [f"{entry.place}: {text}" for text in found]
    name = f"@{kernel.sym_name.data}"
    try:
        begin = _begin(context, entry, kernel)
        return replay(kernel, begin, entry.steps, context.schedule_options), ()
    except StepError as error:
        return Schedule(()), [f"{entry.place}: {name}: {error}"]
    except Refusal as refusal:
        if refusal.step is None:
            return Schedule(()), [f"{entry.place}: what the script of {name} begins with: "
                                  f"{refusal.reason}"]
        return Schedule(()), [f"{entry.file}, line {refusal.step.line}: the step "
                              f"'{refusal.step.text}' of {name}: {refusal.reason}"]


def _begin(context: StrataContext, entry: Entry, kernel: KernelOp) -> Schedule:
    """The schedule that the first step meets. Raises StepError where nobody has rules."""
    if entry.from_loops:
        return from_loops(kernel)
    if kernel.schedule is not None:
        return kernel.schedule.data
    if context.rules is None:
        raise StepError("there is no target whose rules it could begin with; write 'from loops'")
    return with_sums_inside(kernel, context.rules.schedule(kernel))


def misfits(schedule: Schedule, kernel: KernelOp) -> list[str]:
    """Axes that the schedule lacks, or names in vain."""
    scheduled = {level.axis for level in schedule.levels}
    name, axes = kernel.sym_name.data, set(kernel.axes)
    missing, strange = sorted(axes - scheduled), sorted(scheduled - axes)
    found = [f"it says nothing of axis {format_symbols(missing)} of @{name}"] if missing else []
    if strange:
        found.append(f"@{name} has no axis {format_symbols(strange)}; "
                     f"it has {format_symbols(kernel.axes)}")
    return found
