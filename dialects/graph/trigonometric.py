"""Trigonometric and hyperbolic functions and their inverses, besides sin, cos and tanh."""

from __future__ import annotations

import numpy as np

from dialects.definition import irdl_op_definition
from dialects.graph.unary import FloatOp
from dialects.strata.types import Array


@irdl_op_definition
class TanOp(FloatOp):
    """The tangent.

    Source: ONNX Tan.
    Example: %y = graph.tan %x : f32[n] given %x: f32[n]
    """

    name = "graph.tan"

    def compute(self, x: Array) -> Array:
        return np.tan(x)


@irdl_op_definition
class AsinOp(FloatOp):
    """The angle from -pi/2 to pi/2 whose sine is x; NaN outside -1 to 1.

    Source: ONNX Asin.
    Example: %y = graph.asin %x : f32[n] given %x: f32[n]
    """

    name = "graph.asin"

    def compute(self, x: Array) -> Array:
        return np.arcsin(x)


@irdl_op_definition
class AcosOp(FloatOp):
    """The angle from 0 to pi whose cosine is x; NaN outside -1 to 1.

    Source: ONNX Acos.
    Example: %y = graph.acos %x : f32[n] given %x: f32[n]
    """

    name = "graph.acos"

    def compute(self, x: Array) -> Array:
        return np.arccos(x)


@irdl_op_definition
class AtanOp(FloatOp):
    """The angle from -pi/2 to pi/2 whose tangent is x.

    Source: ONNX Atan.
    Example: %y = graph.atan %x : f32[n] given %x: f32[n]
    """

    name = "graph.atan"

    def compute(self, x: Array) -> Array:
        return np.arctan(x)


@irdl_op_definition
class SinhOp(FloatOp):
    """The hyperbolic sine, (e^x - e^-x) / 2.

    Source: ONNX Sinh.
    Example: %y = graph.sinh %x : f32[n] given %x: f32[n]
    """

    name = "graph.sinh"

    def compute(self, x: Array) -> Array:
        return np.sinh(x)


@irdl_op_definition
class CoshOp(FloatOp):
    """The hyperbolic cosine, (e^x + e^-x) / 2.

    Source: ONNX Cosh.
    Example: %y = graph.cosh %x : f32[n] given %x: f32[n]
    """

    name = "graph.cosh"

    def compute(self, x: Array) -> Array:
        return np.cosh(x)


@irdl_op_definition
class AsinhOp(FloatOp):
    """The number whose hyperbolic sine is x.

    Source: ONNX Asinh.
    Example: %y = graph.asinh %x : f32[n] given %x: f32[n]
    """

    name = "graph.asinh"

    def compute(self, x: Array) -> Array:
        return np.arcsinh(x)


@irdl_op_definition
class AcoshOp(FloatOp):
    """The number from 0 up whose hyperbolic cosine is x; NaN below 1.

    Source: ONNX Acosh.
    Example: %y = graph.acosh %x : f32[n] given %x: f32[n]
    """

    name = "graph.acosh"

    def compute(self, x: Array) -> Array:
        return np.arccosh(x)


@irdl_op_definition
class AtanhOp(FloatOp):
    """The number whose hyperbolic tangent is x; infinite at -1 and 1, NaN beyond.

    Source: ONNX Atanh.
    Example: %y = graph.atanh %x : f32[n] given %x: f32[n]
    """

    name = "graph.atanh"

    def compute(self, x: Array) -> Array:
        return np.arctanh(x)
