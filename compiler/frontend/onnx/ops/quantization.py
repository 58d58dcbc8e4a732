"""Quantized operators, by their definition: integers are computed exactly, in i32.

A quantized tensor x stands for (x - zero point) * scale. Scales and zero points are single numbers,
one per index of an axis, or one per block of an axis.
"""

from __future__ import annotations

import numpy as np
from xdsl.ir import Attribute

from compiler.frontend.onnx.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.convolution import conv
from compiler.frontend.onnx.ops.shape import broadcast
from compiler.frontend.onnx.ops.slicing import take
from compiler.frontend.onnx.values import Value
from dialects import types as t
from dialects.expr import Expr
from dialects.graph.activation import ClipOp
from dialects.graph.contraction import MatmulOp
from dialects.graph.elementwise import AddOp, DivOp, MulOp, SubOp
from dialects.graph.unary import RoundOp


# ---------------------------------------------------------------------- from and to floats
@onnx_op("DequantizeLinear")
def dequantize_linear(n: Node, x: Value, scale: Value, zero: Value | None = None) -> Value:
    centered = n.cast(x, t.i32)
    if zero is not None:
        centered = n(SubOp, centered, _along(n, x, n.cast(zero, t.i32)))
    result = n.element("output_dtype", scale.element)
    wide = n.cast(_along(n, x, scale), t.f32)
    return n.cast(n(MulOp, n.cast(centered, t.f32), wide), result)


@onnx_op("QuantizeLinear")
def quantize_linear(n: Node, x: Value, scale: Value, zero: Value | None = None) -> Value:
    """round(x / scale) + zero point, halves to even, as far as the result's type goes."""
    element = n.element("output_dtype", t.ui8) if zero is None else zero.element
    computed = n.element("precision", x.element if t.is_float(x.element) else scale.element)
    wide = n.cast(x, computed)
    quotient = n(DivOp, wide, n.cast(_along(n, x, scale), computed))
    return _saturated(n, quotient, None if zero is None else _along(n, x, zero), element)


def _saturated(n: Node, x: Value, zero: Value | None, element: Attribute) -> Value:
    """round(x) + zero point, within the bounds of an integer type."""
    if t.is_float(element) or element == t.i1:
        raise Fault(f"quantization to {element} is not supported")
    whole = n(RoundOp, x if t.byte_width(x.element) > 2 else n.cast(x, t.f32))
    if zero is not None:
        whole = n(AddOp, whole, n.cast(zero, whole.element))
    limits = np.iinfo(t.dtype_of(element))
    bounds = [n.scalar(float(bound), whole) for bound in (limits.min, limits.max)]
    return n.cast(n(ClipOp, whole, *bounds, has_min=True, has_max=True), element)


def _along(n: Node, x: Value, parameter: Value) -> Value:
    """A scale or zero point so that it broadcasts to x."""
    if parameter.type.count.constant == 1:
        return n.reshape(parameter, ())
    axis, block = n.axis(n.integer("axis", 1), x.rank), n.integer("block_size")
    if not block:
        if parameter.rank != 1:
            raise Fault(f"{parameter.type.short} is no scale or zero point of an axis")
        return n.reshape(parameter, [parameter.shape[0], *[1] * (x.rank - axis - 1)])
    if parameter.rank != x.rank:
        raise Fault(f"{parameter.type.short} has not the dims of {x.type.short}")
    shape = list(parameter.shape)
    apart = n.reshape(parameter, [*shape[:axis + 1], 1, *shape[axis + 1:]])
    repeated = broadcast(n, apart, [*shape[:axis + 1], Expr.of(block), *shape[axis + 1:]])
    whole = n.reshape(repeated, [*shape[:axis], shape[axis] * block, *shape[axis + 1:]])
    sizes = [x.shape[k] if k == axis else s for k, s in enumerate(whole.shape)]
    return take(n, whole, [Expr.of(0)] * x.rank, sizes, [1] * x.rank)


# ---------------------------------------------------------------------- products of integers
@onnx_op("MatMulInteger")
def matmul_integer(
    n: Node, a: Value, b: Value, zero_a: Value | None = None, zero_b: Value | None = None
) -> Value:
    return n(MatmulOp, _centered(n, a, zero_a, a.rank - 2), _centered(n, b, zero_b, b.rank - 1))


@onnx_op("QLinearMatMul")
def qlinear_matmul(
    n: Node, a: Value, scale_a: Value, zero_a: Value, b: Value, scale_b: Value, zero_b: Value,
    scale: Value, zero: Value,
) -> Value:
    total = matmul_integer(n, a, b, zero_a, zero_b)
    scales = n(MulOp, _vector(n, a, scale_a, a.rank - 2), _vector(n, b, scale_b, b.rank - 1))
    factor = n(DivOp, scales, n.reshape(scale, ()))
    return _rescaled(n, total, factor, zero)


@onnx_op("ConvInteger")
def conv_integer(
    n: Node, x: Value, w: Value, zero_x: Value | None = None, zero_w: Value | None = None
) -> Value:
    return conv(n, _centered(n, x, zero_x, 1), _centered(n, w, zero_w, 0), None)


@onnx_op("QLinearConv")
def qlinear_conv(
    n: Node, x: Value, scale_x: Value, zero_x: Value, w: Value, scale_w: Value, zero_w: Value,
    scale: Value, zero: Value, b: Value | None = None,
) -> Value:
    total = conv(n, _centered(n, x, zero_x, 1), _centered(n, w, zero_w, 0), b)
    factor = n(DivOp, n(MulOp, n.reshape(scale_x, ()), _vector(n, x, scale_w, 1)),
               n.reshape(scale, ()))
    return _rescaled(n, total, factor, zero)


def _centered(n: Node, x: Value, zero: Value | None, axis: int) -> Value:
    """x less its zero point, in i32; the zero point may be one per index of an axis."""
    wide = n.cast(x, t.i32)
    return wide if zero is None else n(SubOp, wide, _vector(n, x, n.cast(zero, t.i32), axis))


def _vector(n: Node, x: Value, parameter: Value, axis: int) -> Value:
    """Single numbers without dims, vectors along an axis of x, others as they are."""
    if parameter.type.count.constant == 1:
        return n.reshape(parameter, ())
    if parameter.rank != 1:
        return parameter
    return n.reshape(parameter, [parameter.shape[0], *[1] * (x.rank - axis - 1)])


def _rescaled(n: Node, total: Value, factor: Value, zero: Value) -> Value:
    wide = factor if t.byte_width(factor.element) > 2 else n.cast(factor, t.f32)
    scaled = n(MulOp, n.cast(total, wide.element), wide)
    return _saturated(n, scaled, n.reshape(zero, ()), zero.element)
