"""Tensors that are computed from sizes and numbers alone, and triangular matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.node import fixed
from compiler.frontend.slices import at_least_zero
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import Operand, aten_op
from compiler.frontend.torch.ops.elementwise import operand
from compiler.frontend.values import Value
from dialects.graph.logic import GreaterEqualOp, LessEqualOp
from dialects.strata import types as t
from dialects.strata.types import is_float
from dialects.symbolic.expr import Expr, Size


def filled(n: Node, value: Operand) -> Value:
    """A tensor of the result's type, filled with one value."""
    return operand(n, value, n.element).broadcast(n.shape)


@aten_op("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default",
         "aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default",
         "aten.empty_permuted.default", "aten.zero.default")
def zeros(n: Node) -> Value:
    """Memory that PyTorch leaves uninitialized is filled with zeros as well."""
    return filled(n, 0)


@aten_op("aten.empty_strided.default", "aten.new_empty_strided.default")
def empty_strided(n: Node, *given: object) -> Value:
    """Raises Fault for elements that share memory, to which no result can be copied."""
    strides = cast("Sequence[Size]", given[1 if n.op == "aten.empty_strided.default" else 2])
    if any(Expr.of(stride).constant == 0 and size.constant != 1
           for stride, size in zip(strides, n.shape, strict=True)):
        raise Fault("its elements share memory")
    return filled(n, 0)


@aten_op("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(n: Node) -> Value:
    return filled(n, 1)


@aten_op("aten.full.default", "aten.full_like.default", "aten.new_full.default",
         "aten.fill.Scalar", "aten.fill.Tensor")
def full(n: Node, shape_or_tensor: object, *rest: Operand) -> Value:
    """Fill a tensor with a value, which `new_full` has as its third argument, others as second."""
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
    """start, start + step ... below the end.

    If the result has integers, start and step are truncated, but not always for its length.
    """
    limits = (start, end, step)
    if any(isinstance(v, float) for v in limits):
        first, stride = (_number(v) if is_float(n.element) else int(_number(v))
                         for v in (start, step))
        places = np.arange(fixed(n.shape[0], "lengths"))
        return n.constant((first + places * stride).astype(n.result.dtype))
    first, last, stride = (_size(v) for v in limits)
    by = fixed(stride, "steps")
    count = (last - first).ceildiv(by) if by > 0 else (first - last).ceildiv(-by)
    return n.range(at_least_zero(count), n.element, start=first, step=by)


def _number(limit: Operand) -> float:
    if isinstance(limit, Expr) and limit.constant is not None:
        return float(limit.constant)
    if isinstance(limit, (Value, Expr)):
        raise Fault("some of its limits are floats, and others depend on sizes",
                    "fix the sizes, for instance with --dim")
    return float(limit)


def _size(limit: Operand) -> Expr:
    if isinstance(limit, (Value, float)):
        raise Fault("its limits are known only at run time")
    return Expr.of(limit)


@aten_op("aten.linspace.default")
def linspace(n: Node, start: Operand, end: Operand, steps: Size) -> Value:
    """Numbers at equal distances, counted from the nearer end, which they reach exactly.

    The ends are truncated if the result has integers. f32 is computed in f32.
    """
    first, last = map(_number, (start, end))
    if not is_float(n.element):
        first, last = float(int(first)), float(int(last))
    count = fixed(steps, "steps")
    k = np.arange(count)
    with np.errstate(all="ignore"):
        first, last = (np.array(v, np.float32 if n.element == t.f32 else np.float64)
                       for v in (first, last))
        step = (last - first) / max(count - 1, 1)
        numbers = np.where(k < max(count // 2, 1), first + step * k, last - step * (count - 1 - k))
        return n.constant(numbers.astype(n.result.dtype))


@aten_op("aten.eye.default", "aten.eye.m")
def eye(n: Node) -> Value:
    rows, columns = _positions(n, n.result)
    return f.equal(rows, columns).cast(n.element)


# ---------------------------------------------------------------------- triangles
@aten_op("aten.tril.default")
def tril(n: Node, x: Value, diagonal: int) -> Value:
    return _triangle(n, x, diagonal, upper=False)


@aten_op("aten.triu.default")
def triu(n: Node, x: Value, diagonal: int) -> Value:
    return _triangle(n, x, diagonal, upper=True)


def _triangle(n: Node, x: Value, diagonal: Operand, upper: bool) -> Value:
    """The elements on one side of a diagonal; zeros elsewhere."""
    rows, columns = _positions(n, x.type)
    border = rows + operand(n, diagonal, t.i64) if diagonal != 0 else rows
    inside = n(GreaterEqualOp if upper else LessEqualOp, columns, border)
    return f.where(inside, x, 0.0 if is_float(x.element) else 0)


def _positions(n: Node, matrix: t.TensorType) -> tuple[Value, Value]:
    """The indices of rows, [height, 1], and of columns, [width]."""
    height, width = matrix.shape[-2:]
    return n.range(height).reshape([height, 1]), n.range(width)
