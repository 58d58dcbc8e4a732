"""block-overlap-collectives: send parts of a product while others are computed.

    host.launch @k(%x, %w, %y)                    %x0 = host.part %x[0]      %y0 = host.part %y[0]
    host.collective all_reduce %y, %y      -->    host.launch @k_part(%x0, %w, %y0)
                                                  host.collective all_reduce %y0, %y0
                                                  %x1 = host.part %x[...]    %y1 = host.part %y[...]
                                                  host.launch @k_part(%x1, %w, %y1)
                                                  host.collective all_reduce %y1, %y1

The second launch does not depend on the first exchange, so targets that order steps by what they
access run both at a time. How many parts there are follows from a model of time: the kernel's
predicted time on its rows, with the multiprocessors that are left while an exchange occupies some,
and the time of an exchange with the link's latency and bandwidth (`Rates`).

Enters: final kernels, planned memory, sums that no kernel computes (`block-join-collectives`).
Divided are exchanges in place of what the launch before stored, if one axis of its grid divides the
rows (`passes/rewrites/block/row_parts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.block import KernelOp
from dialects.host import CollectiveOp, LaunchOp, PartOp, host_functions
from dialects.ranks.collectives import ALL_REDUCE
from dialects.records import dataclass
from dialects.strata.schedule import Schedule, ScheduleAttr
from dialects.strata.types import buffer_type, byte_width
from passes.analyses.host.last_use import erase_unlaunched, last_user, memory_of
from passes.base import StrataContext, StrataPass
from passes.contract import Rates, Rules
from passes.rewrites.block.row_parts import RowAxis, part_kernel, part_type, row_axis

COUNTS = (2, 4, 8)
"""Numbers of parts that are tried."""


class BlockOverlapCollectives(StrataPass):
    """Compute products in parts, which are exchanged meanwhile."""

    name = "block-overlap-collectives"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        rules, rates = context.rules, context.facts.rates
        if rules is None or not rates.overlaps:
            return
        kernels = {op.sym_name.data: op for op in module.body.block.ops
                   if isinstance(op, KernelOp)}
        divided, plans = set[str](), dict[tuple[str, str, int], _Plan | None]()
        for function in host_functions(module):
            for op in [*function.body.block.ops]:
                found = _operand(op, kernels) if isinstance(op, CollectiveOp) else None
                if found is None:
                    continue
                if found.key not in plans:  # layers launch the same kernel
                    plans[found.key] = _plan(found, rules, rates)
                plan = plans[found.key]
                if plan is None:
                    continue
                context.remark(self, op, plan.told(found))
                if plan.count > 1 and context.allowance.take(op, self.name):
                    _divide(module, kernels, found, plan, divided)
        erase_unlaunched(module, divided)


@dataclass(frozen=True)
class _Exchange:
    """A collective operation in place, and the launch that stores all of its operand."""

    collective: CollectiveOp
    launch: LaunchOp
    kernel: KernelOp
    axis: RowAxis

    @property
    def key(self) -> tuple[str, str, int]:
        """What decides how long it takes."""
        how = self.collective.collective
        return self.kernel.sym_name.data, str(how.group), self.bytes

    @property
    def bytes(self) -> int:
        type_ = buffer_type(self.collective.source)
        return (type_.count.constant or 0) * byte_width(type_.element)


def _operand(op: CollectiveOp, kernels: Mapping[str, KernelOp]) -> _Exchange | None:
    memory, how = memory_of(op.source), op.collective
    if how.kind != ALL_REDUCE or how.group.size < 2 or memory_of(op.target) is not memory:
        return None
    launch = last_user(op, memory)
    if not isinstance(launch, LaunchOp) or launch.when is not None:
        return None
    places = [k for k, b in enumerate(launch.buffers) if memory_of(b) is memory]
    if len(places) != 1 or isinstance(launch.buffers[places[0]].owner, PartOp) or (
            isinstance(op.source.owner, PartOp)) or (
            buffer_type(launch.buffers[places[0]]).count != buffer_type(op.source).count):
        return None
    kernel = kernels[launch.kernel.data]
    axis = row_axis(kernel, places[0])
    return None if axis is None else _Exchange(op, launch, kernel, axis)


# ---------------------------------------------------------------------- the model of time
@dataclass(frozen=True)
class _Plan:
    """Into how many parts a product is divided. `seconds`: predicted, by the number of parts.
    `beside`: the schedule of a launch while a part is exchanged, if it differs from the kernel's.
    """

    count: int
    seconds: Mapping[int, float]
    beside: Schedule | None

    def told(self, found: _Exchange) -> str:
        times = ", ".join(f"{1e6 * t:.0f} us in {n}" if n > 1 else f"{1e6 * t:.0f} us whole"
                          for n, t in self.seconds.items())
        done = (f"is computed in {self.count} parts, which are exchanged while others are computed"
                if self.count > 1 else "is computed whole before it is exchanged")
        return (f"@{found.kernel.sym_name.data}, whose result is summed by "
                f"{found.collective.collective}, {done}: predicted are {times}")


def _plan(found: _Exchange, rules: Rules, rates: Rates) -> _Plan | None:
    """The fastest number of parts; None if the target predicts no times."""
    seconds: dict[int, float] = {}
    for count in (1, *(c for c in COUNTS if found.axis.extent % c == 0)):
        kernel = found.kernel if count == 1 else part_kernel(found.kernel, found.axis, count, "k")
        alone = rules.launch_seconds(found.launch, kernel, 0)
        beside = rules.launch_seconds(found.launch, kernel, rates.occupied)
        if alone is None or beside is None:
            return None
        ranks = found.collective.collective.group.size
        sent = rates.all_reduce(found.bytes / count, ranks)
        seconds[count] = _overlapped(alone, beside, sent, count)
    assert found.kernel.schedule is not None  # or the target would predict none
    own = found.kernel.schedule.data
    other = rules.beside_exchange(own, rates.occupied)
    return _Plan(
        min(seconds, key=seconds.__getitem__), seconds, None if other == own else other)


def _overlapped(alone: float, beside: float, sent: float, count: int) -> float:
    """Seconds until the last part is exchanged: exchanges follow each other, and so do parts."""
    computed = alone
    exchanged = computed + sent
    for _ in range(count - 1):
        computed += beside
        exchanged = max(exchanged, computed) + sent
    return exchanged


# ---------------------------------------------------------------------- dividing
def _divide(
    module: ModuleOp, kernels: dict[str, KernelOp], found: _Exchange, plan: _Plan,
    divided: set[str],
) -> None:
    collective, launch, count = found.collective, found.launch, plan.count
    first = _kernel(module, kernels, found, count, None)
    others = _kernel(module, kernels, found, count, plan.beside) if plan.beside else first
    divided.add(found.kernel.sym_name.data)
    place = next(k for k, b in enumerate(launch.buffers)
                 if memory_of(b) is memory_of(collective.source))
    for number in range(count):
        buffers = [_part(launch, found.axis, k, b, number, count)
                   for k, b in enumerate(launch.buffers)]
        own = LaunchOp.of(others if number else first, buffers, launch.sizes.data)
        sum_ = CollectiveOp.of(
            collective.kind.data, buffers[place], buffers[place],
            {k: v for k, v in collective.properties.items() if k != "kind"})
        own.location, sum_.location = launch.location, collective.location
        _insert([own, sum_], launch)
    for op in (launch, collective):
        op.detach()
        op.erase()


def _kernel(
    module: ModuleOp, kernels: dict[str, KernelOp], found: _Exchange, count: int,
    beside: Schedule | None,
) -> str:
    """The name of a kernel for parts, with its own schedule or another one."""
    name = f"{found.kernel.sym_name.data}_part{count}"
    if beside is not None:
        name += "_beside"
    if name not in kernels:
        kernels[name] = part_kernel(found.kernel, found.axis, count, name)
        if beside is not None:
            kernels[name].properties["schedule"] = ScheduleAttr(beside)
        module.body.block.insert_op_after(kernels[name], found.kernel)
    return name


def _part(
    launch: LaunchOp, axis: RowAxis, place: int, buffer: SSAValue, number: int, count: int
) -> SSAValue:
    """The buffer that part `number` of a launch takes in a position."""
    if place not in axis.dims:
        return buffer
    type_ = part_type(buffer_type(buffer), axis.dims[place], count)
    part = PartOp.from_element(buffer, type_.count * number, type_)
    part.location = launch.location
    part.result.name_hint = buffer.name_hint
    _insert([part], launch)
    return part.result


def _insert(ops: Sequence[Operation], before: Operation) -> None:
    assert before.parent is not None
    before.parent.insert_ops_before(ops, before)
