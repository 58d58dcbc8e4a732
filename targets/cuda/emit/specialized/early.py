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

from collections.abc import Callable, Sequence

from xdsl.ir import Block, Operation

from dialects.block import ForOp, LoadOp
from dialects.symbolic.expr import Expr
from targets.cuda.emit.context import Context
from targets.cuda.emit.specialized.early_loads import Early, loads_of
from targets.cuda.emit.values import Value

BEGIN, WAIT = "tl.extra.cuda.gdc_launch_dependents()", "tl.extra.cuda.gdc_wait()"


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
        for load in loads_of(loop):
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
