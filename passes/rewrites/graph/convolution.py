"""Rules that fold per-channel arithmetic and zero padding into a convolution with constant weights.

This is the standard transformation for inference. The new weights are computed in f64 and rounded
once, so results agree up to rounding, not bit for bit:

    batch_norm(conv(x, w, b))        s = scale / sqrt(variance + epsilon), t = bias - mean*s
      == conv(x, w, b) * s + t       conv(x, w, b) * s == conv(x, w*s, b*s)
                                     conv(x, w, b) + t == conv(x, w, b + t)

The same holds for transposed convolution. The convolution must have no other use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

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
from dialects.semantics.filters import Change, ChangedBias, ChangedFilter
from dialects.strata.types import Array, is_float
from dialects.text.syntax import location_name
from passes.rewrites.graph.matching import (
    constant_array,
    has_one_use,
    is_settled,
    known_constant,
    type_of,
)
from passes.rewriting import Rewriter, Rule


class PerChannel(NamedTuple):
    """A change per channel, and the constants that it follows from."""

    constants: Sequence[ConstantOp]
    change: Change


def batch_norm_of_conv(op: BatchNormOp, at: Rewriter) -> SSAValue | None:
    # batch_norm(conv(x, w, b)) == conv(x, w*s, b*s + t)
    constants = _known(op.operands[1:], at)
    if constants is None:
        return None
    epsilon = float_of(op.properties, "epsilon")
    return _folded(op.x, PerChannel(constants, Change("batch norm", epsilon)), at)


def conv_times_constant(op: MulOp, at: Rewriter) -> SSAValue | None:
    # conv(x, w, b) * c == conv(x, w*c, b*c)
    for conv, constant in ((op.x, op.y), (op.y, op.x)):
        if _is_per_channel(constant, conv, op):
            return _by_one(conv, constant, "times", at)
    return None


def conv_over_constant(op: DivOp, at: Rewriter) -> SSAValue | None:
    # conv(x, w, b) / c == conv(x, w/c, b/c)
    if not _is_per_channel(op.y, op.x, op) or not is_settled(op.y, at.context):
        return None
    divisor = constant_array(op.y, at.context)
    if divisor is None or not np.all(divisor):
        return None
    return _by_one(op.x, op.y, "over", at)


def conv_plus_constant(op: AddOp, at: Rewriter) -> SSAValue | None:
    # conv(x, w, b) + c == conv(x, w, b + c)
    for conv, constant in ((op.x, op.y), (op.y, op.x)):
        if _is_per_channel(constant, conv, op):
            return _by_one(conv, constant, "plus", at)
    return None


def conv_minus_constant(op: SubOp, at: Rewriter) -> SSAValue | None:
    # conv(x, w, b) - c == conv(x, w, b + -c)
    if not _is_per_channel(op.y, op.x, op):
        return None
    return _by_one(op.x, op.y, "minus", at)


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
def _known(values: Sequence[SSAValue], at: Rewriter) -> list[ConstantOp] | None:
    """The constants that values are, if all are."""
    found = [known_constant(v, at.context) for v in values]
    return None if None in found else [c for c in found if c is not None]


def _is_per_channel(constant: SSAValue, conv: SSAValue, op: Operation) -> bool:
    """Whether a constant has one number per result channel of a float convolution."""
    if not isinstance(conv.owner, ConvOp | ConvTransposeOp) or conv.type != op.results[0].type:
        return False
    if not isinstance(constant.owner, ConstantOp):
        return False
    own, type_ = constant.owner.type.static_shape, type_of(conv)
    channels = type_.shape[1].constant
    if own is None or channels is None or not is_float(type_.element):
        return False
    shape = (1,) * (type_.rank - len(own)) + own
    return prod(own) == shape[1] and shape[1] in (1, channels)


def _by_one(
    conv: SSAValue, constant: SSAValue, formula: str, at: Rewriter
) -> SSAValue | None:
    """The convolution changed by one constant with a number per channel."""
    constants = _known([constant], at)
    if constants is None:
        return None
    return _folded(conv, PerChannel(constants, Change(formula)), at)


def _folded(value: SSAValue, of: PerChannel, at: Rewriter) -> SSAValue | None:
    """The convolution whose result is that of this one, changed per channel."""
    conv = value.owner
    if not isinstance(conv, ConvOp | ConvTransposeOp) or not has_one_use(conv):
        return None
    own = _known(conv.operands[1:], at)
    if own is None or any(constant.varies for constant in (*own, *of.constants)):
        return None
    dtype, change = type_of(conv.x).dtype, of.change
    channels = type_of(value).shape[1].constant or 1
    groups = 0 if isinstance(conv, ConvOp) else int_of(conv.properties, "group", 1)

    def computed(
        constants: Sequence[ConstantOp], what: str, compute: Callable[..., Array]
    ) -> SSAValue:
        label = constants[0].label or f"{location_name(conv)}.{what}"
        text = (f"{conv.name} {dict(conv.properties)} {what}: {change.formula} {change.epsilon} "
                f"{dtype}")
        return at.insert(ConstantOp.of_computed(
            constants, at.context.weights, label, text, compute)).results[0]

    operands = [computed([own[0], *of.constants], "weight",
                         ChangedFilter(change, channels, dtype, groups))]
    if len(own) > 1:
        operands.append(computed([own[1], *of.constants], "bias",
                                 ChangedBias(change, channels, dtype, True)))
    elif change.shifts:
        operands.append(computed(of.constants, "bias",
                                 ChangedBias(change, channels, dtype, False)))
    return at(type(conv), conv.x, *operands, **conv.properties)


CONVOLUTION_RULES: dict[type[Operation], list[Rule]] = {
    BatchNormOp: [batch_norm_of_conv],
    MulOp: [conv_times_constant],
    DivOp: [conv_over_constant],
    AddOp: [conv_plus_constant],
    SubOp: [conv_minus_constant],
    ConvOp: [conv_of_pad],
}
