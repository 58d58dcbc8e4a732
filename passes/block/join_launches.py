"""block-join-launches: one launch for neighbouring launches that do not depend on each other.

    host.launch @map_0(%a, %x)           host.launch @join_0(%a, %b, %x, %y)
    host.launch @map_1(%b, %y)    -->    block.kernel @join_0(...) grid(%p: 63) {
                                           block.for %i = max(%p, 0) to min(%p + 1, 54) {...}
                                           block.for %i = max(%p - 54, 0) to min(%p - 53, 9) {...}
                                         }

A step of an optimizer computes the same of dozens of tensors, and a launch takes longer than most
of them. Each program of the joined kernel belongs to one part (`dialects/block/branches.py`).

Enters: final kernels with proven accesses, and planned memory. Joined are kernels of static grids
that load, multiply, compute and store tiles, with the same options, and with so few programs that a
machine finishes each of them soon. No part touches memory that another one writes; parts of a
concatenation write the same buffer at other places.
`host-gather-launches` puts such launches next to each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.block import (
    ConvertOp,
    DotOp,
    ForOp,
    FullOp,
    IndexOp,
    KernelOp,
    LoadOp,
    MapOp,
    ReduceOp,
    StoreOp,
    ValidOp,
    YieldOp,
)
from dialects.block.branches import Branch
from dialects.host import AllocOp, ConstantOp, FuncOp, LaunchOp, ViewOp, host_functions
from dialects.records import dataclass
from dialects.strata.schedule import Schedule, ScheduleAttr
from dialects.strata.types import BufferType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import merge_locations
from passes.analyses.block.boxes import Boxes, are_apart
from passes.analyses.block.tile_operations import tile_operations
from passes.analyses.host.neighbours import SOON, WARPS, Kind, kind_of
from passes.base import StrataContext, StrataPass
from passes.rewrites.block.programs import add_programs

MOST_BUFFERS = 256
"""The most buffers of a joined kernel; their addresses are its arguments, of at most 4 KiB."""

MOST_OPERATIONS = 2048
"""The most operations of a joined kernel, which bounds its code."""

MOST_DOTS = 2
"""The most products of a part; chains of products, as of attention's gradients, need all registers.
"""

_PLAIN = (LoadOp, StoreOp, MapOp, IndexOp, ValidOp, FullOp, ReduceOp, ConvertOp, YieldOp, ForOp,
          DotOp)


_Made = dict[tuple[str, ...], str]
"""Joined kernels by the names of their parts."""


class BlockJoinLaunches(StrataPass):
    """Join launches that do not depend on each other."""

    name = "block-join-launches"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        programs = context.facts.programs
        if programs == 1:
            return
        kernels = {op.sym_name.data: op for op in module.body.block.ops
                   if isinstance(op, KernelOp)}
        kinds = {n: kind for n, k in kernels.items() if _is_joinable(k, SOON * programs)
                 and (kind := _kind(k, context)) is not None}
        made: _Made = {}
        for function in host_functions(module):
            for group in [*_groups(function, kernels, kinds)]:
                if len(group.launches) > 1 and context.allowance.take(
                        group.launches[-1], self.name):
                    _join(module, kernels, group, made)
        _erase_unused(module, kernels)


def _is_joinable(kernel: KernelOp, most: int) -> bool:
    grid = [e.constant for e in kernel.grid.data]
    others = [op for op in tile_operations(kernel) if not isinstance(op, _PLAIN)]
    dots = sum(isinstance(op, DotOp) for op in kernel.walk())
    if others or dots > MOST_DOTS or kernel.size_names or None in grid:
        return False
    return 0 < prod(n or 0 for n in grid) <= most


def _kind(kernel: KernelOp, context: StrataContext) -> Kind | None:
    return None if kernel.schedule is None else kind_of(kernel.schedule.data, context)


# ---------------------------------------------------------------------- groups
@dataclass(frozen=True)
class _Write:
    """A buffer that a launch writes, and the kernel's name for it."""

    buffer: SSAValue
    kernel: KernelOp
    own: SSAValue


@dataclass
class _Group:
    """Launches that can run in any order."""

    boxes: Boxes
    kind: Kind | None = None
    launches: list[LaunchOp] = field(default_factory=list[LaunchOp])
    read: list[SSAValue] = field(default_factory=list[SSAValue])
    written: list[_Write] = field(default_factory=list[_Write])
    operations: int = 0

    def takes(self, launch: LaunchOp, kernel: KernelOp, kind: Kind) -> bool:
        if kind != self.kind or (
                len(self.read) + len(self.written) + len(launch.buffers) > MOST_BUFFERS) or (
                self.operations + _length(kernel) > MOST_OPERATIONS):
            return False
        reads, writes = _roles(launch, kernel)
        return not any(_may_overlap(a.buffer, b) for a in writes for b in self.read) and not any(
            _may_overlap(a, b.buffer) for a in reads for b in self.written) and not any(
            self._collide(a, b) for a in writes for b in self.written)

    def _collide(self, a: _Write, b: _Write) -> bool:
        """Whether two launches may write the same element."""
        if a.buffer is b.buffer and are_apart(
                self.boxes.of(a.kernel, a.own), self.boxes.of(b.kernel, b.own)):
            return False
        return _may_overlap(a.buffer, b.buffer)

    def add(self, launch: LaunchOp, kernel: KernelOp) -> None:
        reads, writes = _roles(launch, kernel)
        self.launches.append(launch)
        self.read += reads
        self.written += writes
        self.operations += _length(kernel)


def _length(kernel: KernelOp) -> int:
    return sum(1 for _ in kernel.walk())


