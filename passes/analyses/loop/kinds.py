"""The kinds of nests, by what they do and never by an operator's name."""

from __future__ import annotations

from collections.abc import Sequence

from dialects.loop import NestOp
from passes.rewrites.loop.nests import is_copy


def is_contraction(nest: NestOp) -> bool:
    """A sum of products that reuses its operands, such as a matrix product or a convolution."""
    if nest.combiner_names != ["add"] or not nest.is_reduction or nest.is_scan:
        return False
    reduce = {a.name for a in nest.reduce_axes}
    parallel = {a.name for a in nest.parallel_axes if a.extent.constant != 1}
    used = [m.symbols for m in nest.maps.data]
    factors = [u for u in used if u & reduce]
    return len(factors) >= 2 and any(parallel - u for u in factors)


def is_plain_reduction(nest: NestOp) -> bool:
    """A reduction in any order that is no contraction."""
    in_order = nest.is_scan or nest.is_recurrence
    return nest.is_reduction and not in_order and not is_contraction(nest)


def kind_of(nests: Sequence[NestOp]) -> str:
    """The prefix of the name of a kernel with these nests."""
    if any(n.is_scatter for n in nests):
        return "scatter"
    if any(is_contraction(n) for n in nests):
        return "contract"
    if any(n.reduce_axes for n in nests):
        return "reduce"
    return "copy" if all(is_copy(n) for n in nests) else "map"


def is_sort(nest: NestOp) -> bool:
    """Whether a nest's result is its values along the reduce axis in ascending order."""
    return nest.combiner_names == ["sort"]
