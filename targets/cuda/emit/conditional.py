"""Loops that a truth value ends, and barriers, in Triton.

    going = x                                     # from the first value that the loop carries
    k = 0
    while going & (k < 50):                       if going:      # where there is at most one trip
        ...                                           ...
        going = x_2
        k += 1
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Block

from dialects.block import BarrierOp, ForOp
from targets.cuda.emit.context import Context
from targets.cuda.emit.values import Value, in_parentheses


def emit_while(
    op: ForOp, names: list[str], emit: Callable[[Block, Context], None],
    assign: Callable[[list[str], list[str], Context], None], context: Context,
) -> None:
    """Emit the loop. `names`: the variables of what it carries; `assign` sets all of them."""
    lower, upper = context.indices([op.lower.data, op.upper.data], (), op.indices)
    counter = ""
    if (op.upper.data - op.lower.data).constant == 1:
        context.bind(op.counter, lower, "k")
        context.writer.line(f"if {names[0]}:")
    else:
        counter = context.writer.fresh(op.counter.name_hint or "k")
        last = None if upper.high is None else upper.high - 1
        context.values[op.counter] = Value(counter, (), lower.low, last)
        context.writer.line(f"{counter} = {lower.text}")
        context.writer.line(f"while {names[0]} & ({counter} < {in_parentheses(upper.text)}):")
    with context.writer.indented():
        context.loops += 1
        emit(op.body.block, context)
        context.loops -= 1
        assign(names, [context.values[v].text for v in op.yielded], context)
        if counter:
            context.writer.line(f"{counter} += {op.step.data}")


def emit_barrier(op: BarrierOp, context: Context) -> None:
    """All threads of a program wait for each other."""
    context.writer.line("tl.debug_barrier()")
