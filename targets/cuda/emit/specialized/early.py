"""Programmatic dependent launch: constants are loaded before the wait for the previous kernel.

    x = tl.load(weights + ...)
    tl.extra.cuda.gdc_wait()
    tl.extra.cuda.gdc_launch_dependents()
    y = tl.load(activations + ...)

In a CUDA graph, a kernel may start while the one before it still runs, as soon as that one allows
it. This hides the launch and the time that its weights take from memory. The kernel waits before
it accesses anything else. Kernels that were launched in the ordinary way pass the wait at once. The
next kernel is launched only after the wait; otherwise the weights of two kernels would compete for
memory bandwidth (see `benchmarks/CONSTANTS.md`).

Where the programs of a kernel divide into branches, as in joined launches, each branch has its own
loads and wait.

A short loop is unrolled, so that its weights can be loaded before it.
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


def emit_early(
    context: Context, scope: Block, emit: Callable[[LoadOp, Context], None]
) -> None:
    """Emit the loads of constants, then the wait, where a block begins with them."""
    early = context.early
    if early is None or scope not in early.scopes:
        return
    for load, trip in [*early.loads_in(scope)]:
        _enter(early, load.parent_op(), trip, context)
        emit(load, context)
        early.values[load, trip] = context.values[load.result]
    context.writer.line(WAIT)
    context.writer.line(BEGIN)


def emit_trips(
    loop: ForOp, trips: Sequence[int], emit: Callable[[Block, Context], None], context: Context
) -> None:
    """Emit an unrolled loop."""
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
    """Set a loop's counter to a number."""
    if isinstance(loop, ForOp) and loop in early.loops:
        number = Expr.of(trip)
        context.values[loop.counter] = Value(str(trip), (), number, number)
