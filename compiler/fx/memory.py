"""Operations that move elements, as operators of ATen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.fx.writer import Unwritable, Writer, writes
from dialects.graph.base import int_of, ints_of, number_of, text_of
from dialects.graph.constant import RangeOp, SizesOp
from dialects.graph.gather import GatherElementsOp, GatherNdOp, GatherOp
from dialects.graph.scatter import ScatterElementsOp, ScatterNdOp
from dialects.graph.shape import (
    BroadcastOp,
    ConcatOp,
    FramesOp,
    PadOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from dialects.strata.types import tensor_type
from dialects.symbolic.expr import Expr

_COMBINERS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@writes(ReshapeOp)
def reshape(w: Writer, op: ReshapeOp) -> Any:
    return w.call("reshape.default", w.operand(op), w.shape(op.shape.data))


@writes(BroadcastOp)
def broadcast(w: Writer, op: BroadcastOp) -> Any:
    return w.call("expand.default", w.operand(op), w.shape(op.shape.data))


@writes(TransposeOp)
def transpose(w: Writer, op: TransposeOp) -> Any:
    return w.call("permute.default", w.operand(op), list(ints_of(op.properties, "perm")))


@writes(SliceOp)
def sliced(w: Writer, op: SliceOp) -> Any:
    """A negative step takes the same elements from the other end, and turns them around. A start
    that the number of an iteration is in is a tensor, so that elements are taken by their places.
    """
    node, dims = w.operand(op), zip(op.starts.data, op.sizes.data, op.steps.data, strict=True)
    for axis, (start, size, step) in enumerate(dims):
        by = step.constant
        if by is None:
            raise Unwritable(f"its step {step} is no constant")
        if start.constant == 0 and by == 1 and size == tensor_type(op.x).shape[axis]:
            continue
        if start.symbols & w.counts.keys():
            places = w.call("mul.Scalar", w.call("arange.default", w.size(size)), by)
            places = w.call("add.Tensor", places, w.number(start))
            node = w.call("index_select.default", node, axis, places)
            continue
        first = start if by > 0 else start + (size - 1) * by
        last = first + (size - 1) * abs(by) + 1 if size.constant != 0 else first
        node = w.call("slice.Tensor", node, axis, w.size(first), w.size(last), abs(by))
        node = node if by > 0 else w.call("flip.default", node, [axis])
    return node if node is not w.operand(op) else w.call("alias.default", node)


@writes(FramesOp)
def frames(w: Writer, op: FramesOp) -> Any:
    axis, rank = int_of(op.properties, "axis"), tensor_type(op.x).rank
    node = w.call("unfold.default", w.operand(op), axis, w.size(op.size.data),
                  w.size(op.step.data))
    return w.call("permute.default", node, [
        *range(axis + 1), rank, *range(axis + 1, rank)])


@writes(ConcatOp)
def concat(w: Writer, op: ConcatOp) -> Any:
    return w.call("cat.default", w.operands(op), int_of(op.properties, "axis"))


@writes(PadOp)
def pad(w: Writer, op: PadOp) -> Any:
    """Other modes than the constant one read each axis at places that are folded back."""
    mode, low, high = text_of(op.properties, "mode"), op.low.data, op.high.data
    if mode == "constant":
        pairs = [w.size(v) for both in reversed(list(zip(low, high, strict=True))) for v in both]
        return w.call("constant_pad_nd.default", w.operand(op), pairs,
                      number_of(op.properties, "value"))
    node = w.operand(op)
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        if (before.constant, after.constant) != (0, 0):
            size = tensor_type(op.x).shape[axis]
            places = w.call("arange.start", w.size(-before), w.size(size + after))
            node = w.call("index_select.default", node, axis, _folded(w, places, size, mode))
    return node


def _folded(w: Writer, places: Any, size: Expr, mode: str) -> Any:
    last = w.size(size - 1)
    if mode == "edge":
        return w.call("clamp.default", places, 0, last)
    if mode == "wrap":
        return w.call("remainder.Scalar", places, w.size(size))
    if mode != "reflect" or size.constant == 1:
        raise Unwritable(f"its mode is {mode}")
    turned = w.call("remainder.Scalar", places, w.size((size - 1) * 2))
    back = w.call("rsub.Scalar", turned, w.size((size - 1) * 2))
    return w.call("minimum.default", turned, back)


@writes(RangeOp)
def numbers(w: Writer, op: RangeOp) -> Any:
    start, step, count = op.start.data, op.step.data, op.count.data
    steps = w.call("arange.default", w.size(count))
    node = w.call("mul.Scalar", steps, w.size(step)) if step.constant != 1 else steps
    if start.constant != 0:
        is_tensor = start.symbols & w.counts.keys()
        node = w.call("add.Tensor" if is_tensor else "add.Scalar", node, w.number(start))
    return w.cast(node, w.dtype_of(op.result_tensors[0]))


@writes(SizesOp)
def sizes(w: Writer, op: SizesOp) -> Any:
    dtype = w.dtype_of(op.result_tensors[0])
    parts = [w.cast(w.call("reshape.default", w.number(v), [1]), dtype)
             if v.symbols & w.counts.keys() else
             w.call("full.default", [1], w.size(v), dtype=dtype) for v in op.values.data]
    node = w.call("cat.default", parts) if parts else w.call("full.default", [0], 0, dtype=dtype)
    return w.call("reshape.default", node, list(ints_of(op.properties, "shape")))


# ---------------------------------------------------------------------- indices
@writes(GatherOp)
def gather(w: Writer, op: GatherOp) -> Any:
    picks: list[Any] = [None] * int_of(op.properties, "axis")
    return w.call("index.Tensor", w.operand(op), [*picks, w.operand(op, 1)])


def _counted_from_the_front(w: Writer, indices: Any, size: Expr) -> Any:
    import torch

    wide = w.cast(indices, torch.int64)
    moved = w.call("add.Scalar", wide, w.size(size))
    return w.call("where.self", w.call("lt.Scalar", wide, 0), moved, wide)


@writes(GatherElementsOp)
def gather_elements(w: Writer, op: GatherElementsOp) -> Any:
    axis = int_of(op.properties, "axis")
    places = _counted_from_the_front(w, w.operand(op, 1), tensor_type(op.x).shape[axis])
    return w.call("gather.default", w.operand(op), axis, places)


@writes(GatherNdOp)
def gather_nd(w: Writer, op: GatherNdOp) -> Any:
    """The dims that both share are indexed by their own places."""
    shared, vectors = int_of(op.properties, "batch_dims"), tensor_type(op.indices)
    own: list[Any] = []
    for dim in range(shared):
        steps = w.call("arange.default", w.size(vectors.shape[dim]))
        own.append(w.call("reshape.default", steps, [-1] + [1] * (vectors.rank - dim - 2)))
    columns = _columns(w, op.indices)
    picks = [*own, *columns]
    found = w.call("index.Tensor", w.operand(op), picks) if picks else w.operand(op)
    return found if columns else w.call(
        "expand.default", found, w.shape(op.result_tensors[0].shape))


def _columns(w: Writer, indices: Any) -> list[Any]:
    depth = tensor_type(indices).shape[-1].constant
    if depth is None:
        raise Unwritable("its index vectors have an open length")
    return [w.call("select.int", w.values[indices], -1, k) for k in range(depth)]


@writes(ScatterElementsOp)
def scatter_elements(w: Writer, op: ScatterElementsOp) -> Any:
    axis, combiner = int_of(op.properties, "axis"), text_of(op.properties, "combiner", "none")
    places = _counted_from_the_front(w, w.operand(op, 1), tensor_type(op.x).shape[axis])
    if combiner == "none":
        return w.call("scatter.src", w.operand(op), axis, places, w.operand(op, 2))
    return w.call("scatter_reduce.two", w.operand(op), axis, places, w.operand(op, 2),
                  _COMBINERS[combiner])


@writes(ScatterNdOp)
def scatter_nd(w: Writer, op: ScatterNdOp) -> Any:
    combiner = text_of(op.properties, "combiner", "none")
    picks = _columns(w, op.indices)
    if not picks:
        raise Unwritable("it replaces all of x")
    if combiner not in ("none", "add"):
        return _combined(w, op, picks, _COMBINERS[combiner])
    return w.call("index_put.default", w.operand(op), picks, w.operand(op, 2), combiner == "add")


def _combined(w: Writer, op: ScatterNdOp, picks: Sequence[Any], combiner: str) -> Any:
    """Slices at index vectors, combined along one axis that stands for all that are indexed."""
    type_, depth = tensor_type(op.x), len(picks)
    place: Any = None
    for pick, size in zip(picks, type_.shape, strict=False):
        pick = _counted_from_the_front(w, pick, size)
        place = pick if place is None else w.call(
            "add.Tensor", w.call("mul.Scalar", place, w.size(size)), pick)
    rest = w.shape(type_.shape[depth:])
    flat = w.call("reshape.default", w.operand(op), [-1, *rest])
    found = w.call("index_reduce.default", flat, 0, w.call("reshape.default", place, [-1]),
                   w.call("reshape.default", w.operand(op, 2), [-1, *rest]), combiner)
    return w.call("reshape.default", found, w.shape(type_.shape))
