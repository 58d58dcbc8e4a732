"""Rules that fold per-channel arithmetic and zero padding into a convolution with constant weights.

This is the standard transformation for inference. The new weights are computed in f64 and rounded
once, so results agree up to rounding, not bit for bit:

    batch_norm(conv(x, w, b))        s = scale / sqrt(variance + epsilon), t = bias - mean*s
      == conv(x, w, b) * s + t       conv(x, w, b) * s == conv(x, w*s, b*s)
                                     conv(x, w, b) + t == conv(x, w, b + t)

The same holds for transposed convolution. The convolution must have no other use.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from xdsl.ir import Operation, SSAValue

from dialects.graph import (
    AddOp,
    BatchNormOp,
    ConstantOp,
    ConvOp,
    ConvTransposeOp,
    DivOp,
    MulOp,
    PadOp,
    SubOp,
)
from dialects.graph.base import float_of, int_of, ints_of
from dialects.strata.types import Array, is_float
from dialects.text.syntax import location_name
from passes.rewrites.graph.matching import constant_array, has_one_use, type_of
from passes.rewriting import Rewriter, Rule

Convolution: TypeAlias = "ConvOp | ConvTransposeOp"


def batch_norm_of_conv(op: BatchNormOp, at: Rewriter) -> SSAValue | None:
    # batch_norm(conv(x, w, b)) == conv(x, w*s, b*s + t)
    parameters = [constant_array(v, at.context) for v in op.operands[1:]]
    if any(p is None for p in parameters):
        return None
    scale, bias, mean, variance = [p.astype(np.float64) for p in parameters if p is not None]
    factor = scale / np.sqrt(variance + float_of(op.properties, "epsilon"))
    return _folded(op.x, factor, bias - mean * factor, at)


def conv_times_constant(op: MulOp, at: Rewriter) -> SSAValue | None:
    # conv(x, w, b) * c == conv(x, w*c, b*c)
    for conv, constant in ((op.x, op.y), (op.y, op.x)):
        channels = _per_channel(constant, conv, op, at)
        if channels is not None:
            return _folded(conv, channels, np.zeros_like(channels), at)
    return None


def conv_over_constant(op: DivOp, at: Rewriter) -> SSAValue | None:
    # conv(x, w, b) / c == conv(x, w/c, b/c)
    channels = _per_channel(op.y, op.x, op, at)
    if channels is None or not np.all(channels):
        return None
    return _folded(op.x, 1 / channels, np.zeros_like(channels), at)


def conv_plus_constant(op: AddOp, at: Rewriter) -> SSAValue | None:
    # conv(x, w, b) + c == conv(x, w, b + c)
    for conv, constant in ((op.x, op.y), (op.y, op.x)):
        channels = _per_channel(constant, conv, op, at)
        if channels is not None:
            return _folded(conv, np.ones_like(channels), channels, at)
    return None


def conv_minus_constant(op: SubOp, at: Rewriter) -> SSAValue | None:
    # conv(x, w, b) - c == conv(x, w, b + -c)
    channels = _per_channel(op.y, op.x, op, at)
    return None if channels is None else _folded(op.x, np.ones_like(channels), -channels, at)


def conv_of_pad(op: ConvOp, at: Rewriter) -> SSAValue | None:
    # conv(pad(x with zeros)) == conv(x with larger pads)
    pad = op.x.owner
    if not isinstance(pad, PadOp) or pad.mode.data != "constant":
        return None
    low, high = ([p.constant for p in side.data] for side in (pad.low, pad.high))
    if float_of(pad.properties, "value") != 0 or any((*low[:2], *high[:2])):
        return None
    extra = [p for p in (*low[2:], *high[2:]) if p is not None]
    if len(extra) < 2 * len(low[2:]):  # a convolution's own pads are constant
        return None
    pads = ints_of(op.properties, "pads", [0] * len(extra))
    attributes = {**op.properties, "pads": [a + b for a, b in zip(pads, extra, strict=True)]}
    return at(ConvOp, pad.x, *op.operands[1:], **attributes)


# ---------------------------------------------------------------------- the folding
def _per_channel(
    constant: SSAValue, conv: SSAValue, op: Operation, at: Rewriter
) -> Array | None:
    """A constant with one number per result channel of a float convolution, as an f64 vector."""
    if not isinstance(conv.owner, ConvOp | ConvTransposeOp) or conv.type != op.results[0].type:
        return None
    array, type_ = constant_array(constant, at.context), type_of(conv)
    channels = type_.shape[1].constant
    if array is None or channels is None or not is_float(type_.element):
        return None
    shape = (1,) * (type_.rank - array.ndim) + array.shape
    if array.size != shape[1] or shape[1] not in (1, channels):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), (channels,))


def _folded(value: SSAValue, factor: Array, shift: Array, at: Rewriter) -> SSAValue | None:
    """The convolution whose result is `value * factor + shift`, per channel."""
    conv = value.owner
    if not isinstance(conv, ConvOp | ConvTransposeOp) or not has_one_use(conv):
        return None
    arrays = [constant_array(v, at.context) for v in conv.operands[1:]]
    if any(a is None for a in arrays):
        return None
    weight, *bias = [a.astype(np.float64) for a in arrays if a is not None]
    operands = [_constant(_scaled(conv, weight, factor), conv.w, conv, at)]
    if bias or np.any(shift):
        total = (bias[0] * factor if bias else 0) + shift
        operands.append(_constant(total, conv.b, conv, at))
    return at(type(conv), conv.x, *operands, **conv.properties)


def _scaled(conv: Convolution, weight: Array, factor: Array) -> Array:
    """The weights times one factor per result channel."""
    spatial = (1,) * (weight.ndim - 2)
    if isinstance(conv, ConvOp):  # [co, ci/group, k...]
        return weight * factor.reshape(-1, 1, *spatial)
    group = int_of(conv.properties, "group", 1)  # [ci, co/group, k...]
    per_group = weight.reshape(group, -1, *weight.shape[1:])
    return (per_group * factor.reshape(group, 1, -1, *spatial)).reshape(weight.shape)


def _constant(array: Array, old: SSAValue | None, conv: Convolution, at: Rewriter) -> SSAValue:
    """New weights, or a new bias, in the convolution's element type and under the old name."""
    label = old.owner.label if old is not None and isinstance(old.owner, ConstantOp) else ""
    rounded = array.astype(type_of(conv.x).dtype)
    constant = ConstantOp.of_array(
        rounded, at.context.weights, label or f"{location_name(conv)}.bias")
    return at.insert(constant).results[0]


CONVOLUTION_RULES: dict[type[Operation], list[Rule]] = {
    BatchNormOp: [batch_norm_of_conv],
    MulOp: [conv_times_constant],
    DivOp: [conv_over_constant],
    AddOp: [conv_plus_constant],
    SubOp: [conv_minus_constant],
    ConvOp: [conv_of_pad],
}
