"""Which loads of constants a kernel performs before it waits for another kernel; see `early.py`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import prod

from xdsl.ir import Block, Operation, SSAValue

from dialects.block import DotOp, ForOp, KernelOp, LoadOp, YieldOp
from dialects.block.branches import branch_of
from dialects.block.kernel_ops import SERIAL
from dialects.strata.types import TileType, byte_width
from targets.cuda.emit.values import Value
from targets.cuda.facts.fitted import EarlyLaunches
from targets.cuda.machine import WARP


class Early:
    """The loads of constants in one kernel that come before its wait."""

    def __init__(
        self, kernel: KernelOp, constants: Collection[int], warps: int, facts: EarlyLaunches
    ) -> None:
        """`constants`: the positions of such buffers. `facts`: how much is held and written out."""
        self.loads: dict[LoadOp, Sequence[int]] = {}
        """Each load with the values of its loop's counter."""
        self.loops: dict[ForOp, Sequence[int]] = {}
        """The loops that are unrolled, with the values of their counters."""
        self.values: dict[tuple[LoadOp, int], Value] = {}
        """The loaded values, by load and counter."""
        self.scopes = _scopes(kernel)
        """The blocks that begin with these loads and a wait."""
        buffers = {kernel.buffers[k] for k in constants}
        for scope, counters in self.scopes.items():
            self._find(scope, {*kernel.program_ids, *counters}, buffers,
                       facts.held * WARP * warps, facts.trips)

    def _find(
        self, scope: Block, known: Collection[SSAValue], buffers: Collection[SSAValue],
        left: int, most: int,
    ) -> None:
        """Find the loads of a block. `known`: values that exist before it. `left`: bytes."""
        for op in scope.ops:
            trips = _trips(op, most)
            found = [x for x in loads_of(op) if x.buffer in buffers
                     and set(x.indices) <= {*known, *_counter(op)}]
            size = len(trips) * sum(_bytes(x) for x in found)
            if 0 < size <= left:
                left -= size
                self.loads |= dict.fromkeys(found, trips)
                if isinstance(op, ForOp):
                    self.loops[op] = trips

    def loads_in(self, scope: Block) -> Iterator[tuple[LoadOp, int]]:
        """The loads of a block, each for one value of its loop's counter."""
        for load, trips in self.loads.items():
            if load.parent_block() is scope or load.parent_op() in {*scope.ops}:
                yield from ((load, trip) for trip in trips)


def _scopes(kernel: KernelOp) -> dict[Block, Collection[SSAValue]]:
    """The kernel's block, or, if its programs divide into branches, those of the branches, with
    their counters."""
    body = kernel.body.block
    ops = [op for op in body.ops if not isinstance(op, YieldOp)]
    branches = [op for op in ops if isinstance(op, ForOp) and branch_of(op) is not None]
    if ops and len(branches) == len(ops):
        return {op.body.block: [op.counter] for op in branches}
    return {body: []}


def _counter(op: Operation) -> list[SSAValue]:
    return [op.counter] if isinstance(op, ForOp) else []


def loads_of(op: Operation) -> list[LoadOp]:
    """The load itself, or the loads in a loop's own body."""
    found = op.body.block.ops if isinstance(op, ForOp) else [op]
    return [x for x in found if isinstance(x, LoadOp)]


def _trips(op: Operation, most: int) -> Sequence[int]:
    """The values of a loop's counter, or one value for any other operation. Empty if they
    are many, unknown or up to data, or if the body has more than vector operations."""
    if not isinstance(op, ForOp):
        return (0,)
    lower, upper, step = (e.data.constant for e in (op.lower, op.upper, op.step))
    if lower is None or upper is None or step is None or op.kind.data != SERIAL or any(
            isinstance(inner, (ForOp, DotOp)) for inner in op.body.block.ops):
        return ()
    trips = range(lower, upper, step)
    return trips if len(trips) <= most else ()


def _bytes(load: LoadOp) -> int:
    type_ = load.result.type
    assert isinstance(type_, TileType)
    return prod(type_.shape) * byte_width(type_.element)
