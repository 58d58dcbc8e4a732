"""host-vary-schedules: give kernels of open sizes a schedule for each range of sizes.

    host.launch @k(%x, %y) sizes(n)     -->   host.launch @k(%x, %y) sizes(n) when min(...)
    loop.kernel @k(...) schedule<A>           host.launch @k_v1(%x, %y) sizes(n) when 1 - min(...)
                                              loop.kernel @k(...) schedule<A>
                                              loop.kernel @k_v1(...) schedule<B>

The target's rules say which schedules, and at which sizes (`Rules.schedules_by_size`). Exactly one
of the launches happens at any sizes. A kernel whose schedule is not the rules' own, because the
user or the tuner chose it, stays alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation

from dialects.host import LaunchOp, host_functions
from dialects.loop import KernelOp
from dialects.strata.schedule import Schedule, ScheduleAttr
from dialects.symbolic.expr import Expr
from dialects.text.syntax import set_location
from passes.analyses.host.storage import kernels_of
from passes.analyses.loop.level_order import with_sums_inside
from passes.base import StrataContext, StrataPass
from passes.contract import Rules

Choices = Sequence[tuple[Expr, KernelOp]]
"""Kernels that compute the same, each with an expression that is 1 at the sizes for it."""


class HostVarySchedules(StrataPass):
    """Launch other schedules of a kernel where they suit the sizes of a call."""

    name = "host-vary-schedules"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.rules is None:
            return
        kernels = kernels_of(module)
        launches = [op for f in host_functions(module) for op in f.walk()
                    if isinstance(op, LaunchOp)]
        done = {op.kernel.data for op in launches if op.when is not None}
        varied = {name: choices for name, kernel in kernels.items() if name not in done
                  and (choices := _choices(kernel, context.rules, kernels))
                  and context.allowance.take(kernel, self.name)}
        for op in launches:
            if op.kernel.data in varied:
                _launch_each(op, varied[op.kernel.data])
        for name, choices in varied.items():
            _insert(kernels[name], [k for _, k in choices if k is not kernels[name]])


def _choices(kernel: KernelOp, rules: Rules, kernels: Mapping[str, KernelOp]) -> Choices:
    """The kernel with each of the rules' schedules; empty for one that has a single schedule."""
    if kernel.schedule is None or not kernel.size_names:
        return ()
    own = kernel.schedule.data
    if own != with_sums_inside(kernel, rules.schedule(kernel)):
        return ()
    found = [(when, with_sums_inside(kernel, s)) for when, s in rules.schedules_by_size(kernel)]
    if len(found) < 2:
        return ()
    number = next((k for k, (_, s) in enumerate(found) if s == own), 0)
    kernel.properties["schedule"] = ScheduleAttr(found[number][1])
    return [(when, kernel if k == number else _copy(kernel, k, schedule, kernels))
            for k, (when, schedule) in enumerate(found)]


def _copy(
    kernel: KernelOp, number: int, schedule: Schedule, kernels: Mapping[str, KernelOp]
) -> KernelOp:
    """The kernel under another name, with another schedule."""
    name = f"{kernel.sym_name.data}_v{number}"
    while name in kernels:
        name += "_"
    copy = kernel.clone()
    copy.properties["sym_name"] = StringAttr(name)
    copy.properties["schedule"] = ScheduleAttr(schedule)
    return copy


def _launch_each(op: LaunchOp, choices: Choices) -> None:
    """Replace a launch by one of each kernel."""
    block = op.parent
    assert block is not None
    for when, kernel in choices:
        sizes = dict(zip(kernel.size_names, op.sizes.data, strict=True))
        made = LaunchOp.of(kernel.sym_name.data, op.buffers, op.sizes.data, when.substitute(sizes))
        set_location(made, op)
        block.insert_op_before(made, op)
    op.detach()
    op.erase()


def _insert(kernel: KernelOp, copies: Sequence[Operation]) -> None:
    block = kernel.parent
    assert block is not None
    block.insert_ops_after(list(copies), kernel)
