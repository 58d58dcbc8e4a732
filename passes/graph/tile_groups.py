"""graph-tile-groups: compute a grouped product in tiles of rows, each with a single matrix.

    %y = graph.grouped_matmul %a, %b, %ends : f32[n, 7]
    -->
    %0 = graph.gather %a, %rows {axis = 0}               [tiles, t, k]: t rows of one group each
    %1 = graph.gather %b, %group {axis = 0}              [tiles, k, 7]
    %2 = graph.matmul %0, %1                             [tiles, t, 7]
    %3 = graph.gather (graph.reshape %2), %place         the rows in their order
    %y = graph.where %known, %3, 0

Each group starts a new tile, so a tile needs only one matrix. The unused part of a group's last
tile is filled with other rows, whose results are not read. The product gathers rows and matrices
itself, so neither is copied. The tables are computed from the ends:

    before[g]   tiles of the groups before g        group[p]   the group of tile p
    place[i]    the place of row i in all tiles     known[i]   whether some group has row i

The number of tiles is the largest that any ends could need. Whatever the ends are, no out-of-bounds
memory is read. The target chooses the number of rows per tile (`Rules.group_rows`). If it chooses
1, or if there is no target, the product stays as it is. Assumes nothing.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.graph import (
    AddOp,
    CastOp,
    ConstantOp,
    DivOp,
    GatherOp,
    GroupedMatmulOp,
    LessEqualOp,
    LessOp,
    MatmulOp,
    MaxOp,
    MinOp,
    MulOp,
    RangeOp,
    ReduceSumOp,
    SizesOp,
    SubOp,
    WhereOp,
)
from dialects.graph.composite import cast, reshaped
from dialects.strata.types import i64
from dialects.symbolic.expr import Expr, Size, minimum
from passes.base import StrataContext, StrataPass
from passes.rewrites.graph.matching import type_of
from passes.rewriting import Rewriter, functions, rewrite


class GraphTileGroups(StrataPass):
    """Compute grouped products in tiles of rows."""

    name = "graph-tile-groups"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.rules is None:
            return
        for func in functions(module):
            rewrite(func, {GroupedMatmulOp: [tile_groups]}, context)


def tile_groups(op: GroupedMatmulOp, at: Rewriter) -> SSAValue | None:
    # row i of the result is a row of the tile that holds row i, times that tile's matrix
    rows, groups = type_of(op.a).shape[0], type_of(op.b).shape[0]
    assert at.context.rules is not None
    size = at.context.rules.group_rows(rows.constant, groups.constant)
    if size == 1:
        return None
    tables = _Tables(at, op.ends, rows, groups, size)
    group = tables.group()
    factors = at(GatherOp, op.a, tables.rows(group), axis=0), at(GatherOp, op.b, group, axis=0)
    product = at(MatmulOp, *factors)
    columns = type_of(op.b).shape[2]
    place, known = tables.places()
    flat = reshaped(at, product, [tables.tiles * size, columns])
    zero = at.insert(ConstantOp.scalar(0.0, type_of(op.result).element)).results[0]
    return at(WhereOp, known, at(GatherOp, flat, place, axis=0), zero)


class _Tables:
    """The rows and groups of tiles, and the places of rows in tiles, as i64 tensors."""

    def __init__(
        self, at: Rewriter, ends: SSAValue, rows: Expr, groups: Expr, size: int
    ) -> None:
        self.at, self.count, self.groups, self.size = at, rows, groups, size
        self.tiles = (rows + minimum(rows, groups) * (size - 1)) // size
        self.ends, group = cast(at, ends, i64), self.range(groups)
        last = at(MaxOp, at(SubOp, group, self.number(1)), self.number(0))
        self.starts = at(MulOp, at(GatherOp, self.ends, last, axis=0),
                         at(MinOp, group, self.number(1)))
        lengths = at(MaxOp, at(SubOp, self.ends, self.starts), self.number(0))
        whole = at(DivOp, at(AddOp, lengths, self.number(size - 1)), self.number(size))
        own = at(LessEqualOp, reshaped(at, group, [1, groups]), reshaped(at, group, [groups, 1]))
        counted = at(WhereOp, own, reshaped(at, whole, [1, groups]), self.number(0))
        self.sums = at(ReduceSumOp, counted, axes=[1], keepdims=False)
        self.before = at(SubOp, self.sums, whole)

    def group(self) -> SSAValue:
        """The group of each tile."""
        tile = self.range(self.tiles)
        return self.limited(self.passed(self.sums, tile, self.tiles), self.groups - 1)

    def rows(self, group: SSAValue) -> SSAValue:
        """The rows of each tile: those of its group in order, then others after the group's end."""
        at, tile = self.at, self.range(self.tiles)
        number = at(SubOp, tile, at(GatherOp, self.before, group, axis=0))
        first = at(AddOp, at(GatherOp, self.starts, group, axis=0),
                   at(MulOp, number, self.number(self.size)))
        each = at(AddOp, reshaped(at, first, [self.tiles, 1]), self.range(Expr.of(self.size)))
        return self.limited(each, self.count - 1)

    def places(self) -> tuple[SSAValue, SSAValue]:
        """The place of each row in all tiles, and whether some group has the row."""
        at, row = self.at, self.range(self.count)
        found = self.passed(self.ends, row, self.count)
        group = self.limited(found, self.groups - 1)
        first = at(MulOp, at(GatherOp, self.before, group, axis=0), self.number(self.size))
        inside = at(SubOp, row, at(GatherOp, self.starts, group, axis=0))
        place = self.limited(at(AddOp, first, inside), self.tiles * self.size - 1)
        known = at(LessOp, found, self.number(self.groups))
        return place, reshaped(at, known, [self.count, 1])

    def passed(self, bounds: SSAValue, numbers: SSAValue, count: Expr) -> SSAValue:
        """For each of some numbers, how many bounds are not greater than it."""
        at = self.at
        reached = at(LessEqualOp, reshaped(at, bounds, [1, self.groups]),
                     reshaped(at, numbers, [count, 1]))
        return at(ReduceSumOp, at(CastOp, reached, to=i64), axes=[1], keepdims=False)

    def limited(self, x: SSAValue, most: Expr) -> SSAValue:
        """x clamped to the range from 0 to `most`."""
        return self.at(MaxOp, self.at(MinOp, x, self.number(most)), self.number(0))

    def number(self, size: Size) -> SSAValue:
        known = Expr.of(size).constant
        if known is None:
            return self.at(SizesOp, values=[Expr.of(size)], shape=[], to=i64)
        return self.at.insert(ConstantOp.scalar(known, i64)).results[0]

    def range(self, count: Expr) -> SSAValue:
        return self.at(RangeOp, start=0, step=1, count=count, to=i64)
