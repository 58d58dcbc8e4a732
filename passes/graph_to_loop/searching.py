"""search_sorted: find the count bit by bit, highest bit first.

    c[i] = c[i] + 2^b  if the list is that long and its element c[i] + 2^b - 1 is <= value[i]

Each bit is one elementwise nest, which reads the list at the index that the previous nest computed.
For a list of unknown size, there are enough bits for any list that fits in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from dialects.graph.search import SearchSortedOp
from dialects.strata import types as t
from dialects.strata.types import tensor
from dialects.symbolic.expr import Expr
from passes.graph_to_loop.nests import Domain, Read, make_nest, type_of
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Scalar
from passes.rewriting import Rewriter

MOST_BITS = 32
"""The most bits of a list's size; lists of more than 2^32 elements are not searched."""


@lowers(SearchSortedOp)
def search_sorted(op: SearchSortedOp, at: Rewriter) -> SSAValue:
    size = type_of(op.list_).shape[0]
    bits = MOST_BITS if size.constant is None else size.constant.bit_length()
    count = _zeros(op, at)
    for bit in reversed(range(bits)):
        count = _with_bit(op, at, count, 1 << bit)
    return count


def _zeros(op: SearchSortedOp, at: Rewriter) -> SSAValue:
    domain = Domain()
    domain.parallel(*type_of(op.result).shape)
    return make_nest(at, domain, [], type_of(op.result), lambda body, read: body.index(0))


def _with_bit(op: SearchSortedOp, at: Rewriter, count: SSAValue, step: int) -> SSAValue:
    domain, size = Domain(), type_of(op.list_).shape[0]
    point = domain.parallel(*type_of(op.result).shape)
    last = Expr.gathered(0) + (step - 1)
    reads = [Read(count, point), Read(op.values, point), Read(op.list_, [last], 0)]

    def compute(body: Body, read: Sequence[Scalar]) -> Scalar:
        before, value, element = read[0], read[1].wide(), read[2].wide()
        fits = (before + step).compare("le", body.index(size))
        return (fits & element.compare("le", value)).where(before + step, before)

    return make_nest(at, domain, reads, tensor(t.i64, type_of(op.result).shape), compute)
