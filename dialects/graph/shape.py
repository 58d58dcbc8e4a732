"""Operations that rearrange elements: reshape, transpose, broadcast, slice, frames, pad, concat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def, var_operand_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import (
    Attributes,
    GraphOp,
    ShapeError,
    int_of,
    ints_of,
    number_of,
    sizes_of,
    text_of,
)
from dialects.graph.inference import (
    certain_sign,
    certainly_differ,
    check_axis,
    check_rank,
    check_same_element,
    same_size,
)
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.types import Array, ExprAttr, SizesAttr, TensorType, format_sizes, tensor
from dialects.symbolic.expr import Expr


@irdl_op_definition
class ReshapeOp(GraphOp):
    """The same elements in row-major order under another shape.

    Constraints: (C1) both shapes have the same number of elements, as far as sizes are known; (C2)
    no size is negative.
    Source: ONNX Reshape, Flatten, Squeeze, Unsqueeze.
    Example: %y = graph.reshape %x {shape = [n, 2, 3]} : f32[n, 2, 3] given %x: f32[n, 6]
    """

    name = "graph.reshape"
    x = operand_def(TensorType)
    shape = prop_def(SizesAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        result = tensor(types[0].element, sizes_of(attributes, "shape"))
        if any(certain_sign(s) == -1 for s in result.shape):
            raise ShapeError(f"C2: the shape {format_sizes(result.shape)} has a negative size")
        if certainly_differ(types[0].count, result.count):
            raise ShapeError(
                f"C1: {types[0].short} has {types[0].count} elements, "
                f"{format_sizes(result.shape)} has {result.count}"
            )
        return [result]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        return operands[0].reshape(context.ints(self.shape))

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        return operands[0].reshape(ints_of(self.properties, "shape"))


@irdl_op_definition
class TransposeOp(GraphOp):
    """Reorders dims: dim k of the result is dim perm[k] of x.

    Constraints: (C1) perm is a permutation of x's dims.
    Source: ONNX Transpose.
    Example: %y = graph.transpose %x {perm = [1, 0]} : f32[3, n] given %x: f32[n, 3]
    """

    name = "graph.transpose"
    x = operand_def(TensorType)
    perm = prop_def(SizesAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        perm = ints_of(attributes, "perm")
        if sorted(perm) != list(range(types[0].rank)):
            raise ShapeError(f"C1: perm {list(perm)} does not permute the dims of {types[0].short}")
        return [tensor(types[0].element, [types[0].shape[p] for p in perm])]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        return operands[0].transpose(ints_of(self.properties, "perm"))

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        return operands[0].transpose(ints_of(self.properties, "perm"))


@irdl_op_definition
class BroadcastOp(GraphOp):
    """Repeats x along new leading dims and along dims of size 1, to a given shape.

    Constraints: (C1) x has at most as many dims as the shape; (C2) each dim of x, aligned at the
    last, is 1 or the shape's.
    Source: ONNX Expand.
    Example: %y = graph.broadcast %x {shape = [2, n, 3]} : f32[2, n, 3] given %x: f32[n, 1]
    """

    name = "graph.broadcast"
    x = operand_def(TensorType)
    shape = prop_def(SizesAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        shape = sizes_of(attributes, "shape")
        check_broadcasts_to(types[0], shape, ("C1", "C2"))
        return [tensor(types[0].element, shape)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        return np.broadcast_to(operands[0], context.ints(self.shape))

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        return np.broadcast_to(operands[0], ints_of(self.properties, "shape"))


def check_broadcasts_to(
    type_: TensorType, shape: Sequence[Expr], constraints: tuple[str, str]
) -> None:
    """One-way broadcasting: the tensor fits the shape, whose sizes all stay."""
    text = format_sizes(shape)
    if type_.rank > len(shape):
        raise ShapeError(f"{constraints[0]}: {type_.short} has more dims than {text}")
    aligned = shape[len(shape) - type_.rank:]
    message = f"{constraints[1]}: {type_.short} does not broadcast to {text}"
    for size, target in zip(type_.shape, aligned, strict=True):
        if size.constant != 1:
            same_size(size, target, message)


@irdl_op_definition
class SliceOp(GraphOp):
    """Every `steps`-th element from `starts`, `sizes` of them, per dim: y[k] = x[start + k*step].

    Constraints: (C1) one start, size and step per dim of x; (C2) steps are not zero; (C3) sizes
    are not negative; (C4) the first and the last element lie inside x, as far as sizes are known.
    Source: ONNX Slice, Split.
    Example: %y = graph.slice %x {starts = [n - 1, 0], sizes = [n, 2], steps = [-1, 2]} : f32[n, 2]
        given %x: f32[n, 3]
    """

    name = "graph.slice"
    x = operand_def(TensorType)
    starts = prop_def(SizesAttr)
    sizes = prop_def(SizesAttr)
    steps = prop_def(SizesAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        starts, sizes = sizes_of(attributes, "starts"), sizes_of(attributes, "sizes")
        steps = ints_of(attributes, "steps")
        if not len(starts) == len(sizes) == len(steps) == types[0].rank:
            raise ShapeError(f"C1: starts, sizes and steps need {types[0].rank} entries each")
        for dim, extent in enumerate(types[0].shape):
            _check_slice(extent, starts[dim], sizes[dim], steps[dim], dim)
        return [tensor(types[0].element, sizes)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        return take_slices(operands[0], context.ints(self.starts), context.ints(self.sizes),
                           ints_of(self.properties, "steps"))

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        if any(s.constant is None for s in self.starts.data):
            return None
        return take_slices(operands[0], ints_of(self.properties, "starts"),
                           ints_of(self.properties, "sizes"), ints_of(self.properties, "steps"))


def _check_slice(extent: Expr, start: Expr, size: Expr, step: int, dim: int) -> None:
    if step == 0:
        raise ShapeError(f"C2: the step of dim {dim} is 0")
    if certain_sign(size) == -1:
        raise ShapeError(f"C3: the size {size} of dim {dim} is negative")
    if certain_sign(size) != 1:
        return
    for position in (start, start + (size - 1) * step):
        if certain_sign(position) == -1 or certain_sign(extent - 1 - position) == -1:
            raise ShapeError(f"C4: element {position} is outside dim {dim} of size {extent}")


def take_slices(
    x: Array, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]
) -> Array:
    """The view of SliceOp. Raises IndexError when it reaches outside x."""
    index: list[slice] = []
    for start, size, step, extent in zip(starts, sizes, steps, x.shape, strict=True):
        last = start + (size - 1) * step
        if size and not (0 <= start < extent and 0 <= last < extent):
            raise IndexError(f"elements {start} to {last} of a dim of size {extent}")
        stop = last + (1 if step > 0 else -1)
        index.append(slice(start, stop if stop >= 0 else None, step) if size else slice(0, 0))
    return x[tuple(index)]


@irdl_op_definition
class FramesOp(GraphOp):
    """Overlapping frames along one axis: y[a, f, k, b] = x[a, f*step + k, b] for k < size.

    `a` and `b` are any number of dims. All frames that lie entirely inside x are taken.
    Constraints: (C1) the axis is one of x's; (C2) size and step are at least 1; (C3) a frame is
    not longer than the axis, as far as sizes are known.
    Source: torch Tensor.unfold; the frames of ONNX STFT.
    Example: %y = graph.frames %x {axis = 1, size = 400, step = 160} :
        f32[2, ((n + 80) floordiv 160) - 2, 400] given %x: f32[2, n]
    """

    name = "graph.frames"
    x = operand_def(TensorType)
    axis = prop_def(ExprAttr)
    size = prop_def(ExprAttr)
    step = prop_def(ExprAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        x, axis = types[0], int_of(attributes, "axis")
        size, step = int_of(attributes, "size"), int_of(attributes, "step")
        check_axis(axis, x.rank, "C1")
        if min(size, step) < 1:
            raise ShapeError(f"C2: size {size} and step {step} must be from 1 up")
        room = x.shape[axis] - size
        if certain_sign(room) == -1:
            raise ShapeError(f"C3: a frame of {size} is longer than dim {axis} of {x.short}")
        return [tensor(x.element, (*x.shape[:axis], room // step + 1, size, *x.shape[axis + 1:]))]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        axis = int_of(self.properties, "axis")
        size, step = (int_of(self.properties, name) for name in ("size", "step"))
        every = np.lib.stride_tricks.sliding_window_view(operands[0], size, axis)
        picked = every[(slice(None),) * axis + (slice(None, None, step),)]
        return np.moveaxis(picked, -1, axis + 1)


@irdl_op_definition
class PadOp(GraphOp):
    """Adds `low` elements before and `high` after each dim.

    Mode constant: `value`, a float, an integer or a truth value; reflect: mirrored without the
    border element; edge: the border element; wrap: from the other end.
    Constraints: (C1) one `low` and `high` per dim of x, not negative as far as sizes are known;
    (C2) the mode is one of the four; (C3) for reflect they are smaller than the dim, for wrap not
    larger, as far as sizes are known.
    Source: ONNX Pad (its negative pads are slices).
    Example: %y = graph.pad %x {low = [0, 1], high = [0, 2], mode = "constant", value = 0.0} :
        f32[n, 6] given %x: f32[n, 3]
    """

    name = "graph.pad"
    x = operand_def(TensorType)
    low = prop_def(SizesAttr)
    high = prop_def(SizesAttr)
    mode = prop_def(StringAttr)
    value = opt_prop_def(Attribute)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        low, high = sizes_of(attributes, "low"), sizes_of(attributes, "high")
        negative = any(certain_sign(pad) == -1 for pad in (*low, *high))
        if not len(low) == len(high) == types[0].rank or negative:
            raise ShapeError(f"C1: low and high need {types[0].rank} entries from 0 up")
        mode = text_of(attributes, "mode")
        if mode not in ("constant", "reflect", "edge", "wrap"):
            raise ShapeError(f"C2: unknown mode {mode!r}")
        for dim, size in enumerate(types[0].shape):
            for pad in (low[dim], high[dim]):
                _check_pad(size, pad, mode, dim)
        shape = [s + a + b for s, a, b in zip(types[0].shape, low, high, strict=True)]
        return [tensor(types[0].element, shape)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        pairs = list(zip(context.ints(self.low), context.ints(self.high), strict=True))
        if self.mode.data != "constant":
            return np.pad(operands[0], pairs, self.mode.data)  # type: ignore[call-overload]
        value = np.asarray(number_of(self.properties, "value")).astype(operands[0].dtype)
        return np.pad(operands[0], pairs, constant_values=value)


def _check_pad(size: Expr, pad: Expr, mode: str, dim: int) -> None:
    room = {"reflect": size - 1 - pad, "wrap": size - pad}.get(mode)
    if pad.constant != 0 and room is not None and certain_sign(room) == -1:
        raise ShapeError(f"C3: dim {dim} of size {size} is too small to {mode} {pad} elements")


@irdl_op_definition
class ConcatOp(GraphOp):
    """Concatenates the operands along one axis.

    Constraints: (C1) there is at least one operand, and element types are equal; (C2) ranks are
    equal, and the axis is one of the dims; (C3) all other dims agree.
    Source: ONNX Concat.
    Example: %z = graph.concat %x, %y {axis = 1} : f32[n, 5] given %x: f32[n, 3], %y: f32[n, 2]
    """

    name = "graph.concat"
    xs = var_operand_def(TensorType)
    axis = prop_def(ExprAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        if not types:
            raise ShapeError("C1: needs at least one operand")
        axis = int_of(attributes, "axis")
        check_same_element(types)
        check_axis(axis, types[0].rank, "C2")
        shape = list(types[0].shape)
        for type_ in types[1:]:
            check_rank(type_, len(shape), "every operand", "C2")
            shape = _joined(shape, type_.shape, axis)
        return [tensor(types[0].element, shape)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        return np.concatenate(operands, int_of(self.properties, "axis"))

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        return np.concatenate(operands, int_of(self.properties, "axis"))


def _joined(left: Sequence[Expr], right: Sequence[Expr], axis: int) -> list[Expr]:
    message = f"C3: {format_sizes(left)} and {format_sizes(right)} do not join along axis {axis}"
    return [a + b if dim == axis else same_size(a, b, message)
            for dim, (a, b) in enumerate(zip(left, right, strict=True))]
