"""Rules that turn products of quantized bytes into products of the byte types a target multiplies.

    a - y                  == (a ^ 128) - (y ^ 128)   one side read as unsigned, the other as signed
    sum((a - y)*(b - z))   == sum(a*b) - y*sum(b) - z*sum(a - y)

Sums are i32. In a convolution, y pads the data, so that the first two sums have the same number of
terms at every position. There a - y is 0, so that the last sum needs no padding. A sum whose factor
is a zero point of 0 is left out, and a sum over constants is folded. All of this is exact, even
where i32 wraps around.

Left alone: elements of 16 bits, vectors, and weights of one column (per group), for which the
additional sum has as many terms as the product itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Attribute, Operation, SSAValue

from dialects.graph import (
    BitcastOp,
    BroadcastOp,
    ConstantOp,
    ConvIntegerOp,
    ConvOp,
    MatmulIntegerOp,
    MatmulOp,
    MulOp,
    ReduceSumOp,
    ReshapeOp,
    SubOp,
    XorOp,
)
from dialects.graph.base import int_of, ints_of
from dialects.graph.composite import cast, reshaped
from dialects.graph.integer_contraction import surrounded
from dialects.strata.types import Array, TensorType, bit_width, dtype_of, i8, i32, ui8
from dialects.symbolic.expr import Size
from dialects.text.syntax import location_name
from passes.rewrites.graph.matching import constant_array, type_of
from passes.rewriting import Rewriter, Rule


# ---------------------------------------------------------------------- products
def signed_matmul(op: MatmulIntegerOp, at: Rewriter) -> SSAValue | None:
    # sum((a - y)*(b - z)) == sum(a*b) - y*sum(b) - z*sum(a - y)
    if not _are_bytes(op.a, op.b) or min(type_of(op.a).rank, type_of(op.b).rank) < 2:
        return None
    if type_of(op.b).shape[-1].constant == 1:
        return None
    left, right = _factors(at)
    a, y = (_read_as(left, v, at) for v in (op.a, op.zero_a))
    b, z = (_read_as(right, v, at) for v in (op.b, op.zero_b))
    total = at(MatmulOp, a, b, to=i32)
    if not _is_zero(y, at):
        total = at(SubOp, total, at(MulOp, cast(at, y, i32), _sum(at, b, -2)))
    if not _is_zero(z, at):
        total = at(SubOp, total, at(MulOp, cast(at, z, i32), _sum(at, _less(at, a, y), -1)))
    return _as_declared(total, op, at)


def signed_conv(op: ConvIntegerOp, at: Rewriter) -> SSAValue | None:
    # sum((a - y)*(b - z)) == sum(a*b) - y*sum(b) - z*sum(a - y), with y around a
    type_ = type_of(op.w)
    group = int_of(op.properties, "group", 1)
    if not _are_bytes(op.x, op.w) or (type_.shape[0] // group).constant == 1:
        return None
    left, right = _factors(at)
    y = _read_as(left, op.zero_x, at)
    w, z = (_read_as(right, v, at) for v in (op.w, op.zero_w))
    inside = {k: v for k, v in op.properties.items() if k != "pads"}
    ends = [1] * (type_.rank - 2)
    padded = surrounded(at, op.x, op.zero_x, ints_of(op.properties, "pads"))  # still bytes
    total = at(ConvOp, _read_as(left, padded, at), w, **inside, to=i32)
    if not _is_zero(y, at):
        sums = _sum(at, w, *range(1, type_.rank))
        share = at(MulOp, cast(at, y, i32), reshaped(at, sums, [type_.shape[0], *ends]))
        total = at(SubOp, total, share)
    if not _is_zero(z, at):
        zeros = cast(at, z, i32)
        if type_of(z).rank:
            zeros = reshaped(at, zeros, [type_.shape[0], *ends])
        share = at(MulOp, zeros, _window_sums(op, _less(at, op.x, op.zero_x), group, at))
        total = at(SubOp, total, share)
    return _as_declared(total, op, at)


def _window_sums(op: ConvIntegerOp, x: SSAValue, group: int, at: Rewriter) -> SSAValue:
    """The sum of x under the window at each position, [n, co, p...]; co is 1 for a single group.

    The channels of a group are summed first, so that each element is read once for all positions.
    """
    batch, channels, *places = type_of(x).shape
    grouped = reshaped(at, x, [batch, group, channels // group, *places])
    sums = reshaped(at, _sum(at, grouped, 2), [batch, group, *places])
    filters, _, *kernel = type_of(op.w).shape
    ones = _ones(at, [1 if group == 1 else filters, 1, *kernel])
    return at(ConvOp, sums, ones, **op.properties, to=i32)


# ---------------------------------------------------------------------- shared
def _are_bytes(*values: SSAValue) -> bool:
    return all(bit_width(type_of(v).element) == 8 for v in values)


def _factors(at: Rewriter) -> tuple[Attribute, Attribute]:
    """The byte types that the target multiplies."""
    return at.context.facts.byte_factors or (i8, i8)


def _read_as(element: Attribute, x: SSAValue, at: Rewriter) -> SSAValue:
    """Bytes with the signedness of `element`: shifted by 128, or unchanged."""
    if type_of(x).element == element:
        return x
    known = constant_array(x, at.context)
    if bit_width(element) > 8:
        return cast(at, x, element) if known is None else _constant(
            at, known.astype(dtype_of(element)), x, "wide")
    if known is not None:
        flipped = np.bitwise_xor(known.view(np.uint8), 128).view(dtype_of(element))
        return _constant(at, flipped, x, "flipped")
    half = at.insert(ConstantOp.scalar(128, ui8)).results[0]
    bits = x if type_of(x).element == ui8 else at(BitcastOp, x, to=ui8)
    flipped = at(XorOp, bits, half)
    return flipped if element == ui8 else at(BitcastOp, flipped, to=element)


def _constant(at: Rewriter, array: Array, source: SSAValue, word: str) -> SSAValue:
    """A value that is computed at compile time from a constant."""
    label = source.owner.label if isinstance(source.owner, ConstantOp) else ""
    label = f"{label or location_name(at.anchor)}.{word}"
    return at.insert(ConstantOp.of_array(array, at.context.weights, label)).results[0]


def _is_zero(zero: SSAValue, at: Rewriter) -> bool:
    known = constant_array(zero, at.context)
    return known is not None and not known.any()


def _less(at: Rewriter, x: SSAValue, zero: SSAValue) -> SSAValue:
    """x minus its zero point, in i32."""
    wide = cast(at, x, i32)
    return wide if _is_zero(zero, at) else at(SubOp, wide, cast(at, zero, i32))


def _sum(at: Rewriter, x: SSAValue, *axes: int) -> SSAValue:
    """The i32 sum over axes that stay as dims of 1, computed at compile time for constants."""
    known = constant_array(x, at.context)
    if known is not None:
        return _constant(at, known.sum(axes, np.int32, keepdims=True), x, "sums")
    axes = tuple(a % type_of(x).rank for a in axes)
    return at(ReduceSumOp, cast(at, x, i32), axes=axes, keepdims=True)


def _ones(at: Rewriter, shape: Sequence[Size]) -> SSAValue:
    one = at.insert(ConstantOp.scalar(1, i8)).results[0]
    return at(BroadcastOp, one, shape=list(shape))


def _as_declared(value: SSAValue, op: Operation, at: Rewriter) -> SSAValue:
    """The value in the declared shape of the operation's result, which may know sizes less well."""
    declared = op.results[0].type
    assert isinstance(declared, TensorType)
    return value if value.type == declared else at(ReshapeOp, value, shape=declared.shape)


SIGNED_PRODUCT_RULES: dict[type[Operation], list[Rule]] = {
    MatmulIntegerOp: [signed_matmul],
    ConvIntegerOp: [signed_conv],
}
