"""Quantized operators, as ONNX defines them: integers are computed exactly, in i32.

A quantized tensor x stands for (x - zero point) * scale. Scales and zero points are single numbers,
one per index of an axis, or one per block of an axis.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.convolution import conv_attributes
from compiler.frontend.stretching import one_way
from compiler.frontend.values import Value
from dialects.graph.integer_contraction import ConvIntegerOp, MatmulIntegerOp
from dialects.graph.quantization import DequantizeLinearOp, QuantizeLinearOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr


# ---------------------------------------------------------------------- from and to floats
@onnx_op("DequantizeLinear")
def dequantize_linear(n: Node, x: Value, scale: Value, zero: Value | None = None) -> Value:
    parameters = _parameters(n, x, scale, zero)
    place = _place(n, x, parameters[0])
    to = n.element("output_dtype", scale.element)
    result = n(DequantizeLinearOp, x, *parameters, to=to, **place)
    if result.array is None:
        return result
    # the operation is kept, too, for passes that compute with the integers
    kept = n(DequantizeLinearOp, n.build.value(n.build.ssa(x)), *parameters, to=to, **place)
    return replace(kept, contents=result.array, node=n.name)


@onnx_op("QuantizeLinear")
def quantize_linear(n: Node, x: Value, scale: Value, zero: Value | None = None) -> Value:
    element = n.element("output_dtype", t.ui8) if zero is None else zero.element
    parameters = _parameters(n, x, scale, zero)
    precision = n.element("precision", t.f32) if n.integer("precision") else None
    saturate = n.flag("saturate", True) if t.is_narrow_float(element) else None
    return n(QuantizeLinearOp, x, *parameters, to=element, precision=precision,
             saturate=saturate, **_place(n, x, parameters[0]))


def _parameters(n: Node, x: Value, scale: Value, zero: Value | None) -> list[Value]:
    """The scale, and the zero point unless it is 0. If all are single numbers, they lose their
    dims.
    """
    given = [scale] if zero is None or _is_zero(zero) else [scale, zero]
    if not n.integer("block_size"):
        given = [p if p.type.static_shape is not None else _fitted(n, p, _axis_size(n, x))
                 for p in given]
    single = all(p.type.count.constant == 1 for p in given)
    return [p.reshape(()) if single else p for p in given]


def _axis_size(n: Node, x: Value) -> Expr:
    return x.shape[n.axis(n.integer("axis", 1), x.rank)]


def _fitted(n: Node, parameter: Value, size: Expr) -> Value:
    """A parameter whose only dim is of this size or, if a run decides that, of size 1."""
    return one_way(n.build, parameter, [size]) if parameter.rank == 1 else parameter


def _is_zero(zero: Value) -> bool:
    return zero.array is not None and not np.any(zero.array.astype(np.float32))


def _place(n: Node, x: Value, scale: Value) -> dict[str, int]:
    """The axis and the block size of the scales, if there is more than one scale."""
    if not scale.rank:
        return {}
    place, block = {"axis": n.axis(n.integer("axis", 1), x.rank)}, n.integer("block_size")
    return {**place, "block_size": block} if block else place


# ---------------------------------------------------------------------- products of integers
@onnx_op("MatMulInteger")
def matmul_integer(
    n: Node, a: Value, b: Value, zero_a: Value | None = None, zero_b: Value | None = None
) -> Value:
    zeros = [_zero(n, a, zero_a, a.rank - 2), _zero(n, b, zero_b, b.rank - 1)]
    return n(MatmulIntegerOp, a, b, *zeros)


@onnx_op("QLinearMatMul")
def qlinear_matmul(
    n: Node, a: Value, scale_a: Value, zero_a: Value, b: Value, scale_b: Value, zero_b: Value,
    scale: Value, zero: Value,
) -> Value:
    product = _narrow_product if t.is_narrow_float(a.element) else matmul_integer
    total = product(n, a, b, zero_a, zero_b)
    scales = _vector(n, a, scale_a, a.rank - 2) * _vector(n, b, scale_b, b.rank - 1)
    factor = scales / scale.reshape(())
    return _rescaled(n, total, factor, zero)


def _narrow_product(n: Node, a: Value, b: Value, zero_a: Value, zero_b: Value) -> Value:
    """A matrix product of 8-bit floats, computed in f32."""
    left, right = (x.cast(t.f32) - _zero(n, x, zero, axis).cast(t.f32)
                   for x, zero, axis in ((a, zero_a, a.rank - 2), (b, zero_b, b.rank - 1)))
    return left @ right


@onnx_op("ConvInteger")
def conv_integer(
    n: Node, x: Value, w: Value, zero_x: Value | None = None, zero_w: Value | None = None
) -> Value:
    zero = n.scalar(0, x) if zero_x is None or _is_zero(zero_x) else zero_x.reshape(())
    # Explicit pads need a known zero point.
    if zero.array is None and n.text("auto_pad").startswith("SAME"):
        x = x.cast(t.i16) - zero.cast(t.i16)
        zero = n.scalar(0, x)
    x, attributes = conv_attributes(n, x, w, 0.0 if zero.array is None else float(zero.array))
    filters = _zero(n, w, zero_w, w.rank - 1, w.shape[0])
    return n(ConvIntegerOp, x, w, zero, filters, **attributes)


@onnx_op("QLinearConv")
def qlinear_conv(
    n: Node, x: Value, scale_x: Value, zero_x: Value, w: Value, scale_w: Value, zero_w: Value,
    scale: Value, zero: Value, b: Value | None = None,
) -> Value:
    total = conv_integer(n, x, w, zero_x, zero_w)
    if b is not None:
        total = total + _vector(n, total, b, 1)
    factor = scale_x.reshape(()) * _vector(n, total, scale_w, 1) / scale.reshape(())
    return _rescaled(n, total, factor, zero)


def _zero(
    n: Node, x: Value, zero: Value | None, axis: int, size: Expr | None = None
) -> Value:
    """The zero point of x, or 0 if there is none. A single number has no dims."""
    if zero is None or _is_zero(zero):
        return n.scalar(0, x)
    return _vector(n, x, zero, axis, size)


def _vector(
    n: Node, x: Value, parameter: Value, axis: int, size: Expr | None = None
) -> Value:
    """A parameter shaped to broadcast against x.

    A single number has no dims, and a vector lies along the axis; its size is `size`, or else that
    of x's axis. Other parameters are unchanged.
    """
    if axis >= 0:
        parameter = _fitted(n, parameter, x.shape[axis] if size is None else size)
    if parameter.type.count.constant == 1:
        return parameter.reshape(())
    if parameter.rank != 1:
        return parameter
    return parameter.reshape([parameter.shape[0], *[1] * (x.rank - axis - 1)])


def _rescaled(n: Node, total: Value, factor: Value, zero: Value) -> Value:
    """round(total * factor) + zero, computed in f32 at least."""
    wide = factor if t.byte_width(factor.element) > 2 else factor.cast(t.f32)
    scaled = total.cast(wide.element) * wide
    zeros = [] if _is_zero(zero) else [zero.reshape(())]
    return n(QuantizeLinearOp, scaled, n.scalar(1.0, scaled), *zeros, to=zero.element)
