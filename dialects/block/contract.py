"""Serial loops that sum products, computed as matrix products.

    %acc = block.for %k = 0 to 768 step 1 (%c = %z) {
      %a = block.load %A[%m + t0, %k]
      %b = block.load %B[%k, t0]
      %n = block.map (%a[0], %b[1], %c[0, 1]) { c + a*b }        or: block.dot %a, %b, %c
      block.yield %n
    }

The trips depend on each other only through the sum, so the factors of all trips are made at once,
with the counter as one more axis, and multiplied as matrices. That adds in another order and may
fuse or widen the additions: results differ in rounding from the loop as written, never in meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects import arith, math
from xdsl.ir import BlockArgument, Operation, SSAValue

from dialects import block as ops
from dialects.scalar import evaluate_values
from dialects.types import Array, TileType, dtype_of

Placed = Callable[[SSAValue, Sequence[int], int], Array]
"""placed(tile, dims, rank): the tile as an array whose dims are dims `dims` of `rank`, after the
programs' axes."""


@dataclass(frozen=True)
class Contraction:
    """A loop whose only carried tile grows by a product each trip.

    `preparation`: the operations that the factors need, in order. `product`: the two factors inside
    the body of `update`, if that is a `block.map`.
    """

    preparation: tuple[Operation, ...]
    update: ops.MapOp | ops.DotOp
    product: tuple[SSAValue, ...]

    def factors(self, placed: Placed) -> tuple[Array, Array]:
        """Both factors, with the dims of the sum; a `dot` has its depth as dim 1 between them."""
        if isinstance(self.update, ops.DotOp):
            return dot_factors(self.update, placed)
        rank = self.update.result_type.rank
        operands = [placed(value, dims, rank) for value, dims in zip(
            self.update.inputs, self.update.dim_lists, strict=True)]
        total = max(o.ndim for o in operands)
        left, right = (f.reshape((1,) * (total - f.ndim) + f.shape) for f in evaluate_values(
            self.update.body.block, operands, self.product))
        return left, right

    def summed(self, axis: int, trips: int) -> dict[int, int]:
        """The dims of the factors to sum over, with sizes; the counter is dim `axis`."""
        if isinstance(self.update, ops.DotOp):
            return {axis: trips, axis + 2: dot_depth(self.update)}
        return {axis: trips}


def dot_factors(op: ops.DotOp, placed: Placed) -> tuple[Array, Array]:
    """The operands of a `dot` over (m, depth, n), in the type that sums are held in."""
    assert isinstance(op.c.type, TileType)
    dtype = dtype_of(op.c.type.element)
    wide = np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype
    return placed(op.a, (0, 1), 3).astype(wide), placed(op.b, (1, 2), 3).astype(wide)


def dot_depth(op: ops.DotOp) -> int:
    assert isinstance(op.a.type, TileType)
    return op.a.type.shape[1]


# ---------------------------------------------------------------------- recognition
_INDEPENDENT = (ops.LoadOp, ops.IndexOp, ops.ValidOp, ops.ConvertOp, ops.FullOp, ops.MapOp,
                ops.ReduceOp)
_HALVES = ("f16", "bf16")  # round after every addition: the order of a sum matters more


def find_contraction(loop: ops.ForOp) -> Contraction | None:
    """How to compute a serial loop as a matrix product; None if it is anything else."""
    if len(loop.carried) != 1:
        return None
    carried, update = loop.body.block.args[1], loop.yielded[0].owner
    if not isinstance(update, (ops.MapOp, ops.DotOp)) or len(update.results) != 1:
        return None
    alone = _is_used_once(carried) and _is_used_once(update.results[0])
    if not alone or str(ops.element_type(carried)) in _HALVES:
        return None
    *before, _ = loop.body.block.ops
    preparation = tuple(op for op in before if op is not update)
    if not all(isinstance(op, _INDEPENDENT) for op in preparation):
        return None
    if isinstance(update, ops.DotOp):
        return Contraction(preparation, update, ()) if update.c is carried else None
    product = _added_product(update, carried)
    return None if product is None else Contraction(preparation, update, product)


