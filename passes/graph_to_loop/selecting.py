"""The first few elements of rows in sorted order: each pass over a row finds the next element.

    code[i]  = the key of x[i] in the upper word, the distance of i from the end in the lower one
    best[p]  = max over i of (code[i] if it is below best[p - 1])
    index[p] = the index in the lower word of best[p]

All codes differ. Takes time linear in the size of a row times the number of results, and no
temporary memory beyond the codes.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from dialects.strata import types as t
from dialects.strata.types import TensorType, tensor
from passes.graph_to_loop.nests import Domain, Read, make_nest, type_of
from passes.graph_to_loop.scalars import Body, Scalar
from passes.graph_to_loop.sorting import order_key
from passes.rewriting import Rewriter

FEW = 16
"""Up to this many results are found faster than a row is sorted."""

_WORD = 32
_LAST = (1 << _WORD) - 1
_LEAST = -(1 << 63)


def can_select(x: TensorType, count: int | None) -> bool:
    """Whether few enough results are wanted, and the elements' keys leave room for an index."""
    return count is not None and 0 < count <= FEW and has_codes(x)


def has_codes(x: TensorType) -> bool:
    """Whether the elements' keys leave room for an index."""
    return x.dtype.itemsize <= _WORD // 8


def selected_indices(
    at: Rewriter, x: SSAValue, axis: int, result: TensorType, descending: bool
) -> SSAValue:
    """The indices of the first elements of x along an axis; equal elements keep their order.

    `result` is the type of the indices, i64, whose size along the axis is the number of results.
    NaN is greater than all numbers.
    """
    codes = codes_of(at, x, axis, descending)
    count = result.shape[axis].constant or 0
    best: list[SSAValue] = []
    for _ in range(count):
        best.append(_next(at, codes, axis, best[-1] if best else None))
    return _indices(at, best, axis, result)


def codes_of(at: Rewriter, x: SSAValue, axis: int, descending: bool) -> SSAValue:
    """The elements as i64, those that come first as the greatest, of which no two are equal."""
    element = type_of(x).element
    greatest = _LAST if t.is_float(element) else (1 << 8 * t.byte_width(element)) - 1
    domain = Domain()
    point = domain.parallel(*type_of(x).shape)

    def code(body: Body, read: Sequence[Scalar]) -> Scalar:
        key = order_key(read[0], t.i32).to(t.i64) & greatest
        key = key if descending else key ^ greatest
        return ((key - (1 << (_WORD - 1))) << _WORD) | (body.index(point[axis]) ^ _LAST)

    return make_nest(at, domain, [Read(x, point)], tensor(t.i64, type_of(x).shape), code)


def _next(at: Rewriter, codes: SSAValue, axis: int, before: SSAValue | None) -> SSAValue:
    """The greatest code of each row below the previous one."""
    shape = type_of(codes).shape
    domain = Domain()
    point = domain.parallel(*(s for dim, s in enumerate(shape) if dim != axis))
    [place] = domain.reduce(shape[axis])
    reads = [Read(codes, [*point[:axis], place, *point[axis:]])]
    reads += [] if before is None else [Read(before, point)]

    def below(body: Body, read: Sequence[Scalar]) -> Scalar:
        code, *last = read
        return code.compare("lt", last[0]).where(code, _LEAST) if last else code

    rows = [s for dim, s in enumerate(shape) if dim != axis]
    return make_nest(at, domain, reads, tensor(t.i64, rows), below, combiner="max")


def _indices(at: Rewriter, best: Sequence[SSAValue], axis: int, result: TensorType) -> SSAValue:
    domain = Domain()
    point = domain.parallel(*result.shape)
    rows = [i for dim, i in enumerate(point) if dim != axis]

    def index(body: Body, read: Sequence[Scalar]) -> Scalar:
        chosen, wanted = read[0], body.index(point[axis])
        for number, code in enumerate(read[1:], 1):
            chosen = wanted.compare("eq", number).where(code, chosen)
        return (chosen & _LAST) ^ _LAST

    return make_nest(at, domain, [Read(b, rows) for b in best], result, index)
