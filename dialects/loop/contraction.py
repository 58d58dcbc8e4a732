"""Sums of products of arrays, by matrix multiplication."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from dialects.graph.numerics import matmul
from dialects.loop.nest import NestOp
from dialects.types import Array, dtype_of


def sum_of_products(
    a: Array, b: Array, extents: Sequence[int], inner: Sequence[int]
) -> Array:
    """The sum of a*b over the dims `inner`, with one dim per other dim.

    Both arrays have a dim per extent, of size 1 where they do not depend on it; the sum counts
    such a dim as often as its extent says. A dim of the result that neither depends on has size 1.
    """
    outer = [k for k in range(len(extents)) if k not in inner]
    idle = math.prod(extents[k] for k in inner if a.shape[k] == b.shape[k] == 1)
    a, b = _sum_alone(a, b, inner), _sum_alone(b, a, inner)
    both = [k for k in outer if a.shape[k] > 1 and b.shape[k] > 1]
    rows = [k for k in outer if a.shape[k] > 1 and b.shape[k] == 1]
    columns = [k for k in outer if b.shape[k] > 1 and a.shape[k] == 1]
    shared = [k for k in inner if a.shape[k] > 1]
    left, right = _matrices(a, both, rows, shared), _matrices(b, both, shared, columns)
    product = matmul(left, right, a.dtype)
    order = both + rows + columns
    product = product.reshape([max(a.shape[k], b.shape[k]) for k in order])
    product = product.transpose(np.argsort(order))
    if idle != 1:
        product = product * product.dtype.type(idle)
    return product.reshape([max(a.shape[k], b.shape[k]) for k in outer])


def _sum_alone(a: Array, b: Array, inner: Sequence[int]) -> Array:
    """Sum `a` over the dims that `b` does not depend on."""
    alone = tuple(k for k in inner if a.shape[k] > 1 and b.shape[k] == 1)
    return a.sum(alone, a.dtype, keepdims=True) if alone else a


def _matrices(x: Array, *groups: Sequence[int]) -> Array:
    """x with each group of dims collapsed into one; all other dims have size 1."""
    order = [k for group in groups for k in group]
    rest = [k for k in range(x.ndim) if k not in order]
    sizes = [math.prod(x.shape[k] for k in group) for group in groups]
    return x.transpose([*order, *rest]).reshape(sizes)


def factors_of(nest: NestOp) -> Sequence[SSAValue] | None:
    """The two factors, when a product of f32, f64 or wide integers is all that is yielded."""
    if len(nest.yielded) != 1 or not isinstance(nest.yielded[0].owner, Operation):
        return None
    product = nest.yielded[0].owner
    is_product = isinstance(product, arith.MulfOp | arith.MuliOp)
    wide = dtype_of(nest.yielded[0].type).itemsize >= 4
    return product.operands if is_product and wide else None
