"""Rules on operations that move elements: reshape, transpose, slice, pad, concat, gather."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from dialects.graph import (
    BroadcastOp,
    CastOp,
    ConcatOp,
    GatherOp,
    PadOp,
    ReduceMaxOp,
    ReduceMeanOp,
    ReduceMinOp,
    ReduceProdOp,
    ReduceSumOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from dialects.graph.base import int_of, ints_of
from dialects.graph.inference import certain_sign
from dialects.strata.sizes import AssumeOp
from dialects.symbolic.expr import Expr
from passes.rewrites.graph.matching import constant_array, type_of
from passes.rewriting import Rewriter, Rule


def same_type(op: ReshapeOp | BroadcastOp | PadOp, at: Rewriter) -> SSAValue | None:
    # reshape(x, shape of x) == broadcast(x, shape of x) == pad(x by nothing) == x
    return op.x if op.x.type == op.results[0].type else None


def reshape_of_reshape(op: ReshapeOp, at: Rewriter) -> SSAValue | None:
    # reshape(reshape(x, s), t) == reshape(x, t)
    inner = op.x.owner
    return at(ReshapeOp, inner.x, shape=op.shape) if isinstance(inner, ReshapeOp) else None


def reshape_of_cast_of_reshape(op: ReshapeOp, at: Rewriter) -> SSAValue | None:
    # reshape(cast(reshape(x, s)), t) == cast(reshape(x, t)), so that readers can convert x
    cast = op.x.owner
    if not isinstance(cast, CastOp) or not isinstance(inner := cast.x.owner, ReshapeOp):
        return None
    if not op.x.has_one_use():
        return None
    moved = at(ReshapeOp, inner.x, shape=op.shape)
    return at(CastOp, moved, to=cast.to, saturate=cast.saturate, round=cast.round)


# ---------------------------------------------------------------------- transpose
def transpose_of_transpose(op: TransposeOp, at: Rewriter) -> SSAValue | None:
    # transpose(transpose(x, p), q) == transpose(x, p[q])
    inner = op.x.owner
    if not isinstance(inner, TransposeOp):
        return None
    first, second = _perm(inner), _perm(op)
    return at(TransposeOp, inner.x, perm=[first[d] for d in second])


def transpose_in_order(op: TransposeOp, at: Rewriter) -> SSAValue | None:
    # transpose(x, [0, 1, ...]) == x;  dims of size 1 may move: the elements stay in order
    perm = _perm(op)
    if perm == sorted(perm):
        return op.x
    type_ = type_of(op.x)
    long = [d for d in perm if type_.shape[d].constant != 1]
    if long != sorted(long):
        return None
    return at(ReshapeOp, op.x, shape=list(type_of(op.results[0]).shape))


def _perm(op: TransposeOp) -> list[int]:
    return list(ints_of(op.properties, "perm"))


# ---------------------------------------------------------------------- slice, concat, gather
def whole_slice(op: SliceOp, at: Rewriter) -> SSAValue | None:
    # x[0:n:1] == x
    steps = ints_of(op.properties, "steps")
    whole = op.x.type == op.results[0].type and all(s.constant == 0 for s in op.starts.data)
    return op.x if whole and all(s == 1 for s in steps) else None


def slice_of_slice(op: SliceOp, at: Rewriter) -> SSAValue | None:
    # x[a::s][b::t] == x[a + b*s :: s*t]
    inner = op.x.owner
    if not isinstance(inner, SliceOp):
        return None
    first, second = ints_of(inner.properties, "steps"), ints_of(op.properties, "steps")
    pairs = zip(inner.starts.data, first, op.starts.data, strict=True)
    return at(SliceOp, inner.x, starts=[a + b * s for a, s, b in pairs], sizes=op.sizes,
              steps=[s * t for s, t in zip(first, second, strict=True)])


def slice_of_concat(op: SliceOp, at: Rewriter) -> SSAValue | None:
    # concat(x, y)[a part that lies in y] == y[...]
    inner = op.x.owner
    if not isinstance(inner, ConcatOp):
        return None
    axis = _axis(inner)
    if ints_of(op.properties, "steps")[axis] != 1:
        return None
    start, size = op.starts.data[axis], op.sizes.data[axis]
    for part in inner.xs:
        extent = type_of(part).shape[axis]
        if _is_certain(start) and _is_certain(extent - start - size):
            starts = [start if d == axis else s for d, s in enumerate(op.starts.data)]
            return at(SliceOp, part, starts=starts, sizes=op.sizes, steps=op.steps)
        start = start - extent
    return None


def _is_certain(expr: Expr) -> bool:
    return certain_sign(expr) in (0, 1)


def _axis(op: ConcatOp) -> int:
    return int_of(op.properties, "axis")


def concat_of_one(op: ConcatOp, at: Rewriter) -> SSAValue | None:
    # concat(x) == x
    return op.xs[0] if len(op.xs) == 1 else None


def concat_of_nothing(op: ConcatOp, at: Rewriter) -> SSAValue | None:
    # concat(x, y) == x if y has no elements along the axis
    axis, shape = _axis(op), type_of(op.results[0]).shape
    kept = [x for x in op.xs if type_of(x).shape[axis].constant != 0]
    if not 0 < len(kept) < len(op.xs):
        return None
    for x in op.xs:  # all parts must still agree in the other dims
        for dim, (own, size) in enumerate(zip(type_of(x).shape, shape, strict=True)):
            if dim != axis and own != size:
                at.insert(AssumeOp.of(own, "==", size))
    return at(ConcatOp, *kept, axis=axis)


def concat_of_concat(op: ConcatOp, at: Rewriter) -> SSAValue | None:
    # concat(concat(x, y), z) == concat(x, y, z)
    axis = _axis(op)
    flat: list[SSAValue] = []
    for x in op.xs:
        inner = x.owner
        if isinstance(inner, ConcatOp) and x.has_one_use() and _axis(inner) == axis:
            flat += inner.xs
        else:
            flat.append(x)
    return at(ConcatOp, *flat, axis=axis) if len(flat) != len(op.xs) else None


def gather_at_constant(op: GatherOp, at: Rewriter) -> SSAValue | None:
    # gather(x, [k]) == x[k:k+1], reshaped: an affine read instead of a lookup
    index = constant_array(op.indices, at.context)
    if index is None or index.size != 1:
        return None
    axis, shape = int_of(op.properties, "axis"), type_of(op.x).shape
    position = int(index.reshape(-1)[0])
    start = shape[axis] + position if position < 0 else Expr.of(position)
    if not _is_certain(start) or not _is_certain(shape[axis] - 1 - start):
        return None
    entry = _one_entry(op.x, axis, start, at)
    return at(ReshapeOp, entry, shape=list(type_of(op.results[0]).shape))


def _one_entry(x: SSAValue, axis: int, start: Expr, at: Rewriter) -> SSAValue:
    shape: Sequence[Expr] = type_of(x).shape
    return at(SliceOp, x, starts=[start if d == axis else 0 for d in range(len(shape))],
              sizes=[1 if d == axis else s for d, s in enumerate(shape)], steps=[1] * len(shape))


# ---------------------------------------------------------------------- reductions
def reduction_of_one(op: ReduceSumOp | ReduceMeanOp, at: Rewriter) -> SSAValue | None:
    # sum(x over dims of size 1) == x, reshaped; so for max, min, product and mean
    shape = type_of(op.x).shape
    if not all(shape[axis].constant == 1 for axis in ints_of(op.properties, "axes")):
        return None
    return at(ReshapeOp, op.x, shape=list(type_of(op.results[0]).shape))


MOVEMENT_RULES: dict[type[Operation], list[Rule]] = {
    ReshapeOp: [same_type, reshape_of_reshape, reshape_of_cast_of_reshape],
    BroadcastOp: [same_type],
    PadOp: [same_type],
    TransposeOp: [transpose_of_transpose, transpose_in_order],
    SliceOp: [whole_slice, slice_of_slice, slice_of_concat],
    ConcatOp: [concat_of_one, concat_of_nothing, concat_of_concat],
    GatherOp: [gather_at_constant],
    ReduceSumOp: [reduction_of_one],
    ReduceProdOp: [reduction_of_one],
    ReduceMaxOp: [reduction_of_one],
    ReduceMinOp: [reduction_of_one],
    ReduceMeanOp: [reduction_of_one],
}
