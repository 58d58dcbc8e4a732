"""block-overlap-collectives: send parts of a product while others are computed.

    host.launch @k(%x, %w, %y)                    %x0 = host.part %x[0]      %y0 = host.part %y[0]
    host.collective all_reduce %y, %y      -->    host.launch @k_part(%x0, %w, %y0)
                                                  host.collective all_reduce %y0, %y0
                                                  %x1 = host.part %x[...]    %y1 = host.part %y[...]
                                                  host.launch @k_part(%x1, %w, %y1)
                                                  host.collective all_reduce %y1, %y1

The second launch does not depend on the first exchange, so targets that order steps by what they
access run both at a time. Launches that read the sum (a norm, and the products after it) are
divided alike: their first parts need only the first parts of the sum, so they run while the last
part is exchanged. How many parts there are, and which launches are divided, follows from a model of
time: launches and exchanges share the multiprocessors (`passes/analyses/host/occupancy.py`), and
the link has a latency and a bandwidth (`Rates`). Buffers are placed anew, since no part may write
to what another part still reads.

Enters: final kernels, planned memory, sums that no kernel computes (`block-join-collectives`).
Divided are exchanges in place of what the launch before stored, if one axis of its grid divides the
rows (`passes/rewrites/block/row_parts.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.block import KernelOp, StoreOp
from dialects.host import (
    AllocOp,
    CollectiveOp,
    ConstantOp,
    LaunchOp,
    PartOp,
    ViewOp,
    host_functions,
)
from dialects.ranks.collectives import ALL_REDUCE
from dialects.records import dataclass
from dialects.strata.schedule import Schedule, ScheduleAttr
from dialects.strata.types import buffer_type, byte_width
from passes.analyses.host.last_use import erase_unlaunched, last_user, memory_of
from passes.analyses.host.occupancy import Task, seconds_of
from passes.base import StrataContext, StrataPass
from passes.contract import Rates, Rules, Turns
from passes.host.plan_buffers import plan_again, shared_memory
from passes.rewrites.block.row_parts import RowAxis, part_kernel, part_type, row_axis

COUNTS = (2, 4, 8)
"""Numbers of parts that are tried."""
MOST_READERS = 8
"""So many launches after an exchange are looked at. More take longer than it."""


class BlockOverlapCollectives(StrataPass):
    """Compute products in parts, which are exchanged meanwhile."""

    name = "block-overlap-collectives"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        rules, rates = context.rules, context.facts.rates
        if rules is None or not rates.overlaps:
            return
        kernels = {op.sym_name.data: op for op in module.body.block.ops
                   if isinstance(op, KernelOp)}
        divided, plans = set[str](), dict[_Key, _Plan | None]()
        for function in host_functions(module):
            found = {op: e for op in function.body.block.ops if isinstance(op, CollectiveOp)
                     and (e := _exchange(op, kernels)) is not None}
            stored = {e.stored.launch for e in found.values()}
            shared, runs = shared_memory(function), list[list[LaunchOp]]()
            for op, exchange in found.items():
                readers = _readers(op, kernels, stored)
                key = exchange.key, tuple(r.key for r in readers)
                if key not in plans:  # layers launch the same kernels
                    plans[key] = _plan(exchange, readers, rules, rates)
                plan = plans[key]
                if plan is None:
                    continue
                context.remark(self, op, plan.told(exchange, readers))
                if plan.count > 1 and context.allowance.take(op, self.name):
                    divide = _Division(module, kernels, plan.count, divided)
                    divide.exchange(exchange, plan.divides, rules, rates)
                    divide.readers(readers[:plan.readers], rules)
                    runs.append(divide.made)
            if runs:
                plan_again(function, shared, runs)
        erase_unlaunched(module, divided)


@dataclass(frozen=True)
class _Rows:
    """A launch whose rows can be divided."""

    launch: LaunchOp
    kernel: KernelOp
    axis: RowAxis

    @property
    def key(self) -> tuple[str, int]:
        """What decides how long it takes, and how it is divided."""
        return self.kernel.sym_name.data, self.axis.number

    @property
    def stored(self) -> Collection[int]:
        """The positions of the buffers that it stores to."""
        return {self.kernel.buffers.index(op.buffer) for op in self.kernel.walk()
                if isinstance(op, StoreOp) and op.buffer in self.kernel.buffers}

    def part(self, count: int) -> KernelOp:
        """The kernel of one of so many parts."""
        return self.kernel if count == 1 else part_kernel(self.kernel, self.axis, count, "k")


@dataclass(frozen=True)
class _Exchange:
    """A collective operation in place, and the launch that stores all of its operand."""

    collective: CollectiveOp
    stored: _Rows

    @property
    def key(self) -> tuple[str, int, str, int]:
        """What decides how long it takes."""
        return *self.stored.key, str(self.collective.collective.group), self.bytes

    @property
    def bytes(self) -> int:
        type_ = buffer_type(self.collective.source)
        return (type_.count.constant or 0) * byte_width(type_.element)


_Key = tuple[tuple[str, int, str, int], tuple[tuple[str, int], ...]]


def _exchange(op: CollectiveOp, kernels: Mapping[str, KernelOp]) -> _Exchange | None:
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
    return None if axis is None else _Exchange(op, _Rows(launch, kernel, axis))


def _readers(
    op: CollectiveOp, kernels: Mapping[str, KernelOp], stored: Collection[LaunchOp]
) -> Sequence[_Rows]:
    """The launches behind an exchange that compute rows of what they read from rows of its result
    or of each other's results, up to the first other one. `stored`: launches before exchanges."""
    found: list[_Rows] = []
    memories = {memory_of(op.target)}
    for launch in _launches_after(op):
        places = [k for k, b in enumerate(launch.buffers) if memory_of(b) in memories]
        if launch in stored or launch.when is not None or not places or (
                len(found) == MOST_READERS):
            break
        kernel = kernels[launch.kernel.data]
        axis = row_axis(kernel, places[0])
        if axis is None:
            break
        found.append(_Rows(launch, kernel, axis))
        memories |= {memory_of(launch.buffers[k]) for k in found[-1].stored if k in axis.dims}
    return found


