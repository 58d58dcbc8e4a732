"""The first elements of long rows in sorted order, from the chunks in which they must lie.

    best[c]      = the greatest key of chunk c
    chunks[p]    = the `count` chunks with the greatest best keys, in the order of the row
    candidate[i] = the keys of those chunks
    index[p]     = where the `count` greatest candidates lie in the row

A result that lay in another chunk would come after the best elements of `count` chunks. What is
left are two shorter rows, of about `2 * sqrt(size * count)` elements together, and one walk over
the long one. Of equal elements, the first comes first: chunks and candidates keep the row's order.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from dialects.graph.ordering import TopKOp
from dialects.strata import types as t
from dialects.strata.types import TensorType, tensor
from dialects.symbolic.expr import Expr
from passes.graph_to_loop.nests import Domain, Read, make_nest, type_of
from passes.graph_to_loop.radix_select import row_keys
from passes.graph_to_loop.selecting import can_select
from passes.rewriting import Rewriter

LEAST_GAIN, GAIN_OF_FEW = 2, 16
"""How many times as long as the two shorter rows a row must be; the same for results that could be
selected one after another."""


def chunk_for(x: TensorType, axis: int, count: int | None) -> int | None:
    """The size of the chunks, or None if rows are too short for them, or of unknown size."""
    size = x.shape[axis].constant
    if size is None or size >= 1 << 31 or not count or count == 1:
        return None
    chunk = 1 << max((size // count).bit_length() // 2, 1)
    gain = GAIN_OF_FEW if can_select(x, count) else LEAST_GAIN
    return chunk if size >= gain * (size // chunk + count * chunk) else None


def first_by_chunks(
    at: Rewriter, x: SSAValue, axis: int, count: int, largest: bool, chunk: int
) -> SSAValue:
    """The indices of the first elements of x along an axis in sorted order, as i64.

    The axis becomes the last one. Equal elements keep their order. NaN is greater than all numbers.
    """
    keys = row_keys(at, x, axis, descending=not largest)
    best = _best_of_chunks(at, keys, chunk)
    chunks = _in_order(at, _first(at, best, count, largest=True)[1])
    found = _first(at, _candidates(at, keys, chunks, chunk), count, largest=True)[1]
    domain = Domain()
    *row, p = domain.parallel(*type_of(found).shape)
    reads = [Read(found, [*row, p]), Read(chunks, [*row, Expr.gathered(0) // chunk])]
    return make_nest(at, domain, reads, type_of(found), lambda body, read: (
        read[1].to(t.i64) * chunk + (read[0] & (chunk - 1))))


def _first(at: Rewriter, x: SSAValue, count: int, largest: bool) -> Sequence[SSAValue]:
    """The values and the indices of the first elements of rows."""
    return at.insert(TopKOp.of(x, axis=type_of(x).rank - 1, k=count, largest=largest)).results


def _best_of_chunks(at: Rewriter, keys: SSAValue, chunk: int) -> SSAValue:
    type_, domain = type_of(keys), Domain()
    shape = [*type_.shape[:-1], type_.shape[-1].ceildiv(chunk)]
    *row, c = domain.parallel(*shape)
    [i] = domain.reduce(Expr.of(chunk))
    return make_nest(at, domain, [Read(keys, [*row, c * chunk + i], _least(keys))],
                     tensor(type_.element, shape), lambda body, read: read[0], combiner="max")


def _in_order(at: Rewriter, indices: SSAValue) -> SSAValue:
    """The indices in ascending order, as i32."""
    type_, domain = type_of(indices), Domain()
    point = domain.parallel(*type_.shape)
    narrow = make_nest(at, domain, [Read(indices, point)], tensor(t.i32, type_.shape),
                       lambda body, read: read[0].to(t.i32))
    count = type_.shape[-1].constant or 1
    return _first(at, narrow, count, largest=False)[0]


def _candidates(at: Rewriter, keys: SSAValue, chunks: SSAValue, chunk: int) -> SSAValue:
    """The keys of the chosen chunks; those of the last chunk may lie beyond the row."""
    type_, domain = type_of(keys), Domain()
    shape = [*type_.shape[:-1], type_of(chunks).shape[-1] * chunk]
    *row, i = domain.parallel(*shape)
    reads = [Read(chunks, [*row, i // chunk]),
             Read(keys, [*row, Expr.gathered(0) * chunk + i % chunk], _least(keys))]
    return make_nest(at, domain, reads, tensor(type_.element, shape),
                     lambda body, read: read[1])


def _least(keys: SSAValue) -> int:
    """A key that is not before any other."""
    return -(1 << 8 * type_of(keys).dtype.itemsize - 1)
