"""Products of quantized tensors: exact integer sums, with zero points subtracted.

Both operators are composite, so that a target with suitable instructions may implement them
directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, opt_prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, Build, CompositeOp, ShapeError, ints_of
from dialects.graph.composite import cast, reshaped
from dialects.graph.constant import ConstantOp
from dialects.graph.contraction import MatmulOp
from dialects.graph.convolution import ConvOp, convolve
from dialects.graph.elementwise import MulOp, SubOp
from dialects.graph.inference import INTEGERS, check_kind, check_rank, cited, same_size
from dialects.graph.logic import WhereOp
from dialects.graph.shape import BroadcastOp, PadOp, check_broadcasts_to
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.products import matmul
from dialects.strata.types import (
    Array,
    ExprAttr,
    LiteralAttr,
    SizesAttr,
    TensorType,
    byte_width,
    i1,
    i8,
    i16,
    i32,
    tensor_type,
)
from dialects.symbolic.expr import Size
from dialects.symbolic.size_products import product


def _check_zero(x: TensorType, zero: TensorType) -> None:
    check_kind(INTEGERS, x.element, "C1")
    if byte_width(x.element) > 2:
        raise ShapeError(f"C1: elements of {x.short} have more than 16 bits")
    if zero.element != x.element:
        raise ShapeError(f"C1: the zero point of {x.short} is {zero.short}")


@irdl_op_definition
class MatmulIntegerOp(CompositeOp):
    """The matrix product of a - zero_a and b - zero_b, computed in i32 with wrap-around.

    Constraints: (C1) elements are integers of up to 16 bits, and a zero point has the element type
    of its operand; (C2) a and b satisfy the constraints of matmul; (C3) a zero point broadcasts to
    its operand and is constant along the summed dim.
    Source: ONNX MatMulInteger.
    Example: %c = graph.matmul_integer %a, %b, %za, %zb : i32[n, 5, 7]
        given %a: ui8[n, 5, 64], %b: i8[64, 7], %za: ui8[], %zb: i8[7]
    """

    name = "graph.matmul_integer"
    KEPT_DIMS: ClassVar[int | None] = 2
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    zero_a = operand_def(TensorType)
    zero_b = operand_def(TensorType)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        a, b, zero_a, zero_b = types
        for x, zero, place in ((a, zero_a, 1), (b, zero_b, min(2, b.rank))):
            _check_zero(x, zero)
            check_broadcasts_to(zero, x.shape, ("C3", "C3"))
            if zero.rank >= place and zero.shape[-place].constant != 1:
                raise ShapeError(f"C3: {zero.short} differs along the summed dim of {x.short}")
        with cited("C2"):
            return MatmulOp.infer([a, b], {"to": i32})

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        a, b, zero_a, zero_b = (x.astype(np.int32) for x in operands)
        return matmul(a - zero_a, b - zero_b, a.dtype)

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        b = centered(build, self.b, self.zero_b)
        if not self._has_constant_sums():
            a = centered(build, self.a, self.zero_a)
            return [build(MatmulOp, a, b, to=i32)]
        # sum((a - z)*b) == sum(a*b) - z*sum(b), where the last sum is constant-folded
        total = build(MatmulOp, self.a, b, to=i32)
        sums = build(MatmulOp, _ones(build, [1, tensor_type(b).shape[-2]]), b, to=i32)
        return [build(SubOp, total, build(MulOp, cast(build, self.zero_a, i32), sums))]

    def _has_constant_sums(self) -> bool:
        known = _is_constant(self.b) and _is_constant(self.zero_b)
        matrices = tensor_type(self.a).rank > 1 and tensor_type(self.b).rank > 1
        return known and matrices and not is_zero(self.zero_a)


@irdl_op_definition
class ConvIntegerOp(CompositeOp):
    """The convolution of x - zero_x with w - zero_w, computed in i32 with wrap-around.

    The padding of x has the value zero_x. The attributes are those of conv.
    Constraints: (C1) elements are integers of up to 16 bits, and a zero point has the element type
    of its operand; (C2) x and w satisfy the constraints of conv; (C3) zero_x has no dims, and
    zero_w has either none or one, of the size of w's first dim.
    Source: ONNX ConvInteger.
    Example: %y = graph.conv_integer %x, %w, %zx, %zw {pads = [1, 1]} : i32[n, 4, 9]
        given %x: ui8[n, 3, 9], %w: i8[4, 3, 3], %zx: ui8[], %zw: i8[4]
    """

    name = "graph.conv_integer"
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    zero_x = operand_def(TensorType)
    zero_w = operand_def(TensorType)
    strides = opt_prop_def(SizesAttr)
    dilations = opt_prop_def(SizesAttr)
    pads = opt_prop_def(SizesAttr)
    group = opt_prop_def(ExprAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        x, w, zero_x, zero_w = types
        _check_zero(x, zero_x)
        _check_zero(w, zero_w)
        check_rank(zero_x, 0, "the zero point of x", "C3")
        if zero_w.rank:
            check_rank(zero_w, 1, "the zero point of w", "C3")
            same_size(zero_w.shape[0], w.shape[0], "C3: zero points and channels differ")
        with cited("C2"):
            return ConvOp.infer([x, w], {**attributes, "to": i32})

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, w, zero_x, zero_w = (x.astype(np.int32) for x in operands)
        w = w - zero_w.reshape(-1, *[1] * (w.ndim - 1))
        shape = context.shape(self.result_tensors[0])
        return convolve(x - zero_x, w, self.properties, shape, x.dtype)

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        rank = tensor_type(self.w).rank
        w = centered(build, self.w, _apart(build, self.zero_w, rank - 1))
        known = _is_constant(self.w) and _is_constant(self.zero_w)
        if not known or is_zero(self.zero_x):
            x = centered(build, self.x, self.zero_x)
            return [build(ConvOp, x, w, **self.properties, to=i32)]
        # sum((x - z)*w) == sum(x*w) - z*sum(w) if x is padded with z; the last sum is constant
        attributes = {k: v for k, v in self.properties.items() if k != "pads"}
        pads = ints_of(self.properties, "pads")
        total = build(ConvOp, surrounded(build, self.x, self.zero_x, pads), w, **attributes, to=i32)
        flat = reshaped(build, w, [tensor_type(w).shape[0], product(tensor_type(w).shape[1:])])
        sums = build(MatmulOp, flat, _ones(build, tensor_type(flat).shape[1:]), to=i32)
        share = build(MulOp, cast(build, self.zero_x, i32), _apart(build, sums, rank - 2))
        return [build(SubOp, total, share)]


# ---------------------------------------------------------------------- shared
def centered(build: Build, x: SSAValue, zero: SSAValue) -> SSAValue:
    """x minus its zero point, in integers of twice the width; x itself if the zero point is 0."""
    if is_zero(zero):
        return x
    wide = i16 if byte_width(tensor_type(x).element) == 1 else i32
    return build(SubOp, cast(build, x, wide), cast(build, zero, wide))


def surrounded(build: Build, x: SSAValue, zero: SSAValue, pads: Sequence[int]) -> SSAValue:
    """x [n, c, s...] padded with its zero point. `pads`: all lows, then all highs."""
    shape = tensor_type(x).shape
    if not any(pads):
        return x
    low, high = [0, 0, *pads[:len(shape) - 2]], [0, 0, *pads[len(shape) - 2:]]
    numbers = _numbers(zero) or (0,)

    def padded(x: SSAValue, value: float) -> SSAValue:
        return build(PadOp, x, low=low, high=high, mode="constant", value=value)

    padded_x = padded(x, float(numbers[0]))
    if _is_constant(zero):
        return padded_x
    true = build.insert(ConstantOp.scalar(True, i1))
    inside = padded(build(BroadcastOp, true, shape=[1, 1, *shape[2:]]), 0.0)
    return build(WhereOp, inside, padded_x, zero)


def is_zero(value: SSAValue) -> bool:
    """Whether a value is a literal constant of zeros."""
    numbers = _numbers(value)
    return numbers is not None and not any(numbers)


def _numbers(value: SSAValue) -> tuple[int, ...] | None:
    """The elements of a literal constant; None for other values."""
    constant = value.owner
    if isinstance(constant, ConstantOp) and isinstance(constant.value, LiteralAttr):
        return constant.value.data
    return None


def _is_constant(value: SSAValue) -> bool:
    return isinstance(value.owner, ConstantOp)


def _ones(build: Build, shape: Sequence[Size]) -> SSAValue:
    one = build.insert(ConstantOp.scalar(1, i8)).results[0]
    return build(BroadcastOp, one, shape=list(shape))


def _apart(build: Build, value: SSAValue, count: int) -> SSAValue:
    """A vector with `count` trailing dims of size 1; a scalar is unchanged."""
    shape = tensor_type(value).shape
    return reshaped(build, value, [*shape, *[1] * count]) if shape else value