def _launches_after(op: Operation) -> Sequence[LaunchOp]:
    """The launches between an operation and the next one that is no launch."""
    found: list[LaunchOp] = []
    after = op.next_op
    while isinstance(after, LaunchOp | AllocOp | ConstantOp | ViewOp):
        found += [after] if isinstance(after, LaunchOp) else []
        after = after.next_op
    return found


# ---------------------------------------------------------------------- the model of time
@dataclass(frozen=True)
class _Plan:
    """Into how many parts an exchange, and so many launches that read the sum, are divided.
    `divides`: whether the product is, too. `seconds`: those until all of them have ended, by the
    number of parts."""

    count: int
    divides: bool
    readers: int
    seconds: Mapping[int, float]

    def told(self, found: _Exchange, readers: Sequence[_Rows]) -> str:
        times = ", ".join(f"{1e6 * t:.0f} us in {n}" if n > 1 else f"{1e6 * t:.0f} us whole"
                          for n, t in self.seconds.items())
        done = "is computed whole before it is exchanged"
        if self.count > 1:
            done = (f"is computed in {self.count} parts, which are exchanged while others are "
                    "computed" if self.divides else
                    f"is computed whole, and exchanged in {self.count} parts")
        names = ["@" + r.kernel.sym_name.data for r in readers]
        then = f" up to the end of {names[-1]}" if names else ""
        also = f"; divided alike are {', '.join(names[:self.readers])}" if self.readers else ""
        return (f"@{found.stored.kernel.sym_name.data}, whose result is summed by "
                f"{found.collective.collective}, {done}: predicted are {times}{then}{also}")


def _plan(
    found: _Exchange, readers: Sequence[_Rows], rules: Rules, rates: Rates
) -> _Plan | None:
    """The fastest plan, with the fewest parts of those whose times are alike; None if the target
    predicts no times."""
    steps = [found.stored, *readers]
    times: dict[tuple[int, int], Turns] = {}
    """By the number of a step, and into how many parts it is divided."""
    best: dict[int, tuple[float, bool, int]] = {}
    for count in (1, *(c for c in COUNTS if found.stored.axis.extent % c == 0)):
        for number, step in enumerate(steps):
            if step.axis.extent % count == 0:
                turns = rules.launch_turns(step.launch, step.part(count))
                if turns is None:
                    return None
                times[number, count] = turns
        for divided in range(len(steps) if count > 1 else 1):
            if divided and (divided, count) not in times:
                break
            for divides in (True, False) if count > 1 else (False,):
                tasks = _tasks(found, readers, (count, divides, divided), times, rates)
                told = seconds_of(tasks, rates.multiprocessors), divides, divided
                best[count] = min(best.get(count, told), told)
    least = min(seconds for seconds, _, _ in best.values())
    count = next(n for n, (seconds, _, _) in best.items() if seconds <= least * (1 + rates.alike))
    _, divides, divided = best[count]
    return _Plan(count, divides, divided, {n: told[0] for n, told in best.items()})


