"""Factors that a product computes from fewer bytes where it reads them.

    %f = nest (j, k) ins(%w[j, k]) {sitofp; truncf}                %w: i8[4096, 1024]
    %y = nest (i, j, reduce k) ins(%x[i, k], %f[j, k]) {mulf}      few i

A program computes a tile of %f for all of its rows, so with few rows nothing is computed twice, and
%f is never in memory. Its scales may step in blocks of k (`stepped_dims`).
"""

from __future__ import annotations

from collections.abc import Sequence

from dialects.loop import NestOp
from dialects.strata.types import byte_width, i1, is_float, tensor_type
from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.ranges import is_at_most
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.groups import Group
from passes.contract import Facts


def computes_factor(
    group: Group, nest: NestOp, names: dict[Symbol, Symbol], facts: Facts
) -> bool:
    """Whether a group only computes one factor of a contraction of few rows.
    `names`: the axes of the group that those of the contraction are."""
    if len(group.nests) != 1 or not _widens_codes(group.nests[0], facts.coded_growth):
        return False
    [made] = group.nests[0].results
    if not made.has_one_use() or made not in nest.inputs:
        return False
    factor = {mine for mine, theirs in names.items() if theirs in group.extents}
    own = [a.extent for a in nest.parallel_axes if a.name not in factor]
    count = product(own).constant
    return count is not None and count <= facts.coded_rows


def _widens_codes(maker: NestOp, growth: int) -> bool:
    """Whether a nest computes each element alone, from codes that clearly take fewer bytes."""
    if not maker.is_elementwise or maker.is_scatter or maker.into or len(maker.results) != 1:
        return False
    read = [tensor_type(v) for v in {*maker.inputs}]
    made = byte_width(tensor_type(maker.results[0]).element)
    if not any(not is_float(type.element) and type.element != i1
               and growth * byte_width(type.element) <= made for type in read):
        return False  # keys of few heads, say, which are smaller only because they are repeated
    size = sum((type.byte_size for type in read), Expr.of(0))
    return is_at_most(4 * size, 3 * tensor_type(maker.results[0]).byte_size)


def stepped_dims(map_: Sequence[Expr]) -> list[int]:
    """The dims that are read in steps, as `k floordiv 32` of an axis that no other dim has."""
    return [d for d, e in enumerate(map_) if (axis := _stepping(e)) is not None
            and not any(axis in other.symbols for o, other in enumerate(map_) if o != d)]


def _stepping(index: Expr) -> Symbol | None:
    """The axis of a quotient by a constant."""
    match index.terms:
        case [([Call("floordiv", [axis, by])], 1)] if by.constant is not None:
            return axis.as_symbol
        case _:
            return None
