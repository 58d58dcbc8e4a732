"""Max and average pools over the spatial dims of x [n, c, s...]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import IntegerAttr
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp, ShapeError, flag_of, ints_of
from dialects.graph.inference import FLOATS, NUMBERS, Kind, check_kind
from dialects.graph.window import Window
from dialects.semantics.carriers import as_in
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import lowest, rounded, widen
from dialects.strata.types import Array, SizesAttr, TensorType, i64, tensor


def _pooled(types: Sequence[TensorType], attributes: Attributes, kind: Kind) -> TensorType:
    x, kernel = types[0], ints_of(attributes, "kernel")
    check_kind(kind, x.element, "C1")
    if x.rank < 3 or x.rank != len(kernel) + 2:
        raise ShapeError(f"C2: the kernel {list(kernel)} does not fit the dims of {x.short}")
    window = Window.of(kernel, attributes, "C3")
    for dim in range(window.rank):
        if max(window.low[dim], window.high[dim]) >= window.extent(dim):
            raise ShapeError(f"C4: the pads of spatial dim {dim} hold a whole window")
    counts = window.counts(x.shape[2:], "C5", flag_of(attributes, "ceil_mode"),
                           flag_of(attributes, "toward_zero"))
    return tensor(x.element, (*x.shape[:2], *counts))


@irdl_op_definition
class MaxPoolOp(GraphOp):
    """The largest element of each window; NaN if it contains one. Pads are never the maximum.

    With ceil_mode, the last window may extend past the end if it starts inside x or its low pad.
    With toward_zero, a single window may extend past the end by less than a stride.
    Constraints: (C1) elements are numbers; (C2) one kernel size per spatial dim, of which there is
    at least one; (C3) kernel, strides and dilations are positive, pads not negative; (C4) pads are
    smaller than the window; (C5) the window is not larger than the padded x, unless ceil_mode or
    toward_zero lets it reach over the end.
    Source: ONNX MaxPool (without indices).
    Example: %y = graph.max_pool %x {kernel = [3], strides = [2], dilations = [1], pads = [1, 1],
        ceil_mode = false} : f32[n, 8, 6] given %x: f32[n, 8, 11]
    """

    name = "graph.max_pool"
    x = operand_def(TensorType)
    kernel = prop_def(SizesAttr)
    strides = opt_prop_def(SizesAttr)
    dilations = opt_prop_def(SizesAttr)
    pads = opt_prop_def(SizesAttr)
    ceil_mode = opt_prop_def(IntegerAttr)
    toward_zero = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        return [_pooled(types, attributes, NUMBERS)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x = widen(operands[0])
        window = Window.of(ints_of(self.properties, "kernel"), self.properties, "C3")
        counts = context.shape(self.result_tensors[0])[2:]
        padded = window.padded(x, counts, lowest(x.dtype))
        result = np.full((*x.shape[:2], *counts), lowest(x.dtype), x.dtype)
        for offset in window.offsets():
            np.maximum(result, window.at(padded, offset, counts), out=result)
        return rounded(result, self.result_tensors[0])


@irdl_op_definition
class MaxPoolIndicesOp(GraphOp):
    """The index (i64) in x of the element y that `max_pool` found in each window.

    Elements are numbered over all dims of x, the last dim fastest. Among equal elements, the
    smallest index is taken. If a window contains NaN, y is NaN, and the index is that of the first
    NaN; with last_nan, which defaults to false, it is that of the last one, as in PyTorch.
    Constraints: (C1) to (C5) as for max_pool; (C6) y has the type of max_pool's result for x.
    Source: ONNX MaxPool (its second result).
    Example: %i = graph.max_pool_indices %x, %y {kernel = [2], strides = [2], dilations = [1],
        pads = [0, 0], ceil_mode = false} : i64[n, 8, 3]
        given %x: f32[n, 8, 7], %y: f32[n, 8, 3]
    """

    name = "graph.max_pool_indices"
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    kernel = prop_def(SizesAttr)
    strides = opt_prop_def(SizesAttr)
    dilations = opt_prop_def(SizesAttr)
    pads = opt_prop_def(SizesAttr)
    ceil_mode = opt_prop_def(IntegerAttr)
    toward_zero = opt_prop_def(IntegerAttr)
    last_nan = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        pooled = _pooled(types, attributes, NUMBERS)
        if types[1] != pooled:
            raise ShapeError(f"C6: y is {types[1].short}, not {pooled.short}")
        return [tensor(i64, pooled.shape)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, y = operands
        window = Window.of(ints_of(self.properties, "kernel"), self.properties, "C3")
        counts, nowhere = y.shape[2:], np.iinfo(np.int64).max
        numbers = np.arange(x.size).reshape(x.shape)
        places = window.padded(numbers, counts, nowhere)
        padded = window.padded(x, counts, lowest(x.dtype))
        result = np.full(y.shape, nowhere, np.int64)
        for offset in window.offsets():
            found = window.at(padded, offset, counts)
            hit = (found == y) | (found != found)
            place = window.at(places, offset, counts)
            if flag_of(self.properties, "last_nan"):
                place = np.where(found != found, -1 - place, place)
            np.minimum(result, np.where(hit, place, nowhere), out=result)
        return np.where(result < 0, -1 - result, result)


@irdl_op_definition
class AvgPoolOp(GraphOp):
    """The mean of each window over the elements inside x; with count_include_pad, pads count, too.

    With ceil_mode, the last window may extend past the end if it starts inside x or its low pad;
    positions beyond the pads never count. With toward_zero, a single window may extend past the
    end by less than a stride. A window without elements, which dilations can cause, has the mean
    0. f16 and bf16 are summed in f32 and rounded once.
    Constraints: (C1) elements are floats; (C2) one kernel size per spatial dim, of which there is
    at least one; (C3) kernel, strides and dilations are positive, pads not negative; (C4) pads are
    smaller than the window; (C5) the window is not larger than the padded x, unless ceil_mode or
    toward_zero lets it reach over the end.
    Source: ONNX AveragePool.
    Example: %y = graph.avg_pool %x {kernel = [2], strides = [2], dilations = [1], pads = [0, 0],
        ceil_mode = false, count_include_pad = false} : f32[n, 8, 3] given %x: f32[n, 8, 7]
    """

    name = "graph.avg_pool"
    x = operand_def(TensorType)
    kernel = prop_def(SizesAttr)
    strides = opt_prop_def(SizesAttr)
    dilations = opt_prop_def(SizesAttr)
    pads = opt_prop_def(SizesAttr)
    ceil_mode = opt_prop_def(IntegerAttr)
    toward_zero = opt_prop_def(IntegerAttr)
    count_include_pad = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        return [_pooled(types, attributes, FLOATS)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x = widen(operands[0])
        window = Window.of(ints_of(self.properties, "kernel"), self.properties, "C3")
        counts = context.shape(self.result_tensors[0])[2:]
        padded = window.padded(x, counts, 0.0)
        result = as_in(np.zeros((*x.shape[:2], *counts), x.dtype), x)
        with np.errstate(all="ignore"):
            for offset in window.offsets():
                result += window.at(padded, offset, counts)
            include = flag_of(self.properties, "count_include_pad")
            result /= _divisors(window, x.shape[2:], counts, include).astype(x.dtype)
        return rounded(result, self.result_tensors[0])


def _divisors(
    window: Window, sizes: Sequence[int], counts: Sequence[int], include_pads: bool
) -> Array:
    """The number of elements that each window averages, of shape `counts`."""
    total = np.ones((), np.int64)
    for dim, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        start = np.arange(count)[:, None] * window.strides[dim] - window.low[dim]
        position = start + np.arange(window.kernel[dim]) * window.dilations[dim]
        first = -window.low[dim] if include_pads else 0
        end = size + window.high[dim] if include_pads else size
        inside = ((position >= first) & (position < end)).sum(1)
        total = total[..., None] * np.maximum(inside, 1)
    return total
