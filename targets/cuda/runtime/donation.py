"""Donated inputs: outputs computed in the memory of inputs that the caller no longer needs.

A typical case is a key-value cache. As with XLA's input-output aliasing, the caller names the
pairs. Whether a pair is possible is decided here, from the steps: the input must have been read
before the first write of the output, or by the kernel that writes it. In that kernel each program
must read exactly the elements that it then writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from xdsl.ir import Block, SSAValue

from dialects.block import KernelOp, LoadOp, StoreOp
from dialects.strata.types import TileType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from targets.cuda.emit.kernel import schedule_option
from targets.cuda.machine import WARP
from targets.cuda.runtime.plan import Copy, HostPlan, Launch, Place
from targets.cuda.scheduling.options import WARPS

Step = Launch | Copy


def donated(plan: HostPlan, pairs: Mapping[int, int]) -> dict[int, int]:
    """Of the pairs output -> donated input, by number, those that may share memory."""
    found: dict[int, int] = {}
    for output, given in pairs.items():
        if given not in found.values() and plan.inputs[given] == plan.outputs[output] and (
                _may_share(plan.steps, given, len(plan.inputs) + output)):
            found[output] = given
    return found


def with_donations(plan: HostPlan, pairs: Mapping[int, int]) -> list[Step]:
    """The steps with these outputs in the memory of their inputs, without copies to themselves."""
    count = len(plan.inputs)
    memories = {count + output: given for output, given in pairs.items()}
    moved = [_moved(step, memories) for step in plan.steps]
    return [s for s in moved if not (isinstance(s, Copy) and s.source == s.target)]


def _moved(step: Step, memories: Mapping[int, int]) -> Step:
    def at(place: Place) -> Place:
        return replace(place, memory=memories.get(place.memory, place.memory))

    if isinstance(step, Copy):
        return Copy(at(step.source), at(step.target))
    return replace(step, buffers=tuple(map(at, step.buffers)))


def _may_share(steps: Sequence[Step], given: int, output: int) -> bool:
    users = [[k for k, p in enumerate(s.places) if p.memory == given] for s in steps]
    last = max((n for n, places in enumerate(users) if places), default=-1)
    first = next((n for n, s in enumerate(steps) if any(
        p.memory == output for p in s.places)), len(steps))
    if last != first:
        return last < first
    step = steps[first]
    written = [k for k, p in enumerate(step.places) if p.memory == output]
    if len(written) > 1 or len(users[first]) > 1:
        return False
    return isinstance(step, Copy) or can_overwrite(step.kernel, users[first][0], written[0])


def can_overwrite(kernel: KernelOp, source: int, target: int) -> bool:
    """Whether buffer `target` may be the same memory as the buffer `source` that the kernel reads.

    It may if every program reads one tile of it, once, and writes that same tile, which belongs to
    no other program. Also, no thread may still read, for another result, what a faster thread has
    already overwritten.
    """
    users = [use.operation for k in (source, target) for use in kernel.buffers[k].uses]
    match users:
        case [LoadOp() as load, StoreOp() as store]:
            body = kernel.body.block
            return (load.parent is store.parent is body and _same_tile(load, store)
                    and load.is_before_in_block(store) and _are_apart(kernel, store)
                    and (_is_divided(kernel, load) or not _feeds_others(load, store)))
        case _:
            return False


def _same_tile(load: LoadOp, store: StoreOp) -> bool:
    return (load.where == store.where and tuple(load.indices) == tuple(store.indices)
            and load.result.type == store.value.type)


def _is_divided(kernel: KernelOp, load: LoadOp) -> bool:
    """Whether a tile has at least one element per thread; otherwise threads read the same ones."""
    type_ = load.result.type
    assert isinstance(type_, TileType)
    return prod(type_.shape) >= WARP * schedule_option(kernel, WARPS)


def _feeds_others(load: LoadOp, store: StoreOp) -> bool:
    """Whether another stored value depends on the loaded one."""
    found: set[SSAValue] = {load.result}
    body = load.parent
    assert body is not None
    for op in body.ops:
        inside = list(op.walk())
        if not found.isdisjoint(v for inner in inside for v in inner.operands):
            if any(isinstance(inner, StoreOp) and inner is not store for inner in inside):
                return True
            found |= {*op.results}
    return False


def _are_apart(kernel: KernelOp, store: StoreOp) -> bool:
    """Whether no two programs write the same element: each id moves a dim by at least a tile."""
    ids: dict[Symbol, SSAValue] = {Symbol.operand(k): v for k, v in enumerate(store.indices)}
    type_ = store.value.type
    assert isinstance(type_, TileType)
    if not all(_is_id(v, kernel.body.block) for v in ids.values()):
        return False
    extents = {Symbol.place(k): n for k, n in enumerate(type_.shape)}
    moved: set[SSAValue] = set()
    for where in store.where.data:
        parts = where.linear([*ids, *extents])
        if parts is None:
            return False
        used = [name for name in ids if name in parts[0]]
        if used and not _steps_over(parts[0], used, extents):
            return False
        moved |= {ids[name] for name in used}
    return all(v in moved or extent == Expr.of(1)
               for v, extent in zip(kernel.program_ids, kernel.grid.data, strict=True))


def _steps_over(
    factors: Mapping[Symbol, Expr], used: Sequence[Symbol], extents: Mapping[Symbol, int]
) -> bool:
    """Whether the dim's only program id moves at least as far as the tile extends there."""
    reach = 1
    for name in factors.keys() & extents.keys():
        factor = factors[name].constant
        if factor is None or factor < 0:
            return False
        reach += factor * (extents[name] - 1)
    step = factors[used[0]].constant
    return len(used) == 1 and step is not None and step >= reach


def _is_id(value: SSAValue, body: Block) -> bool:
    return value.owner is body
