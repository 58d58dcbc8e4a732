"""Rules that compute directly on quantized tensors instead of on the numbers they stand for.

With q(x) = round(x / t) + y and d(a) = (a - z) * s, all sums in i32:

    d(a) @ d(b)              == d(matmul_integer(a, b)), at the product of both scales
    conv(d(x), d(w), b)      == d(conv_integer(x, w)) + b
    d(a) + d(b)              == d(a + b) if both have the same scale and no zero point
    relu(d(a))               == d(relu(a)) without a zero point
    transpose(d(a)) ...      == d(transpose(a)), and likewise for all that only moves elements
    q(d(a))                  == a if scale and zero point are the same
                             == q(a * (s / t)) at the scale 1: one multiplication
    q(x)                     == q(x * (1 / t)) at the scale 1 if x depends on a sum of products:
                                that avoids a division per element
    d(q(x))                  == round(limited(x * (1 / t))) * s in floats, if nothing else reads q

Sums of integers are exact, whereas the definition rounds each product. Results can therefore differ
by a rounding before they are quantized again: by one step at most. Moving elements is exact. What
depends on no sum of products is quantized as defined, also at ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from dialects.graph import (
    AddOp,
    ClipOp,
    ConcatOp,
    ConstantOp,
    ConvIntegerOp,
    ConvOp,
    DequantizeLinearOp,
    DivOp,
    GatherOp,
    MatmulIntegerOp,
    MatmulOp,
    MaxPoolOp,
    MulOp,
    QuantizeLinearOp,
    ReluOp,
    ReshapeOp,
    RoundOp,
    SliceOp,
    TransposeOp,
)
from dialects.graph.base import int_of, ints_of
from dialects.graph.composite import cast, reshaped
from dialects.graph.inference import is_computed
from dialects.graph.quantization import LinearOp, integer_limits
from dialects.strata.func import MAIN, FuncOp
from dialects.strata.types import Array, TensorType, bit_width, f32, i32, is_float, wide_element
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.text.syntax import location_name
from passes.rewrites.graph.matching import constant_array, type_of
from passes.rewriting import Rewriter, Rule

PRODUCTS = (MatmulOp, ConvOp, MatmulIntegerOp, ConvIntegerOp)
LONGEST_SUM = 2**31 // (255 * 255)
"""The number of products of bytes that always fit in an i32 sum."""


class Dequantized(NamedTuple):
    """A tensor of floats in quantized form: integers with their scale and zero point.

    The parameters are single numbers, or one per index of `axis`.
    """

    op: DequantizeLinearOp
    axis: int | None

    @staticmethod
    def of(value: SSAValue) -> Dequantized | None:
        """None for a value that is not dequantized, or that has blocks or narrow floats."""
        op = value.owner
        if not isinstance(op, DequantizeLinearOp) or op.block_size is not None:
            return None
        if is_float(type_of(op.x).element):
            return None
        single = all(type_of(p).rank == 0 for p in op.operands[1:])
        return Dequantized(op, None if single else int_of(op.properties, "axis"))

    @property
    def type(self) -> TensorType:
        """The type of the integers."""
        return type_of(self.op.x)

    @property
    def is_sum(self) -> bool:
        """Whether it is a sum of products, that is, i32 without a zero point."""
        return self.type.element == i32 and self.op.zero is None

    def again(self, at: Rewriter, x: SSAValue, axis: int | None) -> SSAValue:
        """Dequantize other integers with these parameters, which apply along `axis`."""
        return at(DequantizeLinearOp, x, *self.op.operands[1:], axis=axis, to=self.op.to)

    def bytes(self, at: Rewriter) -> tuple[SSAValue, SSAValue] | None:
        """The integers and their zero point in 8 bits; None if they are wider."""
        if bit_width(self.type.element) > 8:
            return None
        element = wide_element(self.type.element)
        zero = self.op.zero or at.insert(ConstantOp.scalar(0, element)).results[0]
        return cast(at, self.op.x, element), cast(at, zero, element)


# ---------------------------------------------------------------------- products
def matmul_of_dequantized(op: MatmulOp, at: Rewriter) -> SSAValue | None:
    # d(a) @ d(b) == d(matmul_integer(a, b))
    a, b = Dequantized.of(op.a), Dequantized.of(op.b)
    if a is None or b is None or not _has_axes_of_result(a, b):
        return None
    if not _fits(type_of(op.a).shape[-1]):
        return None
    left, right = a.bytes(at), b.bytes(at)
    if left is None or right is None:
        return None
    (x, zero_x), (y, zero_y) = left, right
    if a.axis is not None:
        zero_x = reshaped(at, zero_x, [*type_of(zero_x).shape, *[1] * len(type_of(zero_x).shape)])
    total = at(MatmulIntegerOp, x, y, zero_x, zero_y)
    place = -min(b.type.rank, 2) if a.axis is not None else -1
    axis = None if a.axis is b.axis is None else type_of(total).rank + place
    return at(DequantizeLinearOp, total, _scale(op, a, b, at), axis=axis, to=type_of(op.a).element)


def _has_axes_of_result(a: Dequantized, b: Dequantized) -> bool:
    """Whether at most one operand has several scales, one per row or per column of the result."""
    rows, columns = a.axis is not None, b.axis is not None
    if rows:
        return not columns and a.axis == a.type.rank - 2
    return not columns or (b.type.rank > 1 and b.axis == b.type.rank - 1)


def conv_of_dequantized(op: ConvOp, at: Rewriter) -> SSAValue | None:
    # conv(d(x), d(w), b) == d(conv_integer(x, w)) + b
    x, w = Dequantized.of(op.x), Dequantized.of(op.w)
    if x is None or w is None or x.axis is not None or w.axis not in (None, 0):
        return None
    if not _fits(product(w.type.shape[1:])):
        return None
    data, filters = x.bytes(at), w.bytes(at)
    if data is None or filters is None:
        return None
    total = at(ConvIntegerOp, data[0], filters[0], data[1], filters[1], **op.properties)
    axis = None if w.axis is None else 1
    y = at(DequantizeLinearOp, total, _scale(op, x, w, at), axis=axis, to=type_of(op.x).element)
    if op.b is None:
        return y
    bias = reshaped(at, op.b, [*type_of(op.b).shape, *[1] * (x.type.rank - 2)])
    return at(AddOp, y, bias)


def _fits(count: Expr) -> bool:
    """Whether a sum of `count` products of bytes fits; unknown sizes are assumed to be small."""
    return count.constant is None or count.constant <= LONGEST_SUM


def _scale(op: Operation, a: Dequantized, b: Dequantized, at: Rewriter) -> SSAValue:
    """The product of two scales, computed at compile time if both are known."""
    arrays = [constant_array(d.op.scale, at.context) for d in (a, b)]
    if arrays[0] is None or arrays[1] is None:
        return at(MulOp, cast(at, a.op.scale, f32), cast(at, b.op.scale, f32))
    scale = arrays[0].astype(np.float32) * arrays[1].astype(np.float32)
    label = f"{location_name(op)}.scale"
    return at.insert(ConstantOp.of_array(scale, at.context.weights, label)).results[0]


# ---------------------------------------------------------------------- on sums
def add_to_sum(op: AddOp, at: Rewriter) -> SSAValue | None:
    # d(a) + d(b) == d(a + b) if both have the same scale and no zero point
    for value, other in ((op.x, op.y), (op.y, op.x)):
        total, more = Dequantized.of(value), Dequantized.of(other)
        if total is None or more is None or value.type != op.result.type:
            continue
        if total.is_sum and more.is_sum and _have_one_scale(total, more, at):
            return total.again(at, at(AddOp, total.op.x, more.op.x), total.axis)
    return None


def _have_one_scale(a: Dequantized, b: Dequantized, at: Rewriter) -> bool:
    """Whether two scales are equal, up to the rounding of the products they came from."""
    arrays = [_known_scale(d, at) for d in (a, b)]
    return arrays[0] is not None and arrays[1] is not None and np.allclose(
        arrays[0], arrays[1], rtol=1e-6, atol=0.0)


def _known_scale(value: Dequantized, at: Rewriter) -> Array | None:
    """A constant scale, shaped to broadcast to the tensor."""
    array = constant_array(value.op.scale, at.context)
    if array is None or value.axis is None:
        return array
    return array.reshape(-1, *[1] * (value.type.rank - value.axis - 1))


def relu_of_sum(op: ReluOp, at: Rewriter) -> SSAValue | None:
    # relu(d(a)) == d(relu(a)) without a zero point
    total = Dequantized.of(op.x)
    if total is None or not total.is_sum or not _is_positive(total, at):
        return None
    return total.again(at, at(ReluOp, total.op.x), total.axis)


def _is_positive(value: Dequantized, at: Rewriter) -> bool:
    scale = constant_array(value.op.scale, at.context)
    return scale is not None and bool(np.all(scale > 0))


# ---------------------------------------------------------------------- movement
def transpose_of_dequantized(op: TransposeOp, at: Rewriter) -> SSAValue | None:
    # transpose(d(a)) == d(transpose(a)), and the axis of its scales moves along
    a = Dequantized.of(op.x)
    if a is None:
        return None
    axis = None if a.axis is None else ints_of(op.properties, "perm").index(a.axis)
    return a.again(at, at(TransposeOp, a.op.x, perm=op.perm), axis)


def reshape_of_dequantized(op: ReshapeOp, at: Rewriter) -> SSAValue | None:
    # reshape(d(a)) == d(reshape(a)) as long as the axis of its scales remains a dim
    a = Dequantized.of(op.x)
    if a is None:
        return None
    axis = None if a.axis is None else _axis_after(a, op.shape.data)
    if axis is None and a.axis is not None:
        return None
    return a.again(at, at(ReshapeOp, a.op.x, shape=op.shape), axis)


def _axis_after(a: Dequantized, shape: Sequence[Expr]) -> int | None:
    """The axis of the scales after a reshape: a dim of the same size at the same offset."""
    assert a.axis is not None
    before, size = product(a.type.shape[:a.axis]), a.type.shape[a.axis]
    return next((k for k, s in enumerate(shape) if s == size and product(shape[:k]) == before),
                None)


def part_of_dequantized(
    op: SliceOp | GatherOp | MaxPoolOp, at: Rewriter
) -> SSAValue | None:
    # slice(d(a)) == d(slice(a));  gather(d(a), i) == d(gather(a, i));
    # max_pool(d(a)) == d(max_pool(a)) for a positive scale
    a = Dequantized.of(op.x)
    if a is None or a.axis is not None:
        return None
    if isinstance(op, MaxPoolOp) and not (_is_positive(a, at) and is_computed(a.type.element)):
        return None
    return a.again(at, at(type(op), a.op.x, *op.operands[1:], **op.properties), None)


def concat_of_dequantized(op: ConcatOp, at: Rewriter) -> SSAValue | None:
    # concat(d(a), d(b)) == d(concat(a, b)) if scales and zero points are the same
    parts = [Dequantized.of(x) for x in op.xs]
    first = parts[0]
    if first is None or first.axis is not None:
        return None
    known = [p for p in parts if p is not None and _same(p.op, first.op, at)]
    if len(known) < len(parts):
        return None
    return first.again(at, at(ConcatOp, *(p.op.x for p in known), axis=op.axis), None)


# ---------------------------------------------------------------------- quantized again
def quantize_of_dequantized(op: QuantizeLinearOp, at: Rewriter) -> SSAValue | None:
    # q(d(a)) == a if scale and zero point are the same
    a = Dequantized.of(op.x)
    if a is None or op.block_size is not None or not _same(op, a.op, at):
        return None
    return a.op.x


def quantize_of_sum(op: QuantizeLinearOp, at: Rewriter) -> SSAValue | None:
    # round(a * s / t) + y == q(a * (s / t)) at the scale 1
    total = Dequantized.of(op.x)
    if total is None or not total.is_sum or op.computed != f32 or type_of(op.scale).rank:
        return None
    factor = at(DivOp, cast(at, total.op.scale, f32), cast(at, op.scale, f32))
    scaled = at(MulOp, cast(at, total.op.x, f32), total.op.along(at, factor))
    one = at.insert(ConstantOp.scalar(1.0, f32))
    return at(QuantizeLinearOp, scaled, one, *op.operands[2:], to=op.to, saturate=op.saturate)


def quantize_by_reciprocal(op: QuantizeLinearOp, at: Rewriter) -> SSAValue | None:
    # round(x / t) + y == q(x * (1 / t)) at the scale 1, but for a rounding
    scale = constant_array(op.scale, at.context)
    x = type_of(op.x)
    if scale is None or scale.ndim or op.computed != f32 or x.element != f32 or scale == 1:
        return None
    if not _depends_on_sums(op.x):
        return None
    factor = at.insert(ConstantOp.scalar(float(np.float32(1) / scale.astype(np.float32)), f32))
    one = at.insert(ConstantOp.scalar(1.0, f32))
    scaled = at(MulOp, op.x, factor)
    return at(QuantizeLinearOp, scaled, one, *op.operands[2:], to=op.to, saturate=op.saturate)


def _depends_on_sums(value: SSAValue) -> bool:
    """Whether a number depends on a sum of products; so may do those that a layer is given."""
    todo, seen = [value], {value}
    while todo:
        owner = todo.pop().owner
        if isinstance(owner, PRODUCTS):
            return True
        if isinstance(owner, Block):
            func = owner.parent_op()
            if not (isinstance(func, FuncOp) and func.sym_name.data == MAIN):
                return True
            continue
        more = set(owner.operands) - seen
        seen |= more
        todo += more
    return False


def dequantize_of_quantized(op: DequantizeLinearOp, at: Rewriter) -> SSAValue | None:
    # d(q(x)) == round(clip(x * (1 / t), least - y, greatest - y)) * s, of integers
    source = op.x.owner
    if not isinstance(source, QuantizeLinearOp) or len(list(op.x.uses)) != 1:
        return None
    if is_float(source.to):
        return None
    zeros = [_single_zero(o, at) for o in (source, op)]
    if zeros[0] is None or zeros[0] != zeros[1] or source.computed != op.to or op.to != f32:
        return None
    if any(type_of(o.scale).rank for o in (source, op)) or bit_width(source.to) > 16:
        return None
    least, greatest = (at.insert(ConstantOp.scalar(float(limit - zeros[0]), f32)).results[0]
                       for limit in integer_limits(source.to))
    quotient = at(DivOp, source.x, cast(at, source.scale, f32))
    limited = at(ClipOp, quotient, least, greatest, has_min=True, has_max=True)
    return at(MulOp, at(RoundOp, limited), cast(at, op.scale, f32))


def _single_zero(op: LinearOp, at: Rewriter) -> int | None:
    """The zero point as one known number; 0 if there is none, None if it is not known."""
    if op.zero is None:
        return 0
    array = constant_array(op.zero, at.context)
    return None if array is None or array.ndim else int(array)


def _same(a: LinearOp, b: LinearOp, at: Rewriter) -> bool:
    """Whether two tensors are quantized alike: same integers, scales and zero points."""
    types = [type_of(o.x if isinstance(o, DequantizeLinearOp) else o.results[0]) for o in (a, b)]
    if types[0].element != types[1].element or len(a.operands) != len(b.operands):
        return False
    alike = all(_equal(x, y, at) for x, y in zip(a.operands[1:], b.operands[1:], strict=True))
    single = all(type_of(p).rank == 0 for p in a.operands[1:])
    return alike and (single or (a.axis == b.axis and a.block_size is b.block_size is None))


def _equal(x: SSAValue, y: SSAValue, at: Rewriter) -> bool:
    arrays = [constant_array(v, at.context) for v in (x, y)]
    known = arrays[0] is not None and arrays[1] is not None
    return x is y or (known and np.array_equal(*arrays))  # pyright: ignore[reportArgumentType]


QUANTIZATION_RULES: dict[type[Operation], list[Rule]] = {
    MatmulOp: [matmul_of_dequantized],
    ConvOp: [conv_of_dequantized],
    AddOp: [add_to_sum],
    ReluOp: [relu_of_sum],
    TransposeOp: [transpose_of_dequantized],
    ReshapeOp: [reshape_of_dequantized],
    SliceOp: [part_of_dequantized],
    GatherOp: [part_of_dequantized],
    MaxPoolOp: [part_of_dequantized],
    ConcatOp: [concat_of_dequantized],
    QuantizeLinearOp: [quantize_of_dequantized, quantize_of_sum, quantize_by_reciprocal],
}

LEFT_OVER_RULES: dict[type[Operation], list[Rule]] = {
    DequantizeLinearOp: [dequantize_of_quantized],
}
"""Rules for conversions that are left once products of integers have been found."""
