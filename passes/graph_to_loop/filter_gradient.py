"""The gradient of a convolution by its filter as one nest, for targets that claim it.

    %w = graph.conv_filter_gradient %x, %y {kernel = [3], pads = [1, 1]}
    -->  %w = nest (c, o, k, reduce n, p) ins(%x[n, c, p + k - 1], %y[n, o, p])
                  outs(add %w[o, c, k])
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from dialects.graph.base import int_of
from dialects.graph.filter_gradient import ConvFilterGradientOp, window_of
from passes.graph_to_loop.contraction import contract
from passes.graph_to_loop.convolution import zero_of
from passes.graph_to_loop.nests import Domain, Read, assume_equal, converted, type_of
from passes.graph_to_loop.rules import lowers
from passes.rewriting import Rewriter


@lowers(ConvFilterGradientOp)
def conv_filter_gradient(op: ConvFilterGradientOp, at: Rewriter) -> SSAValue:
    x, y, result = type_of(op.x), type_of(op.y), type_of(op.result)
    window, count = window_of(op.properties, x.rank - 2), int_of(op.properties, "group", 1)
    assume_equal(at, x.shape[0], y.shape[0])
    domain, inside, outside = Domain(), result.shape[1], y.shape[1] // count
    group = domain.parallel(count)[0] if count > 1 else 0
    inner, outer, *taps = domain.parallel(inside, outside, *window.kernel)
    n, *places = domain.reduce(x.shape[0], *y.shape[2:])
    source = [p * s + k * d - low for p, s, k, d, low in zip(
        places, window.strides, taps, window.dilations, window.low, strict=True)]
    pad = zero_of(x) if any((*window.low, *window.high)) else None
    channel = outside * group + outer
    total = contract(
        at, domain, Read(op.x, [n, inside * group + inner, *source], pad),
        Read(op.y, [n, channel, *places]), result, index=[channel, inner, *taps])
    return converted(at, total, result.element)
