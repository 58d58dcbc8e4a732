"""What sizes a called function gets: `strata.if` and `strata.loop` on buffers.

    host.func @body(%h: f32[rows, 8], %w: f32[n]) sizes(rows, n, k)
    %r = strata.loop @body at k trip 3 carried(%h0) with(%x) buffers f32[rows, 8]

A size that a dim of an argument names is that dim of what is given, at its first place; others are
the caller's of the same name. Where the caller has no size of that name, a dim of a carried value
may differ from call to call.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dialects.host.func import FuncOp
from dialects.strata.control import LoopOp
from dialects.strata.types import BufferType, buffer_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol


def bound_sizes(callee: FuncOp, types: Sequence[BufferType]) -> dict[Symbol, Expr]:
    """The sizes of a function that its arguments' dims name, as sizes of the operands."""
    found: dict[Symbol, Expr] = {}
    for argument, type_ in zip(callee.input_arguments, types, strict=True):
        for theirs, ours in zip(buffer_type(argument).shape, type_.shape, strict=True):
            if theirs.as_symbol is not None:
                found.setdefault(theirs.as_symbol, ours)
    return found


def varying_sizes(
    op: LoopOp, body: FuncOp, outer: Collection[Symbol]
) -> dict[Symbol, tuple[int, int]]:
    """The sizes that may differ from call to call, and which dim of which carried value each is.

    `outer`: the sizes that the caller knows before the loop.
    """
    found: dict[Symbol, tuple[int, int]] = {}
    for k, argument in enumerate(body.input_arguments[:len(op.carried)]):
        for d, size in enumerate(buffer_type(argument).shape):
            name = size.as_symbol
            if name is not None and name not in outer and name is not op.step_symbol:
                found.setdefault(name, (k, d))
    return found
