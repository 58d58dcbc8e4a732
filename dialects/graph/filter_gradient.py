"""The gradient of a convolution by its filter, over any number of spatial dims, with groups."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, Build, CompositeOp, ShapeError, int_of, ints_of
from dialects.graph.composite import reshaped
from dialects.graph.contraction import MatmulOp
from dialects.graph.convolution import ConvOp
from dialects.graph.inference import (
    certain_sign,
    check_count,
    check_rank,
    product_element,
    same_size,
)
from dialects.graph.shape import ConcatOp, PadOp, SliceOp, TransposeOp
from dialects.graph.window import Window
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import rounded, widen
from dialects.semantics.products import matmul
from dialects.strata.types import (
    Array,
    ExprAttr,
    SizesAttr,
    TensorType,
    dtype_of,
    tensor,
    tensor_type,
    wide_element,
)
from dialects.symbolic.expr import Expr, Size

WIDE = 16
"""The number of channels from which a product for each tap pays."""


@irdl_op_definition
class ConvFilterGradientOp(CompositeOp):
    """The gradient of conv by its filter: x [n, c, s...], the gradient y [n, co, p...] of a result.

    w[o, c', k] = sum over n, p of y[n, o, p] * x[n, g*(c/group) + c', p*stride + k*dilation - low],
    where g is o's group and x is 0 outside. `kernel` holds the filter's spatial sizes. f16 and bf16
    are accumulated in f32 and rounded once, or with `to` = f32 not at all.
    Constraints: (C1) elements are numbers of equal types; with `to` = f32 they are equal
    half-precision floats; (C2) x has at least one spatial dim, y the same rank; (C3) kernel,
    strides and dilations are positive, pads not negative; (C4) group divides c and co; (C5) the
    first dims are equal; (C6) no dim of y has more positions than windows fit into the padded x.
    Source: PyTorch convolution_backward.
    Example: %w = graph.conv_filter_gradient %x, %y {kernel = [3, 2], strides = [2, 1],
        pads = [1, 0, 1, 0]} : f32[8, 3, 3, 2] given %x: f32[n, 3, 11, 8], %y: f32[n, 8, 6, 7]
    """

    name = "graph.conv_filter_gradient"
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    kernel = prop_def(SizesAttr)
    strides = opt_prop_def(SizesAttr)
    dilations = opt_prop_def(SizesAttr)
    pads = opt_prop_def(SizesAttr)
    group = opt_prop_def(ExprAttr)
    to = opt_prop_def(Attribute)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        check_count(types, 2, 2)
        element = product_element(types, attributes, "C1")
        x, y = types
        if x.rank < 3:
            raise ShapeError(f"C2: {x.short} has no spatial dims")
        check_rank(y, x.rank, "the gradient", "C2")
        window = window_of(attributes, x.rank - 2)
        group = int_of(attributes, "group", 1)
        for channels in (x.shape[1], y.shape[1]):
            if group < 1 or (channels % group).constant not in (0, None):
                raise ShapeError(f"C4: group {group} does not divide {channels} channels")
        same_size(x.shape[0], y.shape[0], f"C5: batches of {x.short} and {y.short} differ")
        _check_positions(window, x, y)
        return [tensor(element, (y.shape[1], x.shape[1] // group, *window.kernel))]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, y = map(widen, operands)
        type_, window = self.result_tensors[0], window_of(self.properties, x.ndim - 2)
        counts, group = y.shape[2:], int_of(self.properties, "group", 1)
        padded, dtype = window.padded(x, counts, 0.0), dtype_of(wide_element(type_.element))
        rows = _by_channel(y, group)  # [g, co/g, n*p...]
        with np.errstate(all="ignore"):
            taps = [matmul(rows, _by_channel(window.at(padded, offset, counts), group).swapaxes(
                1, 2), dtype) for offset in window.offsets()]
        found = np.stack(taps, axis=-1)  # [g, co/g, c/g, k]
        return rounded(found.reshape(context.shape(type_)), type_)

    # ------------------------------------------------------------------ the definition
    def may_stay(self, channels: int) -> bool:
        """Not with open sizes, with which accesses of a single product could not be proven, nor
        with fewer result channels in a group than `channels`."""
        made = tensor_type(self.y).shape[1].constant or 0
        return made >= channels * self._group and all(
            s.constant is not None for t in self.operand_tensors for s in t.shape)

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        """A product for each tap; one convolution for few channels or groups, if it has taps."""
        shape, y = self.result_tensors[0].shape, tensor_type(self.y)
        few = any(s.constant is not None and s.constant < WIDE for s in shape[:2])
        known = all(s.constant for s in y.shape[2:])
        if known and (few or self._group > 1):
            return [self._at_once(build)]
        return [self._by_taps(build)]

    @property
    def _group(self) -> int:
        return int_of(self.properties, "group", 1)

    @property
    def _to(self) -> Attributes:
        return {} if self.to is None else {"to": self.to}

    def _at_once(self, build: Build) -> SSAValue:
        """A convolution of x by y, with strides and dilations exchanged, and batch as channels."""
        x, window = tensor_type(self.x), window_of(self.properties, tensor_type(self.x).rank - 2)
        count, shape = x.shape[1] // self._group, self.result_tensors[0].shape
        others = list(range(3, x.rank + 1))
        rows = reshaped(build, self.x, [x.shape[0], self._group, count, *x.shape[2:]])
        rows = build(TransposeOp, rows, perm=[2, 1, 0, *others])
        rows = reshaped(build, rows, [count, x.shape[0] * self._group, *x.shape[2:]])
        found = build(
            ConvOp, rows, _swapped(build, self.y), strides=window.dilations, group=self._group,
            dilations=window.strides, pads=[*window.low, *window.high], **self._to)
        sizes = [*tensor_type(found).shape[:2], *shape[2:]]
        if sizes != [*tensor_type(found).shape]:
            found = build(SliceOp, found, starts=[0] * len(sizes), sizes=sizes,
                          steps=[1] * len(sizes))
        return _swapped(build, found)

    def _by_taps(self, build: Build) -> SSAValue:
        x, window = self.x, window_of(self.properties, tensor_type(self.x).rank - 2)
        if any((*window.low, *window.high)):
            x = build(PadOp, x, low=[0, 0, *window.low], high=[0, 0, *window.high],
                      mode="constant", value=0.0)
        rows = self._matrix(build, self.y)
        taps = [self._tap(build, rows, x, window, offset) for offset in window.offsets()]
        whole = taps[0] if len(taps) == 1 else build(
            ConcatOp, *taps, axis=tensor_type(taps[0]).rank - 1)
        return reshaped(build, whole, self.result_tensors[0].shape)

    def _tap(
        self, build: Build, rows: SSAValue, x: SSAValue, window: Window, offset: Sequence[int]
    ) -> SSAValue:
        """The product [g, co/g, c/g, 1] for one tap; without g if there is one group."""
        type_, counts = tensor_type(x), tensor_type(self.y).shape[2:]
        starts = [0, 0, *(k * d for k, d in zip(offset, window.dilations, strict=True))]
        met = build(SliceOp, x, starts=starts, sizes=[*type_.shape[:2], *counts],
                    steps=[1, 1, *window.strides])
        columns = self._matrix(build, met)
        rank = tensor_type(columns).rank
        columns = build(TransposeOp, columns, perm=[*range(rank - 2), rank - 1, rank - 2])
        made = build(MatmulOp, rows, columns, **self._to)
        return reshaped(build, made, [*tensor_type(made).shape, 1])

    def _matrix(self, build: Build, x: SSAValue) -> SSAValue:
        """x [n, c, ...] as [g, c/g, n * ...]; without g if there is one group."""
        type_ = tensor_type(x)
        count = type_.count // type_.shape[1]
        groups = [self._group, type_.shape[1] // self._group] if self._group > 1 else [
            type_.shape[1]]
        return reshaped(build, _swapped(build, x), [*groups, count])


def window_of(attributes: Attributes, rank: int) -> Window:
    """The window of the filter. Raises ShapeError that cites C3 if it does not fit."""
    kernel = ints_of(attributes, "kernel")
    if len(kernel) != rank:
        raise ShapeError(f"C3: kernel {list(kernel)} must be {rank} numbers from 1 up")
    return Window.of(kernel, attributes, "C3")


def _check_positions(window: Window, x: TensorType, y: TensorType) -> None:
    counts: Sequence[Expr] = window.counts(x.shape[2:], "C6")
    for dim, (count, size) in enumerate(zip(counts, y.shape[2:], strict=True)):
        if certain_sign(count - size) == -1:
            raise ShapeError(f"C6: {count} windows fit into spatial dim {dim} of {x.short}, and "
                             f"{y.short} has {size} positions")


def _by_channel(x: Array, group: int) -> Array:
    """x [n, c, ...] as [g, c/g, n * ...]."""
    own, count = x.shape[1] // group, len(x) * prod(x.shape[2:])
    return x.swapaxes(0, 1).reshape(group, own, count)


def _swapped(build: Build, x: SSAValue) -> SSAValue:
    """x with its first two dims exchanged."""
    sizes: list[Size] = [1, 0, *range(2, tensor_type(x).rank)]
    return build(TransposeOp, x, perm=sizes)
