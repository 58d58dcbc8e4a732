"""The kernel of a chain of launches: a program computes a block of each, one after another.

What one hands on to the next is in private memory, which has a block's places alone along joint
axes: `place mod block`. Dims that writer and reader see differently are one dim there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Block, SSAValue

from dialects.block import ForOp, KernelOp, LoadOp, PrefetchOp, ScratchOp, StoreOp, YieldOp
from dialects.block.kernel_ops import PARALLEL
from dialects.strata.schedule import Schedule, ScheduleAttr
from dialects.strata.types import BufferType, SizesAttr, buffer_type
from dialects.symbolic.expr import Expr, minimum
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import merge_locations, set_location
from passes.analyses.block.chains import Chain, Dims, Part


def kept_shape(chain: Chain, link: int, steps: int) -> list[Expr]:
    """The shape of what a program keeps of a linking buffer: along joint axes, a block's places."""
    return [p.size if (places := _places(chain, link, p, steps)) is None else Expr.of(places)
            for p in chain.links[link].parts]


def _places(chain: Chain, link: int, part: Part, steps: int) -> int | None:
    """How many places of a dim belong to a block, if programs divide it; else None."""
    for joint in chain.joints:
        if part.shared and part.shared.writer == joint.axes[link]:
            return joint.factors[link] * (steps if joint is chain.joints[-1] else 1)
    return None


