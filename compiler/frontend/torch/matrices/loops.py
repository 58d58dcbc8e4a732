"""Factors of matrices of any size as loops of the graph level, over blocks of rows and columns.

    lu            for each block of columns: its pivots and factors, row by row; the rows of U
                  beside it; and one product for what is left (right-looking)
    cholesky      likewise, without pivots
    substituted   for each block of rows: what is known, by one product; then the block row by row

Sizes are filled up to whole blocks, with zeros or ones on the diagonal, which change nothing.
Matrices are the last two dims. Sizes may be open. Reflections are those of
`compiler.frontend.orthogonal`, a column in each step.
Source: G. Golub and C. Van Loan, Matrix Computations, 3.1-3.4 and 4.2.
"""

from __future__ import annotations

from dataclasses import field

from compiler.frontend import formulas as f
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.node import NodeBase
from compiler.frontend.orthogonal import turned
from compiler.frontend.peeling import repeat
from compiler.frontend.values import Value, scalar
from dialects.graph.gather import GatherElementsOp
from dialects.graph.ordering import ArgMaxOp
from dialects.graph.shape import PadOp
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, maximum, minimum

BLOCK = 32
"""The rows and columns of a block."""


@dataclass
class _Matrices:
    """Matrices that are filled up to whole blocks, and the places of their rows and columns."""

    n: NodeBase
    x: Value
    rows: Value = field(init=False)
    """A column of numbers."""
    columns: Value = field(init=False)
    block: Value = field(init=False)
    """The columns of a block."""

    def __post_init__(self) -> None:
        self.rows = _column(self.n.range(self.x.shape[-2]))
        self.columns, self.block = self.n.range(self.x.shape[-1]), self.n.range(BLOCK)

    @property
    def down(self) -> int:
        return self.x.rank - 2

    @property
    def across(self) -> int:
        return self.x.rank - 1

    def column_in(self, first: Value) -> Value:
        """Which columns are those of the block from `first` on."""
        return (self.columns >= first) & (self.columns < first + BLOCK)

    def row_in(self, first: Value) -> Value:
        return (self.rows >= first) & (self.rows < first + BLOCK)

    def placed(self, part: Value, first: Value, axis: int) -> Value:
        """A block in its place along an axis; anything elsewhere."""
        places = self.columns if axis == self.across else self.rows.reshape([self.x.shape[-2]])
        return f.gather(part, f.minimum(f.maximum(places - first, 0), BLOCK - 1), axis)


def _column(x: Value) -> Value:
    return x.reshape([*x.shape, 1])


def _filled(n: NodeBase, x: Value, rows: Expr, columns: Expr) -> Value:
    """A matrix with zeros behind its rows and columns."""
    low = [0] * x.rank
    high = [*[Expr.of(0)] * (x.rank - 2), rows - x.shape[-2], columns - x.shape[-1]]
    if not any(e.terms for e in high):
        return x
    return n(PadOp, x, low=low, high=high, mode="constant", value=0.0)


def _with_ones(n: NodeBase, x: Value, size: Expr) -> Value:
    """The same for a square matrix, with ones on the diagonal behind it."""
    rows, columns = _column(n.range(size)), n.range(size)
    more = f.equal(rows, columns) & (rows >= n.of_size(x.shape[-1]))
    return f.where(more, scalar(n.build, 1, x.element), _filled(n, x, size, size))


def _whole(size: Expr) -> Expr:
    return size.ceildiv(BLOCK) * BLOCK


def _row(x: Value, chosen: Value) -> Value:
    """The row that is chosen in each matrix; one row is."""
    return f.reduce_sum(f.where(chosen, x, scalar(x.build, 0, x.element)), [x.rank - 2],
                        keepdims=True)


