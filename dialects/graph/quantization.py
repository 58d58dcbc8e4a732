"""Quantized tensors: numbers stored as short integers with a scale and a zero point.

Both operators are composite. They are decomposed unless a pass turns them into integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import operand_def, opt_operand_def, opt_prop_def, prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, Build, CompositeOp, ShapeError, flag_of, int_of
from dialects.graph.composite import cast, reshaped, scalar, wide, wide_type
from dialects.graph.elementwise import AddOp, DivOp, MinOp, MulOp, SubOp
from dialects.graph.inference import check_axis, check_count, check_rank, same_size
from dialects.graph.logic import GreaterOp, WhereOp
from dialects.graph.shape import BroadcastOp, SliceOp
from dialects.graph.unary import CastOp, RoundOp
from dialects.semantics.carriers import as_array
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import rounded, widen
from dialects.strata.types import (
    Array,
    ExprAttr,
    TensorType,
    bit_width,
    dtype_of,
    f32,
    i1,
    i32,
    is_float,
    is_narrow_float,
    is_unsigned,
    largest,
    tensor,
    tensor_type,
)


class LinearOp(CompositeOp):
    """The common part of both operators: the scale, the zero point, and how they map to x.

    They are scalars, or have one entry per index of `axis`, or one per `block_size` indices.
    """

    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero = opt_operand_def(TensorType)
    axis = opt_prop_def(ExprAttr)
    block_size = opt_prop_def(ExprAttr)

    def along(self, build: Build, parameter: SSAValue) -> SSAValue:
        """A scale or zero point, reshaped so that it broadcasts to x."""
        type_, x = tensor_type(parameter), tensor_type(self.x)
        axis, block = _place(self.properties)
        if type_.rank == 0 or (not block and axis == x.rank - 1):
            return parameter
        if not block:
            return reshaped(build, parameter, [type_.shape[0], *[1] * (x.rank - axis - 1)])
        outer, inner = list(type_.shape[:axis]), list(type_.shape[axis + 1:])
        count = type_.shape[axis]
        separated = reshaped(build, parameter, [*outer, count, 1, *inner])
        repeated = build(BroadcastOp, separated, shape=[*outer, count, block, *inner])
        whole = reshaped(build, repeated, [*outer, count * block, *inner])
        return build(SliceOp, whole, starts=[0] * x.rank, steps=[1] * x.rank,
                     sizes=[*outer, x.shape[axis], *inner])

    def spread(self, parameter: Array, x: Array) -> Array:
        """The same for arrays."""
        axis, block = _place(self.properties)
        if parameter.ndim == 0:
            return parameter
        if not block:
            return parameter.reshape(-1, *[1] * (x.ndim - axis - 1))
        return parameter.repeat(block, axis).take(range(x.shape[axis]), axis)


def _place(attributes: Attributes) -> tuple[int, int]:
    """The axis of scales and zero points, and the size of their blocks, 0 for none."""
    return int_of(attributes, "axis", 0), int_of(attributes, "block_size", 0)


def _check_parameters(
    types: Sequence[TensorType], quantized: Attribute, attributes: Attributes
) -> None:
    """C1 and C2. `quantized`: the element type of the quantized tensor."""
    check_count(types, 2, 3)
    if quantized == i1 or (is_float(quantized) and not is_narrow_float(quantized)):
        raise ShapeError(f"C1: {quantized} is neither an integer nor a narrow float")
    if not is_float(types[1].element):
        raise ShapeError(f"C1: scales are floats, not {types[1].short}")
    if any(t.element != quantized for t in types[2:]):
        raise ShapeError(f"C1: the zero point is {types[2].short}, not {quantized}")
    for parameter in types[1:]:
        if parameter.rank:
            _check_lies_along(types[0], parameter, *_place(attributes))


def _check_lies_along(x: TensorType, parameter: TensorType, axis: int, block: int) -> None:
    check_axis(axis, x.rank, "C2")
    check_rank(parameter, x.rank if block else 1, "a scale or zero point", "C2")
    message = f"C2: {parameter.short} does not fit axis {axis} of {x.short}"
    extents = list(x.shape) if block else [x.shape[axis]]
    if block:
        extents[axis] = extents[axis].ceildiv(block)
    for size, extent in zip(parameter.shape, extents, strict=True):
        same_size(size, extent, message)


@irdl_op_definition
class QuantizeLinearOp(LinearOp):
    """round(x / scale) + zero, with ties to even, saturated to the integer type `to`.

    NaN becomes the smallest number of `to`. The quotient is computed in `precision` if it is
    given, otherwise in x's element type if that is a float, otherwise in the scale's. For a narrow
    float `to`, the quotient is rounded once, and with `saturate` it stays finite.
    Constraints: (C1) `to` is an integer or a narrow float, and the zero point's element type;
    scales are floats; (C2) scale and zero point have no dims, or one dim of the size of x's axis,
    or with blocks the dims of x, with one entry per block along the axis.
    Source: ONNX QuantizeLinear.
    Example: %y = graph.quantize_linear %x, %s, %z {to = ui8} : ui8[n, 3]
        given %x: f32[n, 3], %s: f32[], %z: ui8[]
    """

    name = "graph.quantize_linear"
    to = prop_def(Attribute)
    precision = opt_prop_def(Attribute)
    saturate = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        _check_parameters(types, attributes["to"], attributes)
        return [tensor(attributes["to"], types[0].shape)]

    @property
    def computed(self) -> Attribute:
        """The element type of the quotient."""
        if self.precision is not None:
            return self.precision
        own = tensor_type(self.x).element
        return own if is_float(own) else tensor_type(self.scale).element

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, type_, dtype = operands[0], self.result_tensors[0], dtype_of(self.computed)
        with np.errstate(all="ignore"):
            scale = self.spread(operands[1].astype(dtype), x)
            ratio = widen(x.astype(dtype, copy=False)) / widen(scale)
            quotient = as_array(widen(ratio.astype(dtype, copy=False)))
            if is_float(self.to):
                return rounded(self._finite(quotient), type_)
            low, high = integer_limits(self.to)
            zero = self.spread(operands[2].astype(quotient.dtype), x) if len(operands) > 2 else 0
            if self.limits_quotients:
                low, high = low - zero, high - zero
            whole = np.rint(quotient, out=quotient)
            if not self.limits_quotients:
                whole += zero
            whole = np.minimum(np.fmax(whole, low, out=whole), high, out=whole)
            if self.limits_quotients:
                whole += zero
            return rounded(whole.astype(np.int64 if bit_width(self.to) > 16 else np.int32), type_)

    @property
    def limits_quotients(self) -> bool:
        """Whether the zero point is added to what is limited, and not the other way round: equal
        for numbers, but not for residues (docs/ring.md)."""
        return wide_type(self.computed) == f32 and bit_width(self.to) <= 16 and (
            self.zero is None or tensor_type(self.zero).rank == 0)

    def _finite(self, x: Array) -> Array:
        limit = largest(self.to)
        return np.clip(x, -limit, limit) if flag_of(self.properties, "saturate") else x

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        computed = self.computed
        scale = self.along(build, cast(build, self.scale, computed))
        quotient = build(DivOp, cast(build, self.x, computed), scale)
        if is_float(self.to):
            return [build(CastOp, wide(build, quotient), to=self.to, saturate=self.saturate)]
        quotient = wide(build, quotient)
        if self.limits_quotients:
            return [self._within_limits(build, quotient)]
        whole = build(RoundOp, quotient)
        if self.zero is not None:
            zero = cast(build, self.zero, tensor_type(whole).element)
            whole = build(AddOp, whole, self.along(build, zero))
        bounds = [scalar(build, float(limit), whole) for limit in integer_limits(self.to)]
        whole = _limited(build, whole, *bounds)
        return [cast(build, whole, self.to)]

    def _within_limits(self, build: Build, quotient: SSAValue) -> SSAValue:
        """round(limited(quotient)) + zero, so that rounding is part of the conversion to i32."""
        bounds = [scalar(build, float(limit), quotient) for limit in integer_limits(self.to)]
        if self.zero is not None:
            zero = cast(build, self.zero, f32)
            bounds = [build(SubOp, bound, zero) for bound in bounds]
        whole = build(RoundOp, _limited(build, quotient, *bounds))
        codes = cast(build, whole, i32)
        if self.zero is not None:
            codes = build(AddOp, codes, cast(build, self.zero, i32))
        return cast(build, codes, self.to)


def _limited(build: Build, x: SSAValue, low: SSAValue, high: SSAValue) -> SSAValue:
    """min(max(x, low), high), and low for NaN."""
    return build(MinOp, build(WhereOp, build(GreaterOp, x, low), x, low), high)


@irdl_op_definition
class DequantizeLinearOp(LinearOp):
    """(x - zero) * scale, the real numbers that x represents, rounded to `to`.

    The difference of integers is computed exactly in i32 and multiplied by the scale in f32.
    Constraints: (C1) x is an integer or a narrow float with the zero point's element type; scales
    are floats; (C2) as for quantize_linear; (C3) `to` is a float.
    Source: ONNX DequantizeLinear.
    Example: %y = graph.dequantize_linear %x, %s {axis = 1, to = f32} : f32[n, 3]
        given %x: i8[n, 3], %s: f32[3]
    """

    name = "graph.dequantize_linear"
    to = prop_def(Attribute)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        _check_parameters(types, types[0].element, attributes)
        if not is_float(attributes["to"]):
            raise ShapeError(f"C3: {attributes['to']} is not a float")
        return [tensor(attributes["to"], types[0].shape)]

    @property
    def centered(self) -> Attribute:
        """The element type of x minus its zero point."""
        return f32 if is_float(tensor_type(self.x).element) else i32

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        codes, scale, *zeros = operands
        x = widen(codes).astype(dtype_of(self.centered))
        for zero in zeros:
            x = x - self.spread(widen(zero).astype(x.dtype), x)
        with np.errstate(all="ignore"):
            factor = self.spread(scale.astype(np.float32), x)
            return rounded(x.astype(np.float32) * factor, self.result_tensors[0])

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        x = self.x
        if self.zero is not None:
            zero = self.along(build, cast(build, self.zero, self.centered))
            x = build(SubOp, cast(build, x, self.centered), zero)
        scale = self.along(build, cast(build, self.scale, f32))
        return [cast(build, build(MulOp, cast(build, x, f32), scale), self.to)]


def integer_limits(element: Attribute) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    bits = bit_width(element)
    return (0, 2**bits - 1) if is_unsigned(element) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
