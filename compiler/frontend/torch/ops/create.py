"""Tensors made from sizes and numbers alone."""

from __future__ import annotations

import math

import numpy as np

from compiler.frontend.onnx.faults import Fault
from compiler.frontend.onnx.ops.shape import at_least_zero
from compiler.frontend.onnx.values import Value
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import Operand, aten_op
from compiler.frontend.torch.ops.elementwise import operand
from dialects import types as t
from dialects.expr import Expr
from dialects.graph.constant import RangeOp
from dialects.graph.elementwise import AddOp
from dialects.graph.logic import EqualOp, GreaterEqualOp, LessEqualOp, WhereOp
from dialects.types import is_float


def filled(n: Node, value: Operand) -> Value:
    """A tensor of the result's type with one value everywhere."""
    return n.broadcast(operand(n, value, n.element), n.shape)


@aten_op("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default",
         "aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default",
         "aten.empty_permuted.default", "aten.empty_strided.default",
         "aten.new_empty_strided.default", "aten.zero.default")
def zeros(n: Node) -> Value:
    """Memory that PyTorch leaves as it is counts as zeros."""
    return filled(n, 0)


@aten_op("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(n: Node) -> Value:
    return filled(n, 1)


@aten_op("aten.full.default", "aten.full_like.default", "aten.new_full.default",
         "aten.fill.Scalar", "aten.fill.Tensor")
def full(n: Node, shape_or_tensor: object, *rest: Operand) -> Value:
    """new_full takes a tensor and a shape before the value."""
    return filled(n, rest[1] if n.op.startswith("aten.new_full") else rest[0])


@aten_op("aten.scalar_tensor.default")
def scalar_tensor(n: Node, value: Operand) -> Value:
    return operand(n, value, n.element)


@aten_op("aten.arange.default")
def arange(n: Node, end: Operand) -> Value:
    return arange_step(n, 0, end, 1)


@aten_op("aten.arange.start")
def arange_start(n: Node, start: Operand, end: Operand) -> Value:
    return arange_step(n, start, end, 1)


@aten_op("aten.arange.start_step")
def arange_step(n: Node, start: Operand, end: Operand, step: Operand = 1) -> Value:
    first, last, stride = (_number(v) for v in (start, end, step))
    if isinstance(stride, Expr):
        raise Fault("its step is a size")
    if any(isinstance(v, float) for v in (first, last, stride)):
        numbers = [float(v.constant if isinstance(v, Expr) and v.constant is not None else v)
                   for v in (first, last) if not isinstance(v, Expr) or v.constant is not None]
        if len(numbers) < 2:
            raise Fault("its limits are fractions and sizes")
        count = max(math.ceil((numbers[1] - numbers[0]) / stride), 0)
        return n.constant((numbers[0] + np.arange(count) * stride).astype(n.result.dtype))
    count = (Expr.of(last) - first) if stride > 0 else (Expr.of(first) - last)
    count = at_least_zero(count.ceildiv(abs(int(stride))))
    return n(RangeOp, start=Expr.of(first), step=int(stride), count=count, to=n.element)


def _number(value: Operand) -> Expr | float:
    if isinstance(value, Value):
        raise Fault("its limits are known only at run time")
    return value


@aten_op("aten.linspace.default")
def linspace(n: Node, start: float, end: float, steps: int) -> Value:
    numbers = [v for v in (start, end, steps) if isinstance(v, (int, float))]
    if len(numbers) < 3:
        raise Fault("its limits are sizes", "only numbers are supported")
    return n.constant(np.linspace(start, end, int(steps)).astype(n.result.dtype))


@aten_op("aten.eye.default", "aten.eye.m")
def eye(n: Node) -> Value:
    rows, columns = _positions(n, n.result)
    return n.cast(n(EqualOp, rows, columns), n.element)


# ---------------------------------------------------------------------- triangles
@aten_op("aten.tril.default")
def tril(n: Node, x: Value, diagonal: int) -> Value:
    return _triangle(n, x, diagonal, upper=False)


@aten_op("aten.triu.default")
def triu(n: Node, x: Value, diagonal: int) -> Value:
    return _triangle(n, x, diagonal, upper=True)


def _triangle(n: Node, x: Value, diagonal: Operand, upper: bool) -> Value:
    """The elements on one side of a diagonal, zeros elsewhere."""
    rows, columns = _positions(n, x.type)
    border = n(AddOp, rows, operand(n, diagonal, t.i64)) if diagonal != 0 else rows
    inside = n(GreaterEqualOp if upper else LessEqualOp, columns, border)
    return n(WhereOp, inside, x, n.scalar(0.0 if is_float(x.element) else 0, x.element))


def _positions(n: Node, matrix: t.TensorType) -> tuple[Value, Value]:
    """The numbers of rows, as a column, and of columns."""
    height, width = matrix.shape[-2:]
    return n.reshape(n.range(height), [height, 1]), n.range(width)