# ---------------------------------------------------------------------- LU
def lu(n: NodeBase, x: Value, pivot: bool) -> list[Value]:
    """L and U in one matrix, pivots from 1 on, and the number of the first pivot of 0, or 0."""
    height, width, batch = x.shape[-2], x.shape[-1], list(x.shape[:-2])
    steps = minimum(height, width)
    whole = _whole(steps)
    m = _Matrices(n, _filled(n, x, maximum(height, whole), maximum(width, whole)))
    places = m.rows.broadcast([*batch, *m.rows.shape])
    info = scalar(n.build, 0, t.i64).broadcast([*batch, 1, 1])

    def step(number: Expr, carried: list[Value]) -> Turn:
        x, info = carried
        first = n.of_size(number * BLOCK)
        panel, moved, info, pivots = _factored(
            m, x.part(m.across, number * BLOCK, BLOCK), number, places, info, steps, pivot)
        x = n(GatherElementsOp, x, moved.broadcast(x.shape), axis=m.down)
        above = _solved(n, panel.part(m.down, number * BLOCK, BLOCK),
                        x.part(m.down, number * BLOCK, BLOCK), False, True)
        later, zero = m.columns >= first + BLOCK, scalar(n.build, 0, x.element)
        left = f.where(m.rows >= first + BLOCK, panel, zero)
        rest = x - left @ f.where(later, above, zero)
        rest = f.where(m.row_in(first) & later, m.placed(above, first, m.down), rest)
        return Turn(None, [f.where(m.column_in(first), m.placed(panel, first, m.across), rest),
                           info], [pivots])

    loop = Loop(f"{n.name}_block", whole // BLOCK, None, [m.x, info])
    [found, info], [pivots] = repeat(n.build, loop, step)
    found = found.part(m.down, 0, height).part(m.across, 0, width)
    numbers = pivots.transpose([*range(2, pivots.rank), 0, 1]).reshape([*batch, whole])
    return [found, numbers.part(numbers.rank - 1, 0, steps).cast(t.i32),
            info.reshape(batch).cast(t.i32)]


def _factored(
    m: _Matrices, panel: Value, number: Expr, places: Value, info: Value, steps: Expr, pivot: bool
) -> tuple[Value, Value, Value, Value]:
    """A block of columns after its steps, the row at each place, the first pivot of 0, pivots."""
    n, rows = m.n, m.rows

    def step(k: Expr, carried: list[Value]) -> Turn:
        x, order, info = carried
        at = n.of_size(number * BLOCK + k)
        column, j = x.part(m.across, k, 1), n.of_size(k)
        chosen = at.broadcast(info.shape)
        if pivot:
            sizes = f.where(rows >= at, abs(column), scalar(n.build, -1, x.element))
            chosen = n(ArgMaxOp, sizes, axis=m.down, keepdims=True, last=False)
        is_here, is_there = f.equal(rows, at), f.equal(rows, chosen)
        head, own = _row(x, is_there), x.part(m.down, number * BLOCK + k, 1)
        x = f.where(is_here, head, f.where(is_there, own, x))
        other = order.part(m.down, number * BLOCK + k, 1)
        order = f.where(is_here, _row(order, is_there), f.where(is_there, other, order))
        top, zero = head.part(m.across, k, 1), scalar(n.build, 0, x.element)
        is_zero = f.equal(top, zero)
        counts = is_zero & f.equal(info, 0) & (at < n.of_size(steps))
        factor = x.part(m.across, k, 1) / f.where(is_zero, scalar(n.build, 1, x.element), top)
        rest = x - f.where(rows > at, factor, zero) * f.where(m.block > j, head, zero)
        x = f.where((rows > at) & f.equal(m.block, j), factor, rest)
        return Turn(None, [x, order, f.where(counts, at + 1, info)],
                    [chosen.reshape(info.shape[:-2]) + 1])

    loop = Loop(f"{n.name}_row", Expr.of(BLOCK), None, [panel, places, info])
    [panel, order, info], [pivots] = repeat(n.build, loop, step)
    return panel, order, info, pivots


def order_of(n: NodeBase, pivots: Value, count: Expr) -> Value:
    """The row that is at each place after all exchanges."""
    places, last = n.range(count), pivots.rank - 1

    def step(k: Expr, carried: list[Value]) -> Turn:
        order, at = carried[0], n.of_size(k)
        chosen = pivots.part(last, k, 1).cast(t.i64) - 1
        is_there, zero = f.equal(places, chosen), scalar(n.build, 0, t.i64)
        found = f.reduce_sum(f.where(is_there, order, zero), [last], keepdims=True)
        other = order.part(last, k, 1)
        return Turn(None, [f.where(f.equal(places, at), found, f.where(
            is_there, other, order))], [])

    begin = places.broadcast([*pivots.shape[:-1], count])
    return repeat(n.build, Loop(f"{n.name}_order", pivots.shape[-1], None, [begin]), step)[0][0]


# ---------------------------------------------------------------------- triangles
def substituted(n: NodeBase, x: Value, b: Value, upper: bool, unit: bool) -> Value:
    """The solution of X Y = B for a triangle of X, a block of rows in each step."""
    size, width = x.shape[-1], b.shape[-1]
    count = size.ceildiv(BLOCK)
    m = _Matrices(n, _with_ones(n, x, count * BLOCK))
    zero = scalar(n.build, 0, x.element)

    def step(number: Expr, carried: list[Value]) -> Turn:
        block = count - 1 - number if upper else number
        y, first = carried[0], n.of_size(block * BLOCK)
        row = m.x.part(m.down, block * BLOCK, BLOCK)
        known = m.rows >= first + BLOCK if upper else m.rows < first
        is_known = m.columns >= first + BLOCK if upper else m.columns < first
        rest = y.part(m.down, block * BLOCK, BLOCK) - f.where(is_known, row, zero) @ f.where(
            known, y, zero)
        found = _solved(n, row.part(m.across, block * BLOCK, BLOCK), rest, upper, unit)
        return Turn(None, [f.where(m.row_in(first), m.placed(found, first, m.down), y)], [])

    begin = _filled(n, b, count * BLOCK, width)
    loop = Loop(f"{n.name}_block", count, None, [begin])
    return repeat(n.build, loop, step)[0][0].part(m.down, 0, size)


def _solved(n: NodeBase, x: Value, b: Value, upper: bool, unit: bool) -> Value:
    """The same for a block, row by row."""
    down, across, rows = x.rank - 2, x.rank - 1, _column(n.range(BLOCK))
    zero = scalar(n.build, 0, x.element)

    def step(number: Expr, carried: list[Value]) -> Turn:
        k = BLOCK - 1 - number if upper else number
        y, at, column = carried[0], n.of_size(k), x.part(across, k, 1)
        row = y.part(down, k, 1)
        row = row if unit else row / column.part(down, k, 1)
        rest = y - f.where(rows < at if upper else rows > at, column, zero) * row
        return Turn(None, [f.where(f.equal(rows, at), row, rest)], [])

    return repeat(n.build, Loop(f"{n.name}_solve", Expr.of(BLOCK), None, [b]), step)[0][0]


# ---------------------------------------------------------------------- Cholesky
def cholesky(n: NodeBase, x: Value) -> list[Value]:
    """L of x = L L^T, and the number of the first pivot that is not positive."""
    size, batch = x.shape[-1], list(x.shape[:-2])
    m = _Matrices(n, _with_ones(n, x, _whole(size)))
    info, zero = scalar(n.build, 0, t.i64).broadcast([*batch, 1, 1]), scalar(n.build, 0, x.element)

    def step(number: Expr, carried: list[Value]) -> Turn:
        x, info = carried
        first = n.of_size(number * BLOCK)

        def inner(k: Expr, carried: list[Value]) -> Turn:
            x, info = carried
            at, j = n.of_size(number * BLOCK + k), n.of_size(k)
            column = x.part(m.across, k, 1)
            top = column.part(m.down, number * BLOCK + k, 1)
            counts = ~(top > 0) & f.equal(info, 0)
            column = f.where(m.rows >= at, column, zero) / f.sqrt(top)
            across = turned(column.part(m.down, number * BLOCK, BLOCK))
            rest = x - column * f.where(m.block > j, across, zero)
            return Turn(None, [f.where(f.equal(m.block, j), column, rest),
                               f.where(counts, at + 1, info)], [])

        loop = Loop(f"{n.name}_row", Expr.of(BLOCK), None,
                    [x.part(m.across, number * BLOCK, BLOCK), info])
        panel, info = repeat(n.build, loop, inner)[0]
        left = f.where(m.rows >= first + BLOCK, panel, zero)
        rest = x - left @ turned(left)
        return Turn(None, [f.where(m.column_in(first), m.placed(panel, first, m.across), rest),
                           info], [])

    loop = Loop(f"{n.name}_block", size.ceildiv(BLOCK), None, [m.x, info])
    found, info = repeat(n.build, loop, step)[0]
    found = f.where(m.rows >= m.columns, found, zero)
    return [found.part(m.down, 0, size).part(m.across, 0, size),
            info.reshape(batch).cast(t.i32)]
