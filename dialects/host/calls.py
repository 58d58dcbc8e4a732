"""The sizes that `strata.if` and `strata.loop` on buffers pass to the functions they call.

    host.func @body(%h: f32[rows, 8], %w: f32[n]) sizes(rows, n, k)
    %r = strata.loop @body at k trip 3 carried(%h0) with(%x) buffers f32[rows, 8]

A size that is a dim of an argument takes its value from the first such dim of the operands. Other
sizes are the caller's sizes of the same name. If the caller has no size of that name, a dim of a
carried value may differ from call to call.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dialects.host.func import FuncOp
from dialects.strata.control import LoopOp
from dialects.strata.types import BufferType, buffer_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol


def bound_sizes(callee: FuncOp, types: Sequence[BufferType]) -> dict[Symbol, Expr]:
    """The sizes of a function that are dims of its arguments, as sizes of the operands."""
    found: dict[Symbol, Expr] = {}
    for argument, type_ in zip(callee.input_arguments, types, strict=True):
        for theirs, ours in zip(buffer_type(argument).shape, type_.shape, strict=True):
            if theirs.as_symbol is not None:
                found.setdefault(theirs.as_symbol, ours)
    return found


def varying_sizes(
    op: LoopOp, body: FuncOp, outer: Collection[Symbol]
) -> dict[Symbol, tuple[int, int]]:
    """The sizes that may differ from call to call, each as (carried value, dim).

    `outer`: the sizes that the caller knows before the loop.
    """
    found: dict[Symbol, tuple[int, int]] = {}
    for k, argument in enumerate(body.input_arguments[:len(op.carried)]):
        for d, size in enumerate(buffer_type(argument).shape):
            name = size.as_symbol
            if name is not None and name not in outer and name is not op.step_symbol:
                found.setdefault(name, (k, d))
    return found
