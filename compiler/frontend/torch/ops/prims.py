"""Operators of PrimTorch (`torch.ops.prims`), into which PyTorch takes its references apart.

Most are an operator of ATen by another name; operands have equal types, and nothing broadcasts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import Operand, aten_op, reduce, shape, unary
from compiler.frontend.torch.ops import elementwise as e
from compiler.frontend.torch.ops.create import filled
from compiler.frontend.values import Value
from dialects.graph.bits import BitcastOp
from dialects.graph.reduce import ReduceMaxOp, ReduceMinOp, ReduceProdOp, ReduceSumOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, Size

_SAME: dict[str, tuple[str, Callable[..., Value]]] = {
    **{name: (f"aten.{name}.default", unary.function) for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "exp2",
        "log", "log10", "log2", "reciprocal", "sin", "sinh", "sqrt", "tan", "tanh")},
    **{name: (f"aten.{name}.default", unary.rounding) for name in ("ceil", "floor", "round")},
    "abs": ("aten.abs.default", unary.plain), "neg": ("aten.neg.default", unary.plain),
    "sign": ("aten.sign.default", unary.sign), "trunc": ("aten.trunc.default", unary.trunc),
    "rsqrt": ("aten.rsqrt.default", unary.rsqrt), "expm1": ("aten.expm1.default", unary.expm1),
    "log1p": ("aten.log1p.default", unary.log1p),
    "isfinite": ("aten.isfinite.default", unary.isfinite),
    "bitwise_not": ("aten.bitwise_not.default", e.bitwise_not),
    **{name: (f"aten.{name}.Tensor", e.compare) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"bitwise_{name}": (f"aten.bitwise_{name}.Tensor", e.bitwise) for name in (
        "and", "or", "xor")},
    "mul": ("aten.mul.Tensor", e.mul), "fmod": ("aten.fmod.Tensor", e.fmod),
    "remainder": ("aten.remainder.Tensor", e.remainder),
    "maximum": ("aten.maximum.default", e.maximum), "minimum": ("aten.minimum.default", e.minimum),
    "pow": ("aten.pow.Tensor_Tensor", e.power),
    "shift_left": ("aten.bitwise_left_shift.Tensor", e.shift_left),
    "shift_right_arithmetic": ("aten.bitwise_right_shift.Tensor", e.shift_right),
    "where": ("aten.where.self", e.where),
}
"""Name -> the operator of ATen that takes the same arguments, and its importer."""


@aten_op(*(f"prims.{name}.default" for name in _SAME))
def same_as_aten(n: Node, *operands: Operand) -> Value:
    name, importer = _SAME[n.op.split(".")[1]]
    return importer(replace(n, op=name), *operands)


@aten_op("prims.add.default", "prims.sub.default")
def sum_or_difference(n: Node, a: Value, b: Value) -> Value:
    return e.add(n, a, b, 1) if n.op.startswith("prims.add") else e.sub(n, a, b, 1)


@aten_op("prims.div.default")
def quotient(n: Node, a: Value, b: Value) -> Value:
    """The quotient; of integers rounded toward zero."""
    return e.div(n, a, b)


@aten_op("prims.cbrt.default")
def cube_root(n: Node, x: Value) -> Value:
    wide = x.cast(t.f64)
    size = abs(wide) ** (1 / 3)
    return f.where(wide < 0, -size, size)


# ---------------------------------------------------------------------- reductions
_REDUCTIONS: dict[str, Any] = {
    "sum": ReduceSumOp, "prod": ReduceProdOp, "amax": ReduceMaxOp, "amin": ReduceMinOp}


@aten_op(*(f"prims.{name}.default" for name in _REDUCTIONS), ignored=("output_dtype",))
def reduction(n: Node, x: Value, dims: Sequence[int] | None) -> Value:
    """Over these dims: none for an empty list."""
    if dims is not None and not dims:
        return x
    op = _REDUCTIONS[n.op.split(".")[1]]
    if op in (ReduceMaxOp, ReduceMinOp) and x.element == t.i1:
        return reduce.reduced(n, op, x.cast(t.ui8), dims, False)
    return reduce.reduced(n, op, x.cast(n.element), dims, False)


@aten_op("prims.var.default", ignored=("output_dtype",))
def variance(n: Node, x: Value, dims: Sequence[int] | None, correction: float | None) -> Value:
    return reduce.var(replace(n, op="aten.var.correction"), x, dims, correction, False)


# ---------------------------------------------------------------------- shapes
@aten_op("prims.reshape.default", "prims.collapse.default", "prims.collapse_view.default",
         "prims.split_dim.default", "prims.squeeze.default",
         ignored=("shape", "start", "end", "dim", "outer_length", "dimensions"))
def reshaped(n: Node, x: Value) -> Value:
    return x.reshape(n.shape)


@aten_op("prims.broadcast_in_dim.default")
def broadcast_in_dim(n: Node, x: Value, sizes: Sequence[Size], dims: Sequence[int]) -> Value:
    """Dim k of x becomes dim dims[k] of the result."""
    own = dict(zip(dims, x.shape, strict=True))
    return x.reshape([own.get(k, Expr.of(1)) for k in range(len(sizes))]).broadcast(n.shape)


@aten_op("prims.transpose.default")
def transpose(n: Node, x: Value, permutation: Sequence[int]) -> Value:
    return x.transpose(permutation)


@aten_op("prims.rev.default")
def reverse(n: Node, x: Value, dims: Sequence[int]) -> Value:
    return shape.flip(n, x, dims)


@aten_op("prims.cat.default")
def concatenated(n: Node, parts: Sequence[Value], dim: int) -> Value:
    return f.concat(parts, axis=dim)


@aten_op("prims.view_of.default", "prims.clone.default", "prims.device_put.default",
         "prims.copy_strided.default",
         ignored=("stride", "memory_format", "device", "non_blocking"))
def same(n: Node, x: Value) -> Value:
    return x


@aten_op("prims.view_of_dtype.default")
def same_bits(n: Node, x: Value) -> Value:
    return n(BitcastOp, x, to=n.element)


# ---------------------------------------------------------------------- from numbers
@aten_op("prims.full.default", "prims.full_like.default", "prims.fill.default",
         ignored=("requires_grad",))
def full(n: Node, shape_or_tensor: object, value: Operand) -> Value:
    return filled(n, value)


@aten_op("prims.empty.default", "prims.empty_permuted.default", "prims.empty_strided.default",
         ignored=("shape", "strides", "physical_layout", "requires_grad"))
def empty(n: Node) -> Value:
    """Memory that PyTorch leaves uninitialized is filled with zeros."""
    return filled(n, 0)


@aten_op("prims.scalar_tensor.default")
def scalar_tensor(n: Node, value: Operand) -> Value:
    return e.operand(n, value, n.element)


@aten_op("prims.iota.default", ignored=("requires_grad",))
def iota(n: Node, length: Size, start: Size, step: Size) -> Value:
    """The integers start, start + step, ..."""
    by = Expr.of(step).constant
    if by is None:
        raise Fault("its step must be constant")
    return n.range(length, n.element, start=start, step=by)


@aten_op("prims.maximum_value.default", "prims.minimum_value.default")
def extreme_value(n: Node, element: Attribute) -> Value:
    """The largest or smallest number of an element type, which is infinite for floats."""
    largest = n.op.startswith("prims.maximum")
    if t.is_float(element):
        return n.scalar(math.inf if largest else -math.inf, element)
    if element == t.i1:
        return n.scalar(largest, element)
    limits = np.iinfo(t.dtype_of(element))
    return n.scalar(int(limits.max if largest else limits.min), element)


@aten_op("prims._make_token.default")
def token(n: Node) -> Value:
    """What only orders operators with effects."""
    return filled(n, 0)