def _groups(
    function: FuncOp, kernels: Mapping[str, KernelOp], kinds: Mapping[str, Kind]
) -> Iterator[_Group]:
    """Runs of launches with nothing between them but names of memory, and launches of nothing."""
    boxes = Boxes()
    group = _Group(boxes)
    for op in function.body.block.ops:
        kind = kinds.get(op.kernel.data) if isinstance(op, LaunchOp) else None
        if isinstance(op, LaunchOp) and op.kernel.data in kernels and any(
                e.constant == 0 for e in kernels[op.kernel.data].grid.data):
            continue
        if isinstance(op, LaunchOp) and kind is not None:
            kernel = kernels[op.kernel.data]
            if not group.takes(op, kernel, kind):
                yield group
                group = _Group(boxes, kind)
            group.add(op, kernel)
        elif not isinstance(op, ViewOp | ConstantOp) and not (
                isinstance(op, AllocOp) and op.offset is not None):
            yield group
            group = _Group(boxes)
    yield group


def _roles(launch: LaunchOp, kernel: KernelOp) -> tuple[list[SSAValue], list[_Write]]:
    """The buffers that a launch reads, and those that it writes."""
    loaded = {op.buffer for op in kernel.walk() if isinstance(op, LoadOp)}
    stored = {op.buffer for op in kernel.walk() if isinstance(op, StoreOp)}
    rows = list(zip(launch.buffers, kernel.buffers, strict=True))
    return [v for v, b in rows if b in loaded], [
        _Write(v, kernel, b) for v, b in rows if b in stored]


def _may_overlap(a: SSAValue, b: SSAValue) -> bool:
    """Whether two buffers may share memory. What a caller passes is apart from all else."""
    a, b = _memory(a), _memory(b)
    if a is b or not (isinstance(a.owner, AllocOp) and isinstance(b.owner, AllocOp)):
        return a is b
    first, second = _range(a.owner), _range(b.owner)
    return first is None or second is None or (
        first.start < second.stop and second.start < first.stop)


def _memory(buffer: SSAValue) -> SSAValue:
    return _memory(buffer.owner.operands[0]) if isinstance(buffer.owner, ViewOp) else buffer


def _range(op: AllocOp) -> range | None:
    """The bytes of the arena; None if only a run knows."""
    type_ = op.result.type
    assert isinstance(type_, BufferType)
    first = None if op.offset is None else op.offset.data.constant
    size = type_.byte_size.constant
    return None if first is None or size is None else range(first, first + size)


# ---------------------------------------------------------------------- joining
def _join(module: ModuleOp, kernels: dict[str, KernelOp], group: _Group, made: _Made) -> None:
    """Replace the launches of a group by one, of a new kernel unless the same parts have one."""
    parts = tuple(op.kernel.data for op in group.launches)
    if parts not in made:
        made[parts] = _kernel_of(module, kernels, [kernels[n] for n in parts])
    last = group.launches[-1]
    launch = LaunchOp.of(made[parts], [b for op in group.launches for b in op.buffers], [])
    merge_locations(launch, group.launches)
    assert last.parent is not None
    last.parent.insert_op_before(launch, last)
    for op in group.launches:
        op.detach()
        op.erase()


def _kernel_of(
    module: ModuleOp, kernels: dict[str, KernelOp], parts: Sequence[KernelOp]
) -> str:
    """Add a kernel of these parts. Returns its name."""
    counts = [prod(e.constant or 0 for e in k.grid.data) for k in parts]
    name = next(n for n in (f"join_{k}" for k in range(len(kernels) + 1)) if n not in kernels)
    types = [b.type for k in parts for b in k.buffers]
    joined = KernelOp.of(name, [t for t in types if isinstance(t, BufferType)], [sum(counts)], [],
                         _schedule(parts))
    _fill(joined, parts, counts)
    merge_locations(joined, parts)
    module.body.block.add_op(joined)
    kernels[name] = joined
    return name


def _schedule(parts: Sequence[KernelOp]) -> ScheduleAttr:
    """The options of the part with the most warps, for which the others' tiles are small."""
    found = [k.schedule.data for k in parts if k.schedule is not None]
    return ScheduleAttr(Schedule((), max(found, key=lambda s: int(s.given(WARPS) or 0)).options))


def _fill(joined: KernelOp, parts: Sequence[KernelOp], counts: Sequence[int]) -> None:
    """The parts as branches over the program id."""
    body, buffers, first = joined.body.block, list(joined.buffers), 0
    for part, count in zip(parts, counts, strict=True):
        own, buffers = buffers[:len(part.buffers)], buffers[len(part.buffers):]
        for buffer, old in zip(own, part.buffers, strict=True):
            buffer.name_hint = old.name_hint
        index = Expr.symbol(Symbol.operand(0)) - first
        branch = ForOp.of(*Branch(index, 0, count).bounds, 1, joined.program_ids)
        body.add_op(branch)
        add_programs(part, branch, dict(zip(part.buffers, own, strict=True)))
        first += count
    end = YieldOp.create()
    body.add_op(end)
    merge_locations(end, [op for op in body.ops if isinstance(op, ForOp)])


def _erase_unused(module: ModuleOp, kernels: Mapping[str, KernelOp]) -> None:
    called = {op.kernel.data for f in host_functions(module) for op in f.body.block.ops
              if isinstance(op, LaunchOp)}
    unused: list[Operation] = [k for n, k in kernels.items() if n not in called]
    joined = any(n.startswith("join_") for n in kernels)
    for kernel in unused if joined else ():
        kernel.detach()
        kernel.erase()
