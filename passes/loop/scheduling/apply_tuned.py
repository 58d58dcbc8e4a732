"""`loop-apply-tuned`: apply the schedules that `tune` found to the kernels they were found for.

    loop.kernel @k(...) { ... }   ->   loop.kernel @k(...) schedule<grid a tile 1, ...> { ... }

Enters: kernels whose axes are final and whose operands are not packed yet. What the target packs
follows from the schedule, so this pass runs before packing. An existing schedule is kept. The
target's rules still decide for kernels that were not tuned, for kernels where the rules won, and
for kernels whose rules have changed their choice since.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from dialects.loop import CallOp, KernelOp
from dialects.strata.schedule import ScheduleAttr
from passes.analyses.loop.choices import Choosing
from passes.base import StrataContext, StrataPass
from passes.rewriting import functions


class LoopApplyTuned(StrataPass):
    """Look kernels up among the choices that tuning measured."""

    name = "loop-apply-tuned"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if not context.choices or context.rules is None:
            return
        kernels = {op.sym_name.data: op for op in module.body.block.ops
                   if isinstance(op, KernelOp)}
        choosing = Choosing(context.choices, context.weights, context.rules.schedule)
        for func in functions(module):
            for call in func.body.block.ops:
                if isinstance(call, CallOp):
                    self._apply(context, call, kernels[call.kernel.data], choosing)

    def _apply(
        self, context: StrataContext, call: CallOp, kernel: KernelOp, choosing: Choosing
    ) -> None:
        if kernel.schedule is not None:
            return
        canonical, choice = choosing.of(call, kernel)
        schedule = choice.schedule and canonical.own(choice.schedule)
        if schedule is None or not context.allowance.take(kernel, self.name):
            return
        if faults := context.schedule_options.faults(schedule.options):
            context.remark(self, kernel, f"@{kernel.sym_name.data} has a tuned schedule of another "
                                         f"version: {faults[0]}")
        else:
            kernel.properties["schedule"] = ScheduleAttr(schedule)
            context.remark(self, kernel, f"@{kernel.sym_name.data} has a tuned schedule, "
                                         f"{choice.gain:.2f}x as fast as the rules' schedule")
