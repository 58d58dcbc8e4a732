"""Sums of products of arrays by matrix multiplication, exact for integers.

NumPy multiplies float matrices with BLAS, but integer matrices with a plain loop that is about a
hundred times slower. Integers are therefore multiplied as floats where that is exact. The largest
magnitude in one factor, times the largest sum of magnitudes of the other along the summed dims,
bounds every partial sum of products in any order. f32 represents every integer up to 2**24, and
f64 up to 2**53. Beyond these bounds, integers are multiplied as integers and wrap around.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, prod
from typing import Any

import numpy as np

from dialects.semantics.carriers import as_in, carrier_of, without_carrier
from dialects.semantics.sums import total
from dialects.semantics.views import distinct, each
from dialects.strata.types import Array

EXACT = ((np.dtype(np.float32), 1 << 24), (np.dtype(np.float64), 1 << 53))
"""The magnitude up to which a float type represents every integer."""


def matmul(a: Array, b: Array, dtype: np.dtype[Any]) -> Array:
    """The product of (stacks of) matrices or vectors, like `numpy.matmul`, summed in `dtype`."""
    if (like := _like(a, b, dtype)) is not None:
        return as_in(matmul(without_carrier(a), without_carrier(b), dtype), like)
    carrier = _carrier(a, (-1,), b, (-2 if b.ndim > 1 else -1,), dtype)
    return _narrowed(np.matmul(_carried(a, carrier), _carried(b, carrier)), dtype)


def sum_of_products(
    a: Array, b: Array, summed: Mapping[int, int], dtype: np.dtype[Any]
) -> Array:
    """The sum of a*b over some dims, in `dtype`, with the other dims.

    Both arrays have the same rank, with each dim of full size or 1. `summed` maps the summed dims
    to their sizes, because a dim of size 1 in both arrays still multiplies the sum by its size.
    """
    if (like := _like(a, b, dtype)) is not None:
        return as_in(sum_of_products(without_carrier(a), without_carrier(b), summed, dtype), like)
    if (like := carrier_of((a, b))) is not None:  # the other factor may be a literal
        a, b = as_in(a, like), as_in(b, like)
    idle = prod(n for d, n in summed.items() if a.shape[d] == b.shape[d] == 1)
    a, b = _sum_alone(a, b, summed, dtype), _sum_alone(b, a, summed, dtype)
    a, b = (a, b) if a.size >= b.size else (b, a)
    carrier = _carrier(a, tuple(summed), b, tuple(summed), dtype)
    products = _multiplied(_carried(a, carrier), _carried(b, carrier), summed, dtype)
    if idle != 1:
        products *= np.asarray(idle).astype(dtype)
    return products.reshape([n for d, n in enumerate(products.shape) if d not in summed])


def _like(a: Array, b: Array, dtype: np.dtype[Any]) -> Array | None:
    """An array whose arithmetic sums of integers must not meet in the floats that multiply them."""
    return carrier_of((a, b)) if dtype.kind in "iu" else None


def _sum_alone(
    x: Array, other: Array, summed: Mapping[int, int], dtype: np.dtype[Any]
) -> Array:
    """Sum `x` over the dims that only it depends on."""
    alone = tuple(d for d in summed if x.shape[d] != 1 and other.shape[d] == 1)
    return total(x, alone, dtype, keepdims=True) if alone else x


# ---------------------------------------------------------------------- exactness
def _carrier(
    a: Array, a_summed: tuple[int, ...], b: Array, b_summed: tuple[int, ...],
    dtype: np.dtype[Any],
) -> np.dtype[Any]:
    """The type to multiply and sum in, such that the result equals the sum in `dtype`."""
    if dtype.kind not in "iu":
        return dtype
    larger, smaller, dims = (a, b, b_summed) if a.size >= b.size else (b, a, a_summed)
    bound = _peak(larger) * _mass(smaller, dims)
    return next((carrier for carrier, limit in EXACT if bound <= limit), dtype)


def _peak(x: Array) -> int:
    """The largest magnitude."""
    numbers = distinct(x)
    return max(int(numbers.max(initial=0)), -int(numbers.min(initial=0)))


def _mass(x: Array, dims: tuple[int, ...]) -> int:
    """An upper bound of the sums of magnitudes along some dims."""
    count = prod(x.shape[d] for d in dims)
    if (most := _peak(x) * count) >= 1 << 53:
        return most
    return int(np.abs(x.astype(np.int64)).sum(dims).max(initial=0))


def _carried(x: Array, carrier: np.dtype[Any]) -> Array:
    return x if x.dtype == carrier else each(lambda numbers: numbers.astype(carrier), x)


def _narrowed(total: Array, dtype: np.dtype[Any]) -> Array:
    """Convert sums to `dtype`; integers wrap around."""
    if dtype.kind in "iu" and total.dtype.kind == "f":
        total = total.astype(np.int32 if total.itemsize == 4 else np.int64)
    return total.astype(dtype, copy=False)


# ---------------------------------------------------------------------- matrices
PIECE, LEAST_ROWS = 1 << 18, 256
"""The approximate number of elements of the larger factor that form a matrix at a time, so that it
stays in the cache until it is multiplied, and the least number of its rows.
"""

_SMALL = 64
"""The number of multiplications per matrix below which a stack is multiplied elementwise."""


def _multiplied(
    a: Array, b: Array, summed: Mapping[int, int], dtype: np.dtype[Any]
) -> Array:
    """The sum over dims, which keep size 1; `a` is not smaller than `b`."""
    sizes = [n if m == 1 else m for m, n in zip(a.shape, b.shape, strict=True)]
    result = as_in(np.empty([1 if d in summed else n for d, n in enumerate(sizes)], dtype), b)
    kept = [d for d in range(a.ndim) if d not in summed]
    stack = [d for d in kept if a.shape[d] != 1 and b.shape[d] != 1]
    rows, columns, depth = (
        _as_in_memory(x, [d for d in dims if x.shape[d] != 1 and d not in stack])
        for x, dims in ((a, kept), (b, kept), (a, list(summed))))
    right = _matrices(b, stack, depth, columns)
    along_rows = bool(rows) and max(rows) > max(columns, default=-1)
    for piece in _pieces(a, rows, depth):
        left, out = _matrices(a[piece], stack, rows, depth), result[piece]
        if along_rows:  # matches the memory layout of the result
            _fill(out, (*stack, *columns, *rows), _matrix_product(
                right.swapaxes(1, 2), left.swapaxes(1, 2)))
        else:
            _fill(out, (*stack, *rows, *columns), _matrix_product(left, right))
    return result


def _fill(out: Array, order: Sequence[int], products: Array) -> None:
    """Store matrices whose dims are in the order `order`; all other dims are 1."""
    target = out.transpose(*order, *(d for d in range(out.ndim) if d not in order))
    target[...] = _narrowed(products, out.dtype).reshape(target.shape)


def _as_in_memory(x: Array, dims: Sequence[int]) -> list[int]:
    """The dims by descending stride, so that the last has the closest elements."""
    return sorted(dims, key=lambda d: -x.strides[d])


def _pieces(x: Array, rows: Sequence[int], depth: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Split the longest row dim into pieces."""
    whole = (slice(None),) * x.ndim
    if not rows or x.size <= PIECE:
        yield whole
        return
    axis = max(rows, key=lambda d: x.shape[d])
    room = max(PIECE, LEAST_ROWS * prod(x.shape[d] for d in depth))
    step = max(room * x.shape[axis] // x.size, 1)
    for start in range(0, x.shape[axis], step):
        yield (*whole[:axis], slice(start, start + step), *whole[axis + 1:])


def _matrices(
    x: Array, stack: Sequence[int], rows: Sequence[int], columns: Sequence[int]
) -> Array:
    """x as a stack of matrices; a copy, if one is needed, follows the memory order."""
    def run(dims: Sequence[int]) -> tuple[float, int]:
        """The stride between neighbours along the last dim, then its negated length."""
        return (x.strides[dims[-1]], -x.shape[dims[-1]]) if dims else (inf, 0)

    if run(rows) < run(columns):
        return _collapsed(x, stack, columns, rows).swapaxes(1, 2)
    return _collapsed(x, stack, rows, columns)


def _collapsed(x: Array, *groups: Sequence[int]) -> Array:
    """x with each group of dims collapsed into one; all other dims have size 1."""
    order = [d for group in groups for d in group]
    rest = [d for d in range(x.ndim) if d not in order]
    sizes = [prod(x.shape[d] for d in group) for group in groups]
    return x.transpose([*order, *rest]).reshape(sizes)


def _matrix_product(a: Array, b: Array) -> Array:
    if a.shape[0] > 1 and a.shape[1] * a.shape[2] * b.shape[2] < _SMALL:
        products = (a[:, :, k, None] * b[:, k, None, :] for k in range(a.shape[2]))
        return sum(products, start=np.zeros((a.shape[0], a.shape[1], b.shape[2]), a.dtype))
    return np.matmul(a, b)
