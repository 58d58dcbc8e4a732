"""Which launches can be one: those of few programs, of one kind, that do not depend on each other.

Programs of such launches run side by side in one kernel (`block-join-launches`). Buffers that one
of them reads or writes must be apart from those that another one writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from xdsl.ir import Operation, SSAValue

from dialects.host import AllocOp, ConstantOp, CopyOp, FuncOp, LaunchOp, ViewOp
from dialects.loop import KernelOp
from dialects.records import dataclass
from dialects.strata.schedule import Schedule
from passes.base import StrataContext

SOON = 4
"""How many times the programs that fill the machine are finished soon."""

WARPS = "warps"
"""The option by which parts may differ: how many warps share a program."""
PRODUCTS = "dot"
"""The option of kernels whose tiles depend on how many warps share a program."""

NAMES = (AllocOp, ViewOp, ConstantOp)
"""Operations that only name memory."""

Kind = tuple[tuple[str, object], ...]


def kind_of(schedule: Schedule, context: StrataContext) -> Kind | None:
    """What launches that become one have in common; None if such a kernel stays alone."""
    if context.rules is None or not context.rules.joins_launches(schedule):
        return None
    return tuple(o for o in schedule.options if o[0] != WARPS or schedule.given(PRODUCTS))


def kinds_of(kernels: Mapping[str, KernelOp], context: StrataContext) -> dict[str, Kind]:
    """The kinds of the kernels that can share a launch, by name."""
    most = SOON * context.facts.programs
    return {name: kind for name, kernel in kernels.items()
            if kernel.schedule is not None and not kernel.size_names
            and 0 < (programs_of(kernel) or 0) <= most
            and (kind := kind_of(kernel.schedule.data, context)) is not None}


def programs_of(kernel: KernelOp) -> int | None:
    """How many programs compute a kernel with a schedule; None if only a run knows."""
    assert kernel.schedule is not None
    extents = {a.name: a.extent.constant for n in kernel.nests for a in n.axes}
    grid = [(extents.get(x.axis), x.tile) for x in kernel.schedule.data.levels if x.kind == "grid"]
    known = [-(-extent // tile) for extent, tile in grid if extent is not None]
    return prod(known) if len(known) == len(grid) else None


@dataclass(frozen=True)
class Accesses:
    """The memories that an operation reads and writes, before buffers share any."""

    read: frozenset[SSAValue]
    written: frozenset[SSAValue]

    def conflicts(self, other: Accesses) -> bool:
        return bool(self.written & (other.read | other.written) or other.written & self.read)

    def with_(self, other: Accesses) -> Accesses:
        return Accesses(self.read | other.read, self.written | other.written)


NOTHING = Accesses(frozenset(), frozenset())


def accesses_of(op: Operation, kernels: Mapping[str, KernelOp]) -> Accesses | None:
    """What a launch or a copy accesses; None for an operation that keeps its place."""
    if isinstance(op, NAMES):
        return NOTHING
    if isinstance(op, CopyOp):
        return Accesses(frozenset([_memory(op.source)]), frozenset([_memory(op.target)]))
    if not isinstance(op, LaunchOp) or op.kernel.data not in kernels:
        return None
    count = len(kernels[op.kernel.data].body.block.args)
    return Accesses(frozenset(map(_memory, op.buffers[:count])),
                    frozenset(map(_memory, op.buffers[count:])))


def _memory(buffer: SSAValue) -> SSAValue:
    while isinstance(buffer.owner, ViewOp):
        buffer = buffer.owner.source
    return buffer


def runs_of(
    func: FuncOp, kernels: Mapping[str, KernelOp], context: StrataContext
) -> Iterator[Sequence[LaunchOp]]:
    """Launches with nothing between them but names of memory that can become one."""
    kinds, run = kinds_of(kernels, context), list[LaunchOp]()
    seen = NOTHING
    for op in func.body.block.ops:
        if isinstance(op, NAMES):
            continue
        own = accesses_of(op, kernels)
        kind = kinds.get(op.kernel.data) if isinstance(op, LaunchOp) else None
        if run and (own is None or kind != kinds[run[0].kernel.data] or own.conflicts(seen)):
            yield run
            run = []
        if isinstance(op, LaunchOp) and kind is not None and own is not None:
            seen = own.with_(seen) if run else own
            run.append(op)
    if run:
        yield run
