"""Convolutions: sums of products over input channels and kernel positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xdsl.ir import SSAValue

from dialects.graph.base import Build, int_of
from dialects.graph.convolution import ConvOp, kernel_sizes
from dialects.graph.window import Window
from dialects.strata.types import TensorType, is_float
from dialects.symbolic.expr import Expr
from passes.graph_to_loop.contraction import contract
from passes.graph_to_loop.nests import (
    Domain,
    Read,
    assume_equal,
    converted,
    copy,
    make_nest,
    type_of,
)
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Number
from passes.rewriting import Rewriter


# ---------------------------------------------------------------------- conv
@lowers(ConvOp)
def conv(op: ConvOp, at: Rewriter) -> SSAValue:
    x, w, result = type_of(op.x), type_of(op.w), type_of(op.result)
    window = Window.of(kernel_sizes(w), op.properties, "C3")
    group = int_of(op.properties, "group", 1)
    assume_equal(at, x.shape[1], w.shape[1] * group)
    channels = Channels.of(group, w.shape[1], w.shape[0])
    domain = Domain()
    [n] = domain.parallel(x.shape[0])
    outer = channels.outer(domain)
    places = domain.parallel(*result.shape[2:])
    inner = channels.inner(domain)
    taps = domain.reduce(*window.kernel)
    source = [p * s + k * d - low for p, s, k, d, low in zip(
        places, window.strides, taps, window.dilations, window.low, strict=True)]
    pad = zero_of(x) if any((*window.low, *window.high)) else None
    total = contract(
        at, domain, Read(op.x, [n, channels.source(outer, inner), *source], pad),
        Read(op.w, [channels.result(outer), channels.within(inner), *taps]), result,
        index=[n, channels.result(outer), *places])
    return finish(at, total, op.b, result)


def zero_of(x: TensorType) -> Number:
    return 0.0 if is_float(x.element) else 0


class Channels(NamedTuple):
    """The channel axes of a convolution with groups, as few as possible.

    With one group: output and input channels. Depthwise, with one input and one output channel per
    group: the group. Otherwise the group, and the output and input channels within the group.
    """

    group: int
    inputs: Expr
    outputs: Expr
    """The number of output channels per group."""

    @staticmethod
    def of(group: int, inputs: Expr, all_outputs: Expr) -> Channels:
        return Channels(group, inputs, all_outputs // group)

    @property
    def depthwise(self) -> bool:
        return self.group > 1 and self.inputs.constant == self.outputs.constant == 1

    def outer(self, domain: Domain) -> list[Expr]:
        """The parallel axes."""
        if self.group == 1:
            return domain.parallel(self.outputs)
        return domain.parallel(self.group, *([] if self.depthwise else [self.outputs]))

    def inner(self, domain: Domain) -> list[Expr]:
        """The reduce axes."""
        return [] if self.depthwise else domain.reduce(self.inputs)

    def result(self, outer: list[Expr]) -> Expr:
        """The output channel."""
        return outer[0] if len(outer) == 1 else outer[0] * self.outputs + outer[1]

    def within(self, inner: list[Expr]) -> Expr:
        """The input channel, counted within its group."""
        return inner[0] if inner else Expr.of(0)

    def result_within(self, outer: list[Expr]) -> Expr:
        """The output channel, counted within its group."""
        return Expr.of(0) if self.depthwise else outer[-1]

    def source(self, outer: list[Expr], inner: list[Expr]) -> Expr:
        """The input channel."""
        if self.group == 1:
            return inner[0]
        return outer[0] if self.depthwise else outer[0] * self.inputs + inner[0]


def finish(
    at: Build, total: SSAValue, bias: SSAValue | None, result: TensorType,
    ahead: Sequence[int] | None = None,
) -> SSAValue:
    """Add the bias and round to the result's element type; skip the first `ahead` sums."""
    whole = type_of(total).shape == result.shape
    if bias is None and whole:
        return converted(at, total, result.element)
    domain = Domain()
    point = domain.parallel(*result.shape)
    source = point if ahead is None else [i + a for i, a in zip(point, ahead, strict=True)]
    if bias is None:
        return make_nest(at, domain, [Read(total, source)], result, copy)
    reads = [Read(total, source), Read(bias, [point[1]])]
    return make_nest(at, domain, reads, result,
                     lambda body, read: read[0] + read[1].to(read[0].element))
