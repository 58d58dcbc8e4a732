"""Gathers: positions along an axis are read from an index tensor.

    loop.nest (...) ins(%ids[i0], %x[in0, i1]) outs(...)

A separate nest first makes negative indices positive and clamps them, so a wrong index reads some
element but never reads out of bounds. Constant indices need no such nest. `strata.require` turns
wrong indices into errors (`requirements.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from dialects.graph.base import Build, int_of
from dialects.graph.constant import ConstantOp
from dialects.graph.gather import GatherElementsOp, GatherNdOp, GatherOp
from dialects.strata import types as t
from dialects.strata.types import Array, tensor
from dialects.symbolic.expr import Expr
from passes.graph_to_loop.nests import Domain, Read, copy, make_nest, type_of
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Scalar
from passes.rewriting import Rewriter


@lowers(GatherOp)
def gather(op: GatherOp, at: Rewriter) -> SSAValue:
    x, axis = type_of(op.x), int_of(op.properties, "axis")
    domain = Domain()
    point = domain.parallel(*type_of(op.result).shape)
    end = axis + type_of(op.indices).rank
    place = _place(at, op.indices, point[axis:end], x.shape[axis])
    return pick(at, domain, op.x, [*point[:axis], place, *point[end:]])


@lowers(GatherElementsOp)
def gather_elements(op: GatherElementsOp, at: Rewriter) -> SSAValue:
    x, axis = type_of(op.x), int_of(op.properties, "axis")
    domain = Domain()
    point = domain.parallel(*type_of(op.result).shape)
    place = _place(at, op.indices, point, x.shape[axis])
    return pick(at, domain, op.x, [*point[:axis], place, *point[axis + 1:]])


@lowers(GatherNdOp)
def gather_nd(op: GatherNdOp, at: Rewriter) -> SSAValue:
    """The index tensor is read once per coordinate."""
    x, indices = type_of(op.x), type_of(op.indices)
    batch, depth = int_of(op.properties, "batch_dims"), indices.shape[-1].constant or 0
    domain = Domain()
    point = domain.parallel(*type_of(op.result).shape)
    vector, rest = point[:indices.rank - 1], point[indices.rank - 1:]
    places = [_place(at, op.indices, vector, x.shape[batch + k], k) for k in range(depth)]
    return pick(at, domain, op.x, [*point[:batch], *places, *rest])


def pick(at: Build, domain: Domain, x: SSAValue, index: Sequence[Expr | Read]) -> SSAValue:
    """Copy elements of x at an index some of whose entries are read from other tensors."""
    reads = [i for i in index if isinstance(i, Read)]
    names = iter([Expr.gathered(k) for k in range(len(reads))])
    places = [next(names) if isinstance(i, Read) else i for i in index]
    result = tensor(type_of(x).element, [a.extent for a in domain.axes])
    return make_nest(at, domain, [*reads, Read(x, places)], result, copy)


# ---------------------------------------------------------------------- indices
def _place(
    at: Rewriter, indices: SSAValue, point: Sequence[Expr], extent: Expr,
    coordinate: int | None = None,
) -> Expr | Read:
    """Where to read a dim of size `extent`, certainly in bounds.

    `coordinate` selects an entry of the last dim of `indices`.
    """
    if isinstance(indices.owner, ConstantOp):
        array = indices.owner.array(at.context.weights)
        chosen = array if coordinate is None else array[..., coordinate]
        known = _known_place(at, indices.owner, chosen, point, extent)
        if known is not None:
            return known
    return Read(clamped(at, indices, extent, coordinate), point)


def _known_place(
    at: Rewriter, op: ConstantOp, array: Array, point: Sequence[Expr], extent: Expr
) -> Expr | Read | None:
    """The place for constant indices that are in range; None if they may not be."""
    size = extent.constant
    if size is None or not array.size or array.min() < -size or array.max() >= size:
        return None
    positive = np.where(array < 0, array + size, array).astype(np.int64)
    if array.size == 1:
        return Expr.of(int(positive.reshape(-1)[0]))
    if array.shape == type_of(op.result).static_shape and array.min() >= 0:
        return Read(op.result, point)
    label = f"{op.label or 'indices'}.wrapped"
    constant = ConstantOp.of_array(positive, at.context.weights, label)
    return Read(at.insert(constant).results[0], point)


def clamped(
    at: Build, indices: SSAValue, extent: Expr, coordinate: int | None = None,
) -> SSAValue:
    """The indices, or one entry of their last dim: negative ones wrapped, then all clamped."""
    type_ = type_of(indices)
    domain = Domain()
    point = domain.parallel(*type_.shape[:None if coordinate is None else -1])
    index = point if coordinate is None else [*point, Expr.of(coordinate)]

    def compute(body: Body, read: Sequence[Scalar]) -> Scalar:
        i = read[0].to(t.i64)
        size = body.index(extent) if extent.constant is None else extent.constant
        wrapped = i.compare("lt", 0).where(i + size, i)
        return wrapped.minimum(size - 1).maximum(0)

    result = tensor(t.i64, [a.extent for a in domain.axes])
    return make_nest(at, domain, [Read(indices, index)], result, compute)
