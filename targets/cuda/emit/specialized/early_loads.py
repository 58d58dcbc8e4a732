"""Which loads of constants a kernel performs before it waits for another kernel; see `early.py`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from xdsl.ir import Operation, SSAValue

from dialects.block import DotOp, ForOp, KernelOp, LoadOp
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
        buffers, left = {kernel.buffers[k] for k in constants}, facts.held * WARP * warps
        for op in kernel.body.block.ops:
            trips = _trips(op, facts.trips)
            found = [x for x in loads_of(op) if x.buffer in buffers
                     and set(x.indices) <= {*kernel.program_ids, *_counter(op)}]
            size = len(trips) * sum(_bytes(x) for x in found)
            if 0 < size <= left:
                left -= size
                self.loads |= dict.fromkeys(found, trips)
                if isinstance(op, ForOp):
                    self.loops[op] = trips


def _counter(op: Operation) -> list[SSAValue]:
    return [op.counter] if isinstance(op, ForOp) else []


def loads_of(op: Operation) -> list[LoadOp]:
    """The load itself, or the loads in a loop's own body."""
    found = op.body.block.ops if isinstance(op, ForOp) else [op]
    return [x for x in found if isinstance(x, LoadOp)]


def _trips(op: Operation, most: int) -> Sequence[int]:
    """The values of a loop's counter, or one value for any other operation. Empty if they
    are many or unknown, or if the body has more than vector operations."""
    if not isinstance(op, ForOp):
        return (0,)
    lower, upper, step = (e.data.constant for e in (op.lower, op.upper, op.step))
    if lower is None or upper is None or step is None or op.is_parallel or any(
            isinstance(inner, (ForOp, DotOp)) for inner in op.body.block.ops):
        return ()
    trips = range(lower, upper, step)
    return trips if len(trips) <= most else ()


def _bytes(load: LoadOp) -> int:
    type_ = load.result.type
    assert isinstance(type_, TileType)
    return prod(type_.shape) * byte_width(type_.element)
