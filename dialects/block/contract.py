"""Evaluates serial loops that sum products, or merge values, all trips at once.

    %acc = block.for %k = 0 to 768 step 1 (%c = %z) {
      %a = block.load %A[%m + t0, %k]
      %b = block.load %B[%k, t0]
      %n = block.map (%a[0], %b[1], %c[0, 1]) { c + a*b }        or: block.dot %a, %b, %c
      block.yield %n                                             or: { max(c, a) }
    }

The trips depend on each other only through the carried tile. The values that they merge are
therefore computed for all trips at once, with the counter as one more axis. Factors are multiplied
as matrices; single values are reduced along that axis. A loop that only contains such a loop adds
a further axis. The order of additions changes, and additions may be fused or widened, so results
differ from the loop as written in rounding only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from xdsl.dialects import arith, math
from xdsl.ir import Operation, SSAValue

from dialects import block as ops
from dialects.records import dataclass
from dialects.semantics.products import sum_of_products
from dialects.semantics.scalar import evaluate_values
from dialects.semantics.sums import reduced
from dialects.semantics.views import each
from dialects.strata.types import Array, TileType, dtype_of, i1

Placed = Callable[[SSAValue, Sequence[int], int], Array]
"""placed(tile, dims, rank): the tile as an array in which its dims are dims `dims` of `rank` dims
that follow the programs' axes.
"""


@dataclass(frozen=True)
class Contraction:
    """Nested loops, the outermost first, whose carried tile merges a value on each trip.

    `preparations`: for each loop, the operations that compute the value, in order. `terms`: the
    value, or the two factors of a product, in the body of `update`, if that is a `block.map`.
    """

    loops: tuple[ops.ForOp, ...]
    preparations: tuple[tuple[Operation, ...], ...]
    update: ops.MapOp | ops.DotOp
    terms: tuple[SSAValue, ...]
    merge: np.ufunc

    def values(self, placed: Placed, like: Array | None) -> Sequence[Array]:
        """The value, or both factors; in those of a `dot`, the depth precedes the columns.

        `like`: as for `evaluate_body`.
        """
        if isinstance(self.update, ops.DotOp):
            return dot_factors(self.update, placed)
        rank = self.update.result_type.rank
        operands = [placed(value, dims, rank) for value, dims in zip(
            self.update.inputs, self.update.dim_lists, strict=True)]
        total = max(o.ndim for o in operands)
        found = evaluate_values(self.update.body.block, operands, self.terms, like=like)
        return [f.reshape((1,) * (total - f.ndim) + f.shape) for f in found]

    def merged(self, values: Sequence[Array], axis: int, trips: Sequence[int]) -> Array:
        """Merge the values of all trips; the counters are dim `axis` and the dims after it."""
        merged: dict[int, int] = {axis + k: n for k, n in enumerate(trips)}
        if isinstance(self.update, ops.DotOp):
            merged[axis + len(trips) + depth_dim(self.update)] = dot_depth(self.update)
        if len(values) == 2:
            return sum_of_products(values[0], values[1], merged, values[0].dtype)
        [value] = values
        sizes: tuple[int, ...] = value.shape
        full = np.broadcast_to(value, [merged.get(d, n) for d, n in enumerate(sizes)])
        return reduced(self.merge, full, tuple(merged), value.dtype)


def dot_factors(op: ops.DotOp, placed: Placed) -> tuple[Array, Array]:
    """The operands of a `dot` over (m..., depth, n), in the accumulation type."""
    assert isinstance(op.c.type, TileType)
    dtype, depth = dtype_of(op.c.type.element), depth_dim(op)
    wide = np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype
    factors = (placed(op.a, range(depth + 1), depth + 2),
               placed(op.b, (depth, depth + 1), depth + 2))
    left, right = (f.view(f"u{f.itemsize}") if op.is_unsigned(k) else f
                   for k, f in enumerate(factors))
    return each(lambda x: x.astype(wide), left), each(lambda x: x.astype(wide), right)


def depth_dim(op: ops.DotOp) -> int:
    """The position of the summed dim of a `dot`: after all row dims."""
    assert isinstance(op.a.type, TileType)
    return op.a.type.rank - 1


def dot_depth(op: ops.DotOp) -> int:
    assert isinstance(op.a.type, TileType)
    return op.a.type.shape[-1]


# ---------------------------------------------------------------------- recognition
_INDEPENDENT = (ops.LoadOp, ops.IndexOp, ops.ValidOp, ops.ConvertOp, ops.FullOp, ops.MapOp,
                ops.ReduceOp)
_HALVES = ("f16", "bf16")  # rounded after every addition, so the order of a sum matters

_MERGERS: dict[type[Operation], np.ufunc] = {
    arith.AddfOp: np.add, arith.AddiOp: np.add, arith.MaximumfOp: np.maximum,
    arith.MinimumfOp: np.minimum, arith.MaxSIOp: np.maximum, arith.MinSIOp: np.minimum,
    arith.AndIOp: np.bitwise_and, arith.OrIOp: np.bitwise_or,
}


def find_contraction(loop: ops.ForOp) -> Contraction | None:
    """How to evaluate a serial loop at once; None if it does not just merge values."""
    if len(loop.carried) != 1 or loop.is_conditional:
        return None
    carried, update = loop.body.block.args[1], loop.yielded[0].owner
    if not isinstance(update, (ops.MapOp, ops.DotOp, ops.ForOp)) or len(update.results) != 1:
        return None
    alone = _is_used_once(carried) and _is_used_once(update.results[0])
    if not alone or str(ops.element_type(carried)) in _HALVES:
        return None
    *before, _ = loop.body.block.ops
    preparation = tuple(op for op in before
                        if op is not update and not isinstance(op, ops.PrefetchOp))
    if not all(isinstance(op, _INDEPENDENT) for op in preparation):
        return None
    if isinstance(update, ops.ForOp):
        return _around(loop, preparation, update)
    merge, terms = np.add, tuple[SSAValue, ...]()
    if isinstance(update, ops.MapOp):
        merge, terms = _merged_terms(update, carried)
    elif update.c is not carried:
        return None
    return Contraction((loop,), (preparation,), update, terms, merge) if merge else None


def _around(
    loop: ops.ForOp, preparation: tuple[Operation, ...], inner: ops.ForOp
) -> Contraction | None:
    """The contraction of a loop that only repeats an inner loop with a constant trip count."""
    if inner.is_parallel or inner.indices or list(inner.carried) != [loop.body.block.args[1]]:
        return None
    found = find_contraction(inner)
    return found and replace(found, loops=(loop, *found.loops),
                             preparations=(preparation, *found.preparations))


def _merged_terms(
    update: ops.MapOp, carried: SSAValue
) -> tuple[np.ufunc | None, tuple[SSAValue, ...]]:
    """How a body merges values into `carried`, and which; None if it does something else."""
    if carried not in update.inputs:
        return None, ()
    position = list(update.inputs).index(carried)
    whole = update.dim_lists[position] == tuple(range(update.result_type.rank))
    argument, total = update.body.block.args[position], update.yielded[0].owner
    if not whole or not _is_used_once(argument) or not isinstance(total, Operation):
        return None, ()
    if isinstance(total, math.FmaOp):
        return (np.add, (total.a, total.b)) if total.c is argument else (None, ())
    merge = _MERGERS.get(type(total))
    if merge is None or argument not in total.operands or len(total.operands) != 2:
        return None, ()
    if merge is np.add and argument.type == i1:
        return None, ()
    return merge, _factors(merge, next(o for o in total.operands if o is not argument))


def _factors(merge: np.ufunc, value: SSAValue) -> tuple[SSAValue, ...]:
    """The factors of a value, if it is a product that is summed; otherwise the value itself."""
    multiply = value.owner
    if merge is np.add and isinstance(multiply, (arith.MulfOp, arith.MuliOp)):
        return multiply.lhs, multiply.rhs
    return (value,)


def _is_used_once(value: SSAValue) -> bool:
    return value.uses.get_length() == 1