def _added_product(update: ops.MapOp, carried: SSAValue) -> tuple[SSAValue, SSAValue] | None:
    """The factors l, r of a body that yields carried + l*r."""
    if carried not in update.inputs:
        return None
    position = list(update.inputs).index(carried)
    whole = update.dim_lists[position] == tuple(range(update.result_type.rank))
    argument, total = update.body.block.args[position], update.yielded[0].owner
    if not whole or not _is_used_once(argument):
        return None
    if isinstance(total, math.FmaOp):
        return (total.a, total.b) if total.c is argument else None
    if not isinstance(total, (arith.AddfOp, arith.AddiOp)):
        return None
    return _factors(total.lhs, total.rhs, argument) or _factors(total.rhs, total.lhs, argument)


def _factors(
    sum_: SSAValue, product: SSAValue, argument: BlockArgument
) -> tuple[SSAValue, SSAValue] | None:
    multiply = product.owner
    if sum_ is not argument or not isinstance(multiply, (arith.MulfOp, arith.MuliOp)):
        return None
    return multiply.lhs, multiply.rhs


def _is_used_once(value: SSAValue) -> bool:
    return value.uses.get_length() == 1


# ---------------------------------------------------------------------- computation
def multiply_and_sum(left: Array, right: Array, summed: Mapping[int, int]) -> Array:
    """The sum over some dims of left*right; these dims vanish.

    Both have the same number of dims, each of full size or 1. `summed` gives dims and their sizes.
    """
    left, right = _spread(left, summed), _spread(right, summed)
    kept = [d for d in range(left.ndim) if d not in summed]
    rows = [d for d in kept if left.shape[d] > right.shape[d]]
    columns = [d for d in kept if left.shape[d] < right.shape[d]]
    shared = [d for d in kept if left.shape[d] == right.shape[d]]
    a, b = _matrices(left, shared, rows, list(summed)), _matrices(
        right, shared, list(summed), columns)
    sizes = [max(left.shape[d], right.shape[d]) for d in (*shared, *rows, *columns)]
    found = _matrix_product(a, b).reshape(sizes)
    return found.transpose(np.argsort([*shared, *rows, *columns], kind="stable"))


def _spread(array: Array, sizes: Mapping[int, int]) -> Array:
    """The array with full sizes along some dims."""
    return np.broadcast_to(array, [sizes.get(d, n) for d, n in enumerate(array.shape)])


def _matrices(
    array: Array, shared: Sequence[int], rows: Sequence[int], columns: Sequence[int]
) -> Array:
    """The array as a stack of matrices; the other dims have size 1."""
    order = [*shared, *rows, *columns]
    order += [d for d in range(array.ndim) if d not in order]
    sizes = [int(np.prod([array.shape[d] for d in dims])) for dims in (shared, rows, columns)]
    return array.transpose(order).reshape(sizes)


_SMALL = 64
"""Multiplications per matrix below which a stack of matrices is multiplied elementwise."""


def _matrix_product(a: Array, b: Array) -> Array:
    """A stack of products. Small integers go through f64, which holds their sums exactly."""
    with np.errstate(all="ignore"):
        if a.shape[0] > 1 and a.shape[1] * a.shape[2] * b.shape[2] < _SMALL:
            products = (a[:, :, k, None] * b[:, k, None, :] for k in range(a.shape[2]))
            return sum(products, start=np.zeros((), a.dtype))
        if a.dtype.kind == "i" and a.size and b.size and _fits_f64(a, b):
            exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
            return exact.astype(np.int64).astype(a.dtype)
        return np.matmul(a, b)


def _fits_f64(a: Array, b: Array) -> bool:
    largest = [max(abs(int(x.min())), abs(int(x.max()))) for x in (a, b)]
    return largest[0] * largest[1] * a.shape[2] < 1 << 53