def _tasks(
    found: _Exchange, readers: Sequence[_Rows], plan: tuple[int, bool, int],
    times: Mapping[tuple[int, int], Turns], rates: Rates,
) -> Sequence[Task]:
    """The steps of a plan (how many parts, whether also of the product, and of how many readers),
    as the device executes them: each part waits for the parts of what it reads, and exchanges for
    each other."""
    count, divides, divided = plan
    ranks = found.collective.collective.group.size
    sent = rates.all_reduce(found.bytes / count, ranks)
    free = rates.multiprocessors - rates.occupied
    tasks: list[Task] = []
    written: defaultdict[SSAValue, list[int]] = defaultdict(list[int])
    """The tasks that write a memory: one for each part, or a single one."""
    sums = written[memory_of(found.collective.target)]
    turns = times[0, count if divides else 1]
    for part in range(count):
        if divides or not part:
            tasks.append(Task(turns.count, turns.seconds, (), turns.start, free if part else 0))
        after = [len(tasks) - 1, *sums[-1:]]
        sums.append(len(tasks))
        tasks.append(Task(rates.occupied, sent, after, turns.start, is_exchange=True))
    for number, reader in enumerate(readers, 1):
        parts = count if number <= divided else 1
        turns, first = times[number, parts], len(tasks)
        for part in range(parts):
            after: list[int] = []
            for place, buffer in enumerate(reader.launch.buffers):
                writers = written.get(memory_of(buffer), [])
                after += ([writers[part]] if place in reader.axis.dims and len(writers) == parts
                          else writers)
            tasks.append(Task(turns.count, turns.seconds, sorted(set(after)), turns.start))
        for place in reader.stored:
            written[memory_of(reader.launch.buffers[place])] = [*range(first, len(tasks))]
    return tasks


# ---------------------------------------------------------------------- dividing
class _Division:
    """Replaces launches by parts. `divided`: gets the names of kernels that are replaced. `made`:
    the launches of parts."""

    def __init__(
        self, module: ModuleOp, kernels: dict[str, KernelOp], count: int, divided: set[str]
    ) -> None:
        self.module, self.kernels, self.count, self.divided = module, kernels, count, divided
        self.made = list[LaunchOp]()

    def exchange(self, found: _Exchange, divides: bool, rules: Rules, rates: Rates) -> None:
        """Divide an exchange, and the product before it if `divides`. Then an exchange begins when
        the first part has ended, beside all others."""
        collective, step = found.collective, found.stored
        place = next(k for k, b in enumerate(step.launch.buffers)
                     if memory_of(b) is memory_of(collective.source))
        for number in range(self.count):
            if divides:
                own = _schedule(step)
                other = rules.before_exchange(own, rates.occupied) if number else own
                buffer = self._launch(step, other, "_before", number).buffers[place]
            else:
                buffer = self._part(step, place, number)
            sum_ = CollectiveOp.of(
                collective.kind.data, buffer, buffer,
                {k: v for k, v in collective.properties.items() if k != "kind"})
            sum_.location = collective.location
            _insert(sum_, step.launch if divides else collective)
        _erase(collective)
        if divides:
            _erase(step.launch)
        else:
            self.made.append(step.launch)

    def readers(self, found: Sequence[_Rows], rules: Rules) -> None:
        """Divide launches that read the sum. After the last exchange, none disturbs them."""
        for step in found:
            own = _schedule(step)
            for number in range(self.count):
                last = number == self.count - 1
                self._launch(step, own if last else rules.beside_exchange(own), "_beside", number)
            _erase(step.launch)

    def _launch(self, step: _Rows, schedule: Schedule, suffix: str, number: int) -> LaunchOp:
        """Compute part `number`, before the whole launch. `suffix`: tells kernels with another
        schedule than the whole has."""
        buffers = [self._part(step, place, number) for place in range(len(step.launch.buffers))]
        kernel = self._kernel(step, schedule, "" if schedule == _schedule(step) else suffix)
        launch = LaunchOp.of(kernel, buffers, step.launch.sizes.data)
        launch.location = step.launch.location
        _insert(launch, step.launch)
        self.made.append(launch)
        return launch

    def _kernel(self, step: _Rows, schedule: Schedule, suffix: str) -> str:
        """The name of a kernel for parts with a schedule."""
        whole = step.kernel.sym_name.data
        self.divided.add(whole)
        name = f"{whole}_part{self.count}{suffix}"
        if name not in self.kernels:
            made = self.kernels[name] = part_kernel(step.kernel, step.axis, self.count, name)
            made.properties["schedule"] = ScheduleAttr(schedule)
            self.module.body.block.insert_op_after(made, step.kernel)
        return name

    def _part(self, step: _Rows, place: int, number: int) -> SSAValue:
        """The buffer that part `number` of a launch takes in a position."""
        launch, dims = step.launch, step.axis.dims
        buffer = launch.buffers[place]
        if place not in dims:
            return buffer
        type_ = part_type(buffer_type(buffer), dims[place], self.count)
        part = PartOp.from_element(buffer, type_.count * number, type_)
        part.location = launch.location
        part.result.name_hint = buffer.name_hint
        _insert(part, launch)
        return part.result


def _schedule(step: _Rows) -> Schedule:
    assert step.kernel.schedule is not None  # or the target would predict no time
    return step.kernel.schedule.data


def _erase(op: Operation) -> None:
    op.detach()
    op.erase()


def _insert(op: Operation, before: Operation) -> None:
    assert before.parent is not None
    before.parent.insert_op_before(op, before)
