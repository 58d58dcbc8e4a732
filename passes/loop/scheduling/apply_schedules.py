"""`loop-apply-schedules{file="..."}`: apply schedules from a file to kernels (`--schedule FILE`).

    # kernel name, where `*` matches any text, then the schedule as dumps show it
    @contract_0 <grid i0 tile 6, whole i1 tile 64 lanes, loop i2 tile 1 unroll 4>
    # or steps that transform the target's own schedule
    @map_*
        tile i0 by 4096
        vectorize i0

The first entry that names a kernel applies to it and replaces the kernel's schedule. The steps are
in `passes/scripts`. Enters: kernels whose axes are final, except that an entry may fuse some of
them (`passes/scripts/fusion.py`). Axes have the names that a dump of `loop-schedule` shows. The
pass runs twice. With `early` it runs before operands are packed, and applies the entries that ask
for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from dialects.loop import KernelOp
from dialects.records import dataclass
from dialects.strata.schedule import Schedule, ScheduleAttr
from dialects.strata.types import format_symbols
from passes.analyses.loop.level_order import with_sums_inside
from passes.base import PassError, StrataContext, StrataPass
from passes.loop_to_block.legality import Fault
from passes.scripts.fusion import Fusion, fuse
from passes.scripts.place import StepError
from passes.scripts.printing import from_loops
from passes.scripts.reading import Entry, Unreadable, read_entries
from passes.scripts.replay import Refusal, faults_of, replay

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
        """Apply an entry to a kernel; returns what is wrong."""
        if entry.early and not self.early and kernel.schedule is None:
            return [f"{entry.place}: it applies before operands are packed, but those of "
                    f"@{kernel.sym_name.data} are packed already; start from the model"]
        if entry.early != self.early:
            return []
        schedule, faults = _scheduled(context, entry, kernel)
        kernel.properties["schedule"] = ScheduleAttr(schedule)
        return faults


def _scheduled(
    context: StrataContext, entry: Entry, kernel: KernelOp
) -> tuple[Schedule, Sequence[str]]:
    """The schedule for a kernel, and what is wrong with it. Fuses the axes that the entry fuses."""
    name = f"@{kernel.sym_name.data}"
    try:
        fused = _fuse(entry, kernel)
        schedule, faults = _unfused(context, entry, kernel)
        return replace(schedule, fused=fused), faults
    except StepError as error:
        return Schedule(()), [f"{entry.place}: {name}: {error}"]
    except Refusal as refusal:
        if refusal.step is None:
            return Schedule(()), [f"{entry.place}: the schedule with which the script of {name} "
                                  f"begins: {refusal.reason}"]
        return Schedule(()), [f"{entry.file}, line {refusal.step.line}: the step "
                              f"'{refusal.step.text}' of {name}: {refusal.reason}"]


def _fuse(entry: Entry, kernel: KernelOp) -> tuple[Fusion, ...]:
    """Fuse the axes that an entry's first steps, or its whole schedule, name. A schedule that the
    kernel had is dropped, because it has other axes. Raises Refusal and StepError."""
    steps = entry.fusions
    fused = entry.schedule.fused if entry.schedule else tuple(f for _, f in steps)
    if fused:
        kernel.properties.pop("schedule", None)
    for number, fusion in enumerate(fused):
        try:
            fuse(kernel, fusion)
        except StepError as error:
            if not steps:
                raise
            raise Refusal(steps[number][0], str(error)) from None
    return fused


def _unfused(
    context: StrataContext, entry: Entry, kernel: KernelOp
) -> tuple[Schedule, Sequence[str]]:
    """The schedule of a kernel whose axes are fused by now. Raises StepError and Refusal."""
    if entry.schedule is not None:
        found = misfits(entry.schedule, kernel) or faults_of(kernel, entry.schedule)
        name = f"the schedule of @{kernel.sym_name.data}"
        return entry.schedule, [f"{entry.place_of(x.level)}: {name}: {x.text}"
                                for x in dict.fromkeys(found)]
    begin = _begin(context, entry, kernel)
    steps = entry.steps[len(entry.fusions):]
    return replay(kernel, begin, steps, context.schedule_options), ()


def _begin(context: StrataContext, entry: Entry, kernel: KernelOp) -> Schedule:
    """The schedule with which the script begins. Raises StepError if no target has rules."""
    if entry.from_loops:
        return from_loops(kernel)
    if kernel.schedule is not None:
        return kernel.schedule.data
    if context.rules is None:
        raise StepError("there is no target, so no rules give a first schedule; write 'from loops'")
    return with_sums_inside(kernel, context.rules.schedule(kernel))


def misfits(schedule: Schedule, kernel: KernelOp) -> list[Fault]:
    """Axes of the kernel that the schedule lacks, and axes that the kernel does not have."""
    scheduled, axes = {level.axis for level in schedule.levels}, set(kernel.axes)
    missing, unknown = sorted(axes - scheduled), sorted(scheduled - axes)
    found = [Fault(f"it has no level for axis {format_symbols(missing)}")] if missing else []
    if unknown:
        found.append(Fault(f"the kernel has no axis {format_symbols(unknown)}; it has "
                           f"{format_symbols(kernel.axes)}", schedule.level(unknown[0])))
    return found
