"""`loop-schedule`: give a schedule to every kernel that has none.

    loop.kernel @k(...) { ... }   ->   loop.kernel @k(...) schedule<grid i0 tile 1, ...> { ... }

The target's rules choose the schedule, and loops over reduced axes are moved inside the others.
A schedule that is already there (from the user or the tuner) is kept.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from dialects.loop import KernelOp
from dialects.strata.schedule import ScheduleAttr
from passes.analyses.loop.level_order import with_sums_inside
from passes.base import PassError, StrataContext, StrataPass


class LoopSchedule(StrataPass):
    """Ask the target's rules for schedules."""

    name = "loop-schedule"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.rules is None:
            return
        faults: list[tuple[str, str]] = []
        for op in module.body.block.ops:
            if isinstance(op, KernelOp) and op.schedule is None and (
                    context.allowance.take(op, self.name)):
                schedule = with_sums_inside(op, context.rules.schedule(op))
                faults += [("", f"the rules of target {context.facts.target} for "
                                f"@{op.sym_name.data}: {fault}")
                           for fault in context.schedule_options.faults(schedule.options)]
                op.properties["schedule"] = ScheduleAttr(schedule)
        if faults:
            raise PassError(self.name, faults)