def chained_kernel(chain: Chain, steps: int, name: str) -> KernelOp:
    """The kernel of a chain; a block has `steps` steps of the last joint axis, which divide its
    extent, and one of all others."""
    sizes = dict.fromkeys(s for kernel in chain.kernels for s in kernel.size_names)
    grid = [*(j.extent for j in chain.joints[:-1]), chain.joints[-1].extent // steps]
    types = [buffer_type(buffer) for number in range(len(chain.kernels))
             for buffer in _outside(chain, number)]
    chained = KernelOp.of(name, types, grid, list(sizes), _schedule(chain.kernels))
    merge_locations(chained, chain.kernels)
    kept = [_Kept(chain, link, steps) for link in range(len(chain.links))]
    chained.body.block.add_ops([k.memory for k in kept])
    arguments = iter(chained.buffers)
    for number in range(len(chain.kernels)):
        values: dict[SSAValue, SSAValue] = {}
        for buffer in _outside(chain, number):
            values[buffer] = argument = next(arguments)
            argument.name_hint = buffer.name_hint
        _add_part(chain, number, steps, chained, values, kept)
    end = YieldOp.create()
    chained.body.block.add_op(end)
    set_location(end, chained)
    return chained


def _outside(chain: Chain, number: int) -> list[SSAValue]:
    """The buffers of a kernel that are in memory, not between two kernels of the chain."""
    return [b for k, b in enumerate(chain.kernels[number].buffers) if not chain.is_link(number, k)]


def _add_part(
    chain: Chain, number: int, steps: int, chained: KernelOp, values: dict[SSAValue, SSAValue],
    kept: Sequence[_Kept],
) -> None:
    """Add the programs of one of the chain's kernels that belong to a block."""
    kernel, ours = chain.kernels[number], dict[SSAValue, tuple[_Kept, bool]]()
    if number > 0:
        values[kernel.buffers[chain.links[number - 1].read]] = kept[number - 1].memory.result
        ours[kept[number - 1].memory.result] = kept[number - 1], False
    if number < len(kept):
        values[kernel.buffers[chain.links[number].written]] = kept[number].memory.result
        ours[kept[number].memory.result] = kept[number], True
    block = _bind_ids(chain, number, steps, chained, values)
    for op in kernel.body.block.ops:
        block.add_op(copy := op.clone(values))
        set_location(copy, op)
    _move(block, ours)


class _Kept:
    """The private memory for a linking buffer."""

    def __init__(self, chain: Chain, link: int, steps: int):
        self.link, writer = chain.links[link], chain.kernels[link]
        self.type = buffer_type(writer.buffers[self.link.written])
        self.other = buffer_type(chain.kernels[link + 1].buffers[self.link.read])
        self.places = [_places(chain, link, p, steps) for p in self.link.parts]
        self.memory = ScratchOp.of(BufferType(
            self.type.element, SizesAttr.of(kept_shape(chain, link, steps))))
        set_location(self.memory, writer)

    def move(self, op: LoadOp | StoreOp, is_writer: bool) -> None:
        """Let an access of the buffer be one of the memory."""
        shape = (self.type if is_writer else self.other).shape
        where: list[Expr] = []
        checks: list[int] = []
        for number, (part, places) in enumerate(zip(self.link.parts, self.places, strict=True)):
            dims = part.written if is_writer else part.read
            index = _flat(op.exprs, shape, dims)
            where.append(index if places is None else index % places)
            checks += [number] if not {*dims}.isdisjoint(op.checked_dims) else []
        op.properties |= {"where": SizesAttr.of(where), "checks": SizesAttr.of(checks)}
        op.properties.pop("assumed", None)


def _flat(exprs: Sequence[Expr], shape: Sequence[Expr], dims: Dims) -> Expr:
    """The index in one dim instead of some."""
    total = Expr.of(0)
    for d in dims:
        total = total * shape[d] + exprs[d]
    return total


def _bind_ids(
    chain: Chain, number: int, steps: int, chained: KernelOp, values: dict[SSAValue, SSAValue]
) -> Block:
    """The block for a kernel's body: in loops over the programs of a block, in their order."""
    kernel, block = chain.kernels[number], chained.body.block
    joint = {a: k for k, j in enumerate(chain.joints) for a in j.axes[number]}
    for axis, extent in enumerate(kernel.grid.data):
        loop = ForOp.of(0, extent, 1, kind=PARALLEL)
        if axis in joint:
            first, count = _places_of(chain, number, joint[axis], axis, steps)
            end = first + count
            end = end if (extent % count).constant == 0 else minimum(end, extent)
            loop = ForOp.of(first, end, 1, [chained.program_ids[joint[axis]]], kind=PARALLEL)
        set_location(loop, kernel)
        loop.counter.name_hint = kernel.program_ids[axis].name_hint
        block.add_op(loop)
        if block is not chained.body.block:
            block.add_op(last := YieldOp.create())
            set_location(last, kernel)
        values[kernel.program_ids[axis]] = loop.counter
        block = loop.body.block
    return block


def _places_of(
    chain: Chain, number: int, place: int, axis: int, steps: int
) -> tuple[Expr, int]:
    """The first of a block's places on a kernel's axis, over the block's number, and how many there
    are: the digits of the number, of which the last axis has the lowest."""
    joint, kernel = chain.joints[place], chain.kernels[number]
    axes, rest = joint.axes[number], Expr.symbol(Symbol.operand(0))
    count = joint.factors[number] * (steps if place == len(chain.joints) - 1 else 1)
    for other in reversed(axes):
        own = count if other == axes[-1] else 1
        digits = kernel.grid.data[other].ceildiv(own)
        if other == axis:
            return (rest if other == axes[0] else rest % digits) * own, own
        rest = rest // digits
    raise ValueError(f"axis {axis} is none of the joint axes {axes}")


def _move(block: Block, kept: Mapping[SSAValue, tuple[_Kept, bool]]) -> None:
    """Let accesses of linking buffers be those of private memory, which needs no prefetching."""
    for op in [x for top in block.ops for x in top.walk()]:
        if isinstance(op, LoadOp | StoreOp) and op.buffer in kept:
            one, is_writer = kept[op.buffer]
            one.move(op, is_writer)
        elif isinstance(op, PrefetchOp) and op.buffer in kept:
            op.detach()
            op.erase()


def _schedule(kernels: Sequence[KernelOp]) -> ScheduleAttr:
    """The options of the last kernel, which writes the results."""
    last = kernels[-1].schedule
    return ScheduleAttr(Schedule((), last.data.options if last else ()))
