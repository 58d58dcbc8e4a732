"""The first few elements of rows in sorted order: each pass over a row finds the next element.

    code[i]  = the key of x[i] in the upper word, the distance of i from the end in the lower one
    best[p]  = max over i of (code[i] if it is below best[p - 1])
    index[p] = the index in the lower word of best[p]

All codes differ. Takes time linear in the size of a row times the number of results, and no
temporary memory beyond the codes.

Keys of 64 bits leave no room for an index. Each pass finds the next key, then its first place:

    best[p]  = max over i of (key[i] if i comes after index[p - 1])
    index[p] = min over i of (i if key[i] == best[p], and i comes after index[p - 1])

where i comes after j if its key is smaller, or equal and i > j. So does a single element of a row
whose index has 32 bits, too, as words fill vectors with twice as many codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from dialects.strata import types as t
from dialects.strata.types import TensorType, tensor
from dialects.symbolic.expr import Expr
from passes.graph_to_loop.nests import Domain, Read, make_nest, type_of
from passes.graph_to_loop.radix_select import row_keys
from passes.graph_to_loop.scalars import Body, Scalar
from passes.graph_to_loop.sorting import order_key
from passes.rewriting import Rewriter

FEW = 16
"""Up to this many results are found faster than a row is sorted."""

_WORD = 32
_LAST = (1 << _WORD) - 1
_LEAST = -(1 << 63)
_NOWHERE = (1 << 63) - 1


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


def selected_wide_indices(
    at: Rewriter, x: SSAValue, axis: int, result: TensorType, descending: bool
) -> SSAValue:
    """As `selected_indices`, for elements of 64 bits."""
    keys = row_keys(at, x, axis, descending=not descending)
    found: list[SSAValue] = []
    last: tuple[SSAValue, ...] = ()
    for _ in range(result.shape[axis].constant or 0):
        best = _best_after(at, keys, last)
        index = _first_after(at, keys, best, last)
        last = (best, index)
        found.append(index)
    return _in_turn(at, found, axis, result)


def first_index(
    at: Rewriter, x: SSAValue, axis: int, result: TensorType, descending: bool
) -> SSAValue:
    """Likewise of the first element alone, for keys and indices of 32 bits."""
    keys = row_keys(at, x, axis, not descending)
    domain, row, i = _rows(keys)
    best = make_nest(at, domain, [Read(keys, [*row, i])], tensor(t.i32, type_of(keys).shape[:-1]),
                     lambda body, read: read[0], combiner="max")
    domain, row, i = _rows(keys)

    def place(body: Body, read: Sequence[Scalar]) -> Scalar:
        return read[0].compare("eq", read[1]).where(body.index(i, t.i32), _NOWHERE >> _WORD)

    found = make_nest(at, domain, [Read(keys, [*row, i]), Read(best, row)], type_of(best), place,
                      combiner="min")
    return _in_turn(at, [found], axis, result, lambda index: index.to(t.i64))


def _best_after(at: Rewriter, keys: SSAValue, last: Sequence[SSAValue]) -> SSAValue:
    """The greatest key of each row after the last one found, given its key and its index."""
    domain, row, i = _rows(keys)

    def left(body: Body, read: Sequence[Scalar]) -> Scalar:
        return _comes_after(body, i, read).where(read[0], _LEAST) if last else read[0]

    reads = [Read(keys, [*row, i]), *(Read(value, row) for value in last)]
    return make_nest(at, domain, reads, tensor(t.i64, type_of(keys).shape[:-1]), left,
                     combiner="max")


def _first_after(
    at: Rewriter, keys: SSAValue, best: SSAValue, last: Sequence[SSAValue]
) -> SSAValue:
    """The first index of a key in each row, after the last one found."""
    domain, row, i = _rows(keys)

    def place(body: Body, read: Sequence[Scalar]) -> Scalar:
        *own, wanted = read
        is_wanted = own[0].compare("eq", wanted)
        if last:
            is_wanted = is_wanted & _comes_after(body, i, own)
        return is_wanted.where(body.index(i), _NOWHERE)

    reads = [Read(keys, [*row, i]), *(Read(value, row) for value in (*last, best))]
    return make_nest(at, domain, reads, tensor(t.i64, type_of(keys).shape[:-1]), place,
                     combiner="min")


def _rows(keys: SSAValue) -> tuple[Domain, Sequence[Expr], Expr]:
    """The points of all rows, and a walk along them."""
    *rows, size = type_of(keys).shape
    domain = Domain()
    point = domain.parallel(*rows)
    [i] = domain.reduce(size)
    return domain, point, i


def _comes_after(body: Body, i: Expr, read: Sequence[Scalar]) -> Scalar:
    """Whether element i comes after another one. `read`: its key, the other's key and index."""
    key, other, index = read
    equal_later = key.compare("eq", other) & body.index(i).compare("gt", index)
    return key.compare("lt", other) | equal_later


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
    return _in_turn(at, best, axis, result, lambda code: (code & _LAST) ^ _LAST)


def _in_turn(
    at: Rewriter, found: Sequence[SSAValue], axis: int, result: TensorType,
    index_of: Callable[[Scalar], Scalar] = lambda index: index,
) -> SSAValue:
    """What was found for each row, one after another along the axis."""
    domain = Domain()
    point = domain.parallel(*result.shape)
    rows = [i for dim, i in enumerate(point) if dim != axis]

    def index(body: Body, read: Sequence[Scalar]) -> Scalar:
        chosen, wanted = read[0], body.index(point[axis])
        for number, other in enumerate(read[1:], 1):
            chosen = wanted.compare("eq", number).where(other, chosen)
        return index_of(chosen)

    return make_nest(at, domain, [Read(f, rows) for f in found], result, index)
