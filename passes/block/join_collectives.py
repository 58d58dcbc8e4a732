"""block-join-collectives: programs send their tiles to the other ranks, instead of one more kernel.

    host.launch @k(%x, %w, %y)                     host.launch @k_ranks(%x, %w, %y)
    host.collective all_reduce %y, %y    -->       block.kernel @k_ranks(...) {
                                                     %s = block.all_reduce %t {group = ...}
                                                     block.store %s, %y[...]

A small all-reduce takes as long as some messages between ranks, most of which it spends before and
after them. A program that has a part of the operand can send it at once.

Enters: final kernels, planned memory. Joined are sums of f16, bf16 or f32 in place, whose operand
is what the launch before stored, each program one tile, and which the target predicts to be faster
so (`Facts.exchanged_elements`, `Rates.message`). In functions without control flow.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import SSAValue

from dialects.block import AllReduceOp, KernelOp, StoreOp
from dialects.block.rank_op import SUMMED
from dialects.host import CollectiveOp, LaunchOp, host_functions
from dialects.ranks.collectives import ALL_REDUCE
from dialects.records import dataclass
from dialects.strata.control import ControlOp
from dialects.strata.sizes import SizeOp
from dialects.strata.types import TileType, buffer_type, byte_width
from dialects.text.syntax import merge_locations
from passes.analyses.host.last_use import erase_unlaunched, last_user, memory_of
from passes.base import StrataContext, StrataPass
from passes.contract import Facts, Rules

WORD = 8
"""The bytes that are sent for an element: its value in f32, and the number of the exchange."""


class BlockJoinCollectives(StrataPass):
    """Let programs exchange tiles with other ranks."""

    name = "block-join-collectives"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        functions = host_functions(module)
        rules = context.rules
        if rules is None or not context.facts.exchanged_elements or any(
                isinstance(op, ControlOp | SizeOp) for f in functions for op in f.body.block.ops):
            return
        kernels = {op.sym_name.data: op for op in module.body.block.ops
                   if isinstance(op, KernelOp)}
        made: dict[tuple[str, int, str], str] = {}
        for function in functions:
            for op in [*function.body.block.ops]:
                found = _operand(op, kernels, rules) if isinstance(op, CollectiveOp) else None
                if found is None or not _pays(found, context.facts):
                    continue
                if context.allowance.take(found.collective, self.name):
                    _join(module, kernels, found, made)
        erase_unlaunched(module, {name for name, _, _ in made})
        if made:
            context.remark(self, module, f"{len(made)} kernels exchange their tiles with other "
                           "ranks instead of leaving an all-reduce to the library")


@dataclass(frozen=True)
class _Sum:
    """An all-reduce, and the launch that stores its operand as buffer `place` of its kernel."""

    collective: CollectiveOp
    launch: LaunchOp
    kernel: KernelOp
    place: int
    store: StoreOp

    @property
    def programs(self) -> int:
        return prod(e.constant or 0 for e in self.kernel.grid.data)

    @property
    def elements(self) -> int:
        """The elements of all tiles."""
        type_ = self.store.value.type
        assert isinstance(type_, TileType)
        return self.programs * prod(type_.shape)


def _operand(op: CollectiveOp, kernels: Mapping[str, KernelOp], rules: Rules) -> _Sum | None:
    """Where the operand of a sum in place is stored, if programs can sum what they store."""
    how, memory = op.collective, memory_of(op.source)
    if how.kind != ALL_REDUCE or how.reduction != "sum" or memory_of(op.target) is not memory or (
            how.group.size < 2 or buffer_type(op.source).element not in SUMMED):
        return None
    launch = last_user(op, memory)
    if not isinstance(launch, LaunchOp) or launch.when is not None:
        return None
    kernel = kernels[launch.kernel.data]
    if kernel.schedule is None or not rules.exchanges_tiles(kernel.schedule.data):
        return None
    places = [k for k, b in enumerate(launch.buffers) if memory_of(b) is memory]
    if len(places) != 1 or None in [e.constant for e in kernel.grid.data] or (
            buffer_type(launch.buffers[places[0]]).count != buffer_type(op.source).count):
        return None
    uses = [use.operation for use in kernel.buffers[places[0]].uses]
    if len(uses) != 1 or not isinstance(uses[0], StoreOp) or uses[0].combiner is not None or (
            uses[0].parent is not kernel.body.block or not _is_tile(uses[0].value)):
        return None
    return _Sum(op, launch, kernel, places[0], uses[0])


def _is_tile(value: SSAValue) -> bool:
    return isinstance(value.type, TileType) and value.type.rank > 0 and value.type.lanes is None


def _pays(found: _Sum, facts: Facts) -> bool:
    """Whether programs are predicted to sum faster than the library, and have the room."""
    if found.programs > facts.exchanged_programs or found.elements > facts.exchanged_elements:
        return False
    ranks, rates = found.collective.collective.group.size, facts.rates
    type_ = buffer_type(found.collective.source)
    count = type_.count.constant
    if count is None:
        return False
    sent = WORD * found.elements * (ranks - 1) / rates.exchanges
    return rates.message + sent < rates.all_reduce(count * byte_width(type_.element), ranks)


# ---------------------------------------------------------------------- joining
def _join(
    module: ModuleOp, kernels: dict[str, KernelOp], found: _Sum,
    made: dict[tuple[str, int, str], str],
) -> None:
    collective, name = found.collective, found.kernel.sym_name.data
    key = name, found.place, str(collective.group)
    if key not in made:
        copy = _summing(found, _fresh(f"{name}_ranks", kernels))
        module.body.block.insert_op_after(copy, found.kernel)
        made[key] = copy.sym_name.data
        kernels[made[key]] = copy
    found.launch.properties["kernel"] = StringAttr(made[key])
    merge_locations(found.launch, [found.launch, collective])
    collective.detach()
    collective.erase()


def _summing(found: _Sum, name: str) -> KernelOp:
    """A copy of the kernel that sums what it stores over the ranks."""
    values: dict[SSAValue, SSAValue] = {}
    copy = found.kernel.clone(values)
    copy.properties["sym_name"] = StringAttr(name)
    [store] = [use.operation for use in copy.buffers[found.place].uses]
    assert isinstance(store, StoreOp)
    sum_ = AllReduceOp.of(store.value, found.collective.group)
    merge_locations(sum_, [found.collective])
    copy.body.block.insert_op_before(sum_, store)
    store.operands[store.operands.index(store.value)] = sum_.result
    return copy


def _fresh(name: str, taken: Mapping[str, KernelOp]) -> str:
    number = 0
    while (found := f"{name}_{number}" if number else name) in taken:
        number += 1
    return found
