"""Convolution and its transpose, over any number of spatial dims, with groups."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.ir import Attribute
from xdsl.irdl import operand_def, opt_operand_def, opt_prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp, ShapeError, int_of, ints_of
from dialects.graph.inference import (
    certain_sign,
    check_count,
    check_rank,
    product_element,
    same_size,
)
from dialects.graph.window import Window
from dialects.semantics.carriers import as_in
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import rounded, widen
from dialects.semantics.products import matmul, sum_of_products
from dialects.strata.types import (
    Array,
    ExprAttr,
    SizesAttr,
    TensorType,
    dtype_of,
    tensor,
    wide_element,
)
from dialects.symbolic.expr import Expr


@irdl_op_definition
class ConvOp(GraphOp):
    """Convolution (cross-correlation) of x [n, c, s...] with w [co, c/group, k...], plus b [co].

    y[n, o, p] = b[o] + sum over c', k of x[n, g*(c/group) + c', p*stride + k*dilation - low] *
    w[o, c', k], where g is o's group and x is 0 outside. `pads` holds all lows, then all highs.
    f16 and bf16 are accumulated in f32 and rounded once, or with `to` = f32 not at all. With `to`,
    integers are multiplied and summed in that type. Taps outside x add 0 * w or nothing, so that
    results at a border may be NaN or not where w is not finite.
    Constraints: (C1) elements are numbers of equal types; with an integer `to` they may be any
    integers, with `to` = f32 they are equal half-precision floats; (C2) x has at least one spatial
    dim, w the same rank; (C3) w's spatial sizes are constants, strides and dilations are positive,
    pads not negative; (C4) c is group times w's second size and group divides co; (C5) b has the
    shape [co]; (C6) the window is not larger than the padded x.
    Source: ONNX Conv.
    Example: %y = graph.conv %x, %w {strides = [2, 2], dilations = [1, 1], pads = [1, 1, 1, 1],
        group = 1} : f32[n, 8, 6, 4] given %x: f32[n, 3, 11, 8], %w: f32[8, 3, 3, 3]
    """

    name = "graph.conv"
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    b = opt_operand_def(TensorType)
    strides = opt_prop_def(SizesAttr)
    dilations = opt_prop_def(SizesAttr)
    pads = opt_prop_def(SizesAttr)
    group = opt_prop_def(ExprAttr)
    to = opt_prop_def(Attribute)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        element = _check_operands(types, attributes)
        x, w = types[:2]
        group = _group(attributes, w.shape[0])
        same_size(x.shape[1], w.shape[1] * group, f"C4: channels of {x.short} and {w.short} differ")
        _check_bias(types, w.shape[0])
        window = Window.of(kernel_sizes(w), attributes, "C3")
        return [tensor(element, (x.shape[0], w.shape[0], *window.counts(x.shape[2:], "C6")))]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        type_ = self.result_tensors[0]
        dtype = dtype_of(wide_element(type_.element))
        x, w = map(widen, operands[:2])
        total = convolve(x, w, self.properties, context.shape(type_), dtype)
        return rounded(_add_bias(total, operands), type_)


def convolve(
    x: Array, w: Array, attributes: Attributes, shape: Sequence[int], dtype: np.dtype[Any]
) -> Array:
    """The convolution with the attributes of `graph.conv`, summed in `dtype`."""
    window = Window.of(w.shape[2:], attributes, "C3")
    group, counts = int_of(attributes, "group", 1), shape[2:]
    windows = window.windows(window.padded(x, counts, 0.0), counts)  # [n, c, k..., windows...]
    left = windows.reshape(shape[0], group, 1, w.shape[1], *windows.shape[2:])
    right = w.reshape(1, group, shape[1] // group, *w.shape[1:], *[1] * len(counts))
    with np.errstate(all="ignore"):  # both are [n, group, co/group, c/group, k..., windows...]
        depth = {d: left.shape[d] for d in range(3, 4 + window.rank)}
        return sum_of_products(left, right, depth, dtype).reshape(shape)


@irdl_op_definition
class ConvTransposeOp(GraphOp):
    """The transpose of convolution: x [n, ci, s...], w [ci, co/group, k...], plus b [co].

    Each x[n, i, p] adds x[n, i, p] * w[i, o, k] to y[n, o, p*stride + k*dilation - low]. The
    result size per dim is stride*(s - 1) + dilation*(k - 1) + 1 + output_padding - low - high. f16
    and bf16 are accumulated in f32 and rounded once. Positions without an x add nothing, even where
    w is infinite.
    Constraints: (C1) equal element types, numbers; (C2) x has at least one spatial dim, w the same
    rank; (C3) w's spatial sizes are constants, strides and dilations are positive, pads and
    output_padding not negative; (C4) ci is w's first size and group divides it; (C5) b has the
    shape [co]; (C6) the result size is not negative.
    Source: ONNX ConvTranspose.
    Example: %y = graph.conv_transpose %x, %w {strides = [2], dilations = [1], pads = [0, 0],
        output_padding = [0], group = 1} : f32[n, 4, 2*h] given %x: f32[n, 3, h], %w: f32[3, 4, 2]
    """

    name = "graph.conv_transpose"
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    b = opt_operand_def(TensorType)
    strides = opt_prop_def(SizesAttr)
    dilations = opt_prop_def(SizesAttr)
    pads = opt_prop_def(SizesAttr)
    output_padding = opt_prop_def(SizesAttr)
    group = opt_prop_def(ExprAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        element = _check_operands(types, attributes)
        x, w = types[:2]
        group = _group(attributes, w.shape[0])
        same_size(x.shape[1], w.shape[0], f"C4: channels of {x.short} and {w.short} differ")
        channels = w.shape[1] * group
        _check_bias(types, channels)
        window = Window.of(kernel_sizes(w), attributes, "C3")
        sizes = _transposed_sizes(x.shape[2:], window, attributes)
        return [tensor(element, (x.shape[0], channels, *sizes))]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, w = map(widen, operands[:2])
        window = Window.of(w.shape[2:], self.properties, "C3")
        shape = context.shape(self.result_tensors[0])
        group = int_of(self.properties, "group", 1)
        channels, taps, places = w.shape[0] // group, prod(w.shape[2:]), prod(x.shape[2:])
        matrices = w.reshape(group, channels, w.shape[1] * taps).swapaxes(1, 2)
        result = as_in(np.zeros(shape, x.dtype), x)
        with np.errstate(all="ignore"):
            for sample, out in zip(x, result, strict=True):
                columns = matmul(matrices, sample.reshape(group, channels, places), x.dtype)
                columns = columns.reshape(shape[1], taps, *x.shape[2:])
                out[...] = _fold(columns, window, shape[2:])
        return rounded(_add_bias(result, operands), self.result_tensors[0])


def _transposed_sizes(sizes: Sequence[Expr], window: Window, attributes: Attributes) -> list[Expr]:
    extra = ints_of(attributes, "output_padding", [0] * window.rank)
    if len(extra) != window.rank or min(extra) < 0:
        raise ShapeError(f"C3: output_padding {list(extra)} must be {window.rank} numbers >= 0")
    result: list[Expr] = []
    for dim, size in enumerate(sizes):
        pads = window.low[dim] + window.high[dim]
        full = (size - 1) * window.strides[dim] + window.extent(dim) + extra[dim]
        if certain_sign(full - pads) == -1:
            raise ShapeError(f"C6: the pads {pads} of spatial dim {dim} exceed its result {full}")
        result.append(full - pads)
    return result


def _fold(columns: Array, window: Window, sizes: Sequence[int]) -> Array:
    """Sum [c, kernel positions, s...] into [c, sizes...] at their positions, without the pads."""
    counts = columns.shape[2:]
    reach = [max((n - 1) * window.strides[d] + window.extent(d), window.low[d] + sizes[d])
             for d, n in enumerate(counts)]
    full = as_in(np.zeros((columns.shape[0], *reach), columns.dtype), columns)
    for k, offset in enumerate(window.offsets()):
        window.at(full, offset, counts)[...] += columns[:, k]
    return full[(..., *(slice(a, a + n) for a, n in zip(window.low, sizes, strict=True)))]


# ---------------------------------------------------------------------- shared
def kernel_sizes(w: TensorType) -> list[int]:
    """The spatial sizes of a filter."""
    constants = [s.constant for s in w.shape[2:]]
    if None in constants:
        raise ShapeError(f"C3: the spatial sizes of the filter {w.short} must be constants")
    return [c for c in constants if c is not None]


def _check_operands(types: Sequence[TensorType], attributes: Attributes) -> Attribute:
    """The element type of the result."""
    check_count(types, 2, 3)
    element = product_element(types, attributes, "C1")
    if types[0].rank < 3:
        raise ShapeError(f"C2: {types[0].short} has no spatial dims")
    check_rank(types[1], types[0].rank, "the filter", "C2")
    return element


def _group(attributes: Attributes, channels: Expr) -> int:
    group = int_of(attributes, "group", 1)
    if group < 1 or (channels % group).constant not in (0, None):
        raise ShapeError(f"C4: group {group} does not divide {channels} channels")
    return group


def _check_bias(types: Sequence[TensorType], channels: Expr) -> None:
    for bias in types[2:]:
        check_rank(bias, 1, "the bias", "C5")
        same_size(bias.shape[0], channels, "C5: bias and result channels differ")


def _add_bias(result: Array, operands: Sequence[Array]) -> Array:
    for bias in operands[2:]:
        result += widen(bias).reshape(-1, *(1,) * (result.ndim - 2))
    return result
