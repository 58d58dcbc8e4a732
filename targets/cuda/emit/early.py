"""What a kernel does before the kernel is done that it follows: it loads constants.

    x = tl.load(weights + ...)
    tl.extra.cuda.gdc_wait()
    tl.extra.cuda.gdc_launch_dependents()
    y = tl.load(activations + ...)

In a graph, a kernel may begin while the one before it works, as soon as that one lets it: its
launch, and the way of its weights from memory, then take no time of their own. It waits before it
touches anything else. Kernels that were begun in the ordinary way do not wait there. Those behind
are let begin after the wait: before it, two kernels' weights would compete for the memory (GPT-2's
decode step then takes 395 us on an H200, and 372 so).

A short loop is written out, so that its weights are loaded before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import TYPE_CHECKING

from xdsl.ir import Block, Operation, SSAValue

from dialects.block import DotOp, ForOp, KernelOp, LoadOp
from dialects.expr import Expr
from dialects.types import TileType, byte_width
from targets.cuda.emit.values import Value
from targets.cuda.machine import WARP

if TYPE_CHECKING:
    from targets.cuda.emit.context import Context
BEGIN, WAIT = "tl.extra.cuda.gdc_launch_dependents()", "tl.extra.cuda.gdc_wait()"
HELD = 256
"""Bytes of a thread up to which constants are held while it waits."""
TRIPS = 8
"""Loops of so many trips are written out."""


class Early:
    """The loads of constants of one kernel that stand before its wait."""

    def __init__(self, kernel: KernelOp, constants: Collection[int], warps: int) -> None:
        """`constants`: the positions of such buffers."""
        self.loads: dict[LoadOp, Sequence[int]] = {}
        """Each with the values of its loop's counter."""
        self.loops: dict[ForOp, Sequence[int]] = {}
        """Those that are written out."""
        self.values: dict[tuple[LoadOp, int], Value] = {}
        """What has been loaded, by the counter."""
        buffers, left = {kernel.buffers[k] for k in constants}, HELD * WARP * warps
        for op in kernel.body.block.ops:
            trips = _trips(op)
            found = [x for x in _loads_of(op) if x.buffer in buffers
                     and set(x.indices) <= {*kernel.program_ids, *_counter(op)}]
            size = len(trips) * sum(_bytes(x) for x in found)
            if 0 < size <= left:
                left -= size
                self.loads |= dict.fromkeys(found, trips)
                if isinstance(op, ForOp):
                    self.loops[op] = trips


def emit_early(context: Context, emit: Callable[[LoadOp, Context], None]) -> None:
    """Load constants, then wait."""
    early = context.early
    if early is None:
        return
    for load, trips in early.loads.items():
        for trip in trips:
            _enter(early, load.parent_op(), trip, context)
            emit(load, context)
            early.values[load, trip] = context.values[load.result]
    context.writer.line(WAIT)
    context.writer.line(BEGIN)


def emit_trips(
    loop: ForOp, trips: Sequence[int], emit: Callable[[Block, Context], None], context: Context
) -> None:
    """A loop written out."""
    early = context.early
    assert early is not None
    carried = [context.values[v] for v in loop.carried]
    for trip in trips:
        _enter(early, loop, trip, context)
        for argument, value in zip(loop.body.block.args[1:], carried, strict=True):
            context.values[argument] = value
        for load in _loads_of(loop):
            if load in early.loads:
                context.values[load.result] = early.values[load, trip]
        emit(loop.body.block, context)
        carried = [context.values[v] for v in loop.yielded]
    for result, value in zip(loop.results, carried, strict=True):
        context.values[result] = value


def _enter(early: Early, loop: Operation | None, trip: int, context: Context) -> None:
    """Let a loop's counter be a number."""
    if isinstance(loop, ForOp) and loop in early.loops:
        number = Expr.of(trip)
        context.values[loop.counter] = Value(str(trip), (), number, number)


def _counter(op: Operation) -> list[SSAValue]:
    return [op.counter] if isinstance(op, ForOp) else []


def _loads_of(op: Operation) -> list[LoadOp]:
    """A load, or those of a loop's own body."""
    found = op.body.block.ops if isinstance(op, ForOp) else [op]
    return [x for x in found if isinstance(x, LoadOp)]


def _trips(op: Operation) -> Sequence[int]:
    """The values of a loop's counter; of what is no loop, one. None where they are many, or not
    known, or where the loop has more in it than vectors."""
    if not isinstance(op, ForOp):
        return (0,)
    lower, upper, step = (e.data.constant for e in (op.lower, op.upper, op.step))
    if lower is None or upper is None or step is None or op.is_parallel or any(
            isinstance(inner, (ForOp, DotOp)) for inner in op.body.block.ops):
        return ()
    trips = range(lower, upper, step)
    return trips if len(trips) <= TRIPS else ()


def _bytes(load: LoadOp) -> int:
    type_ = load.result.type
    assert isinstance(type_, TileType)
    return prod(type_.shape) * byte_width(type_.element)
