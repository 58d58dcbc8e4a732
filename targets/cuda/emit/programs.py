"""Which tile a program computes: a program's flat id as a position along each grid axis.

The last axis varies fastest, so that programs of neighbouring tiles run at the same time. With the
schedule option `strip`, the tiles of the last two axes are visited in strips of that many rows,
column by column. Programs that run at the same time then share rows and columns in the L2 cache.

    strip = 2:   0 2 4 6        strip = 1:   0  1  2  3
                 1 3 5 7                     4  5  6  7
                 8 ...                       8 ...

With the option `descend`, programs visit the tiles of the last axis in descending order. If the
tiles at its end take longest, the last programs to run are then short ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from dialects.symbolic.expr import Expr
from targets.cuda.emit.context import Context
from targets.cuda.emit.values import Value, in_parentheses


def bind_program_ids(
    context: Context, strip: int, flat: str = "tl.program_id(0)",
    extents: Sequence[Expr] | None = None,
) -> None:
    """Compute every program id of the kernel from the flat id of a program in the grid."""
    extents = context.kernel.grid.data if extents is None else extents
    live = [k for k, e in enumerate(extents) if e.constant != 1]
    for k, identity in enumerate(context.kernel.program_ids):
        if k not in live:
            context.values[identity] = Value("0", (), Expr.of(0), Expr.of(0))
    if len(live) > 1 and not flat.isidentifier():
        flat = _named(context, "program", flat)
    in_strips = strip > 1 and len(live) > 1 and live[-2:] == [len(extents) - 2, len(extents) - 1]
    for k in live[:-2] if in_strips else live:
        inner = context.product(extents[k + 1:])
        text = flat if k == live[-1] else f"{flat} // {in_parentheses(inner.text)}"
        if k != live[0]:
            text = f"{in_parentheses(text)} % {in_parentheses(context.size(extents[k]).text)}"
        _bind(context, context.kernel.program_ids[k], extents[k], text)
    if in_strips:
        _bind_strips(context, extents, flat, strip, outermost=len(live) == 2)


def _bind_strips(
    context: Context, extents: Sequence[Expr], flat: str, strip: int, outermost: bool
) -> None:
    """Bind the last two axes, rows and columns; the last strip may have fewer rows."""
    rows = context.size(extents[-2])
    if not outermost:
        count = context.product(extents[-2:])
        flat = _named(context, "place", f"{flat} % {in_parentheses(count.text)}")
    row, column = context.kernel.program_ids[-2:]
    if extents[-2].constant is not None and extents[-2].constant <= strip:  # one strip
        _bind(context, row, extents[-2], f"{flat} % {rows.atom}")
        _bind(context, column, extents[-1], f"{flat} // {rows.atom}")
        return
    count = in_parentheses(context.product([Expr.of(strip), extents[-1]]).text)
    first = _named(context, "first", f"{flat} // {count}*{strip}")
    inside = _named(context, "inside", f"{flat} % {count}")
    height = str(strip)
    if (extents[-2] % strip).terms:
        height = _named(context, "height", f"tl.minimum({rows.atom} - {first}, {strip})")
    _bind(context, row, extents[-2], f"{first} + {inside} % {height}")
    _bind(context, column, extents[-1], f"{inside} // {height}")


def _named(context: Context, hint: str, text: str) -> str:
    name = context.writer.fresh(hint)
    context.writer.line(f"{name} = {text}")
    return name


def _bind(context: Context, identity: SSAValue, extent: Expr, text: str) -> None:
    if context.descends and identity is context.kernel.program_ids[-1]:
        text = f"{context.size(extent - 1).atom} - {in_parentheses(text)}"
    context.bind(identity, Value(text, (), Expr.of(0), extent - 1), "p")
