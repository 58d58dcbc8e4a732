"""The gradients of convolutions, as convolutions.

For y = conv(x, w), the gradient of x is the transposed convolution of that of y by the same filter.
That of w is a convolution of x whose filter is the gradient of y, with strides and dilations
exchanged, and with the batch as channels. For a transposed convolution, x and y trade places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.frontend import formulas as f
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.torch.ops.convolution import spread
from compiler.frontend.values import Value
from dialects.graph.convolution import ConvOp, ConvTransposeOp
from dialects.symbolic.expr import Expr, Size


@aten_op("aten.convolution_backward.default", ignored=("output_padding",))
def convolution_gradients(
    n: Node, gradient: Value, x: Value, weight: Value, bias_sizes: Sequence[Size] | None,
    stride: Sequence[Size], padding: Sequence[Size], dilation: Sequence[Size], transposed: bool,
    output_padding: Sequence[Size], groups: int, wanted: Sequence[bool],
) -> list[Value]:
    """The gradients of x, weight and bias, where wanted; others are not used."""
    rank = weight.rank - 2
    strides, pads, dilations = (spread(n, v, rank, what) for v, what in (
        (stride, "strides"), (padding, "pads"), (dilation, "dilations")))
    form = _Form(n, strides, pads, dilations, groups)
    zero = n.scalar(0.0, x.element)
    inputs = filters = bias = zero
    if wanted[0]:
        inputs = (form.convolved(gradient, weight, x.shape[2:]) if transposed else
                  form.transposed(gradient, weight, x.shape[2:]))
    if wanted[1]:
        filters = (form.filters(gradient, x, weight.shape) if transposed else
                   form.filters(x, gradient, weight.shape))
    if wanted[2]:
        bias = f.reduce_sum(gradient, axes=[0, *range(2, gradient.rank)])
    return [inputs, filters, bias]


@dataclass(frozen=True)
class _Form:
    """How a convolution moves its windows."""

    n: Node
    strides: Sequence[int]
    pads: Sequence[int]
    dilations: Sequence[int]
    group: int

    def transposed(self, y: Value, weight: Value, sizes: Sequence[Expr]) -> Value:
        """The transposed convolution of y [n, o, ...] by weight [o, i, ...], cut to `sizes`."""
        found = self.n(ConvTransposeOp, y, weight, strides=self.strides, dilations=self.dilations,
                       pads=[*self.pads] * 2, output_padding=[s - 1 for s in self.strides],
                       group=self.group)
        return _cut(found, sizes)

    def convolved(self, x: Value, weight: Value, sizes: Sequence[Expr]) -> Value:
        """The convolution of x [n, i, ...] by weight [o, i, ...], cut to `sizes`."""
        found = self.n(ConvOp, x, weight, strides=self.strides, dilations=self.dilations,
                       pads=[*self.pads] * 2, group=self.group)
        return _cut(found, sizes)

    def filters(self, x: Value, y: Value, shape: Sequence[Expr]) -> Value:
        """The gradient [o, i, ...] of a filter that convolves x to something with gradient y."""
        batch, depth = x.shape[0], shape[1]
        rows = x.reshape([batch, self.group, depth, *x.shape[2:]])
        others = list(range(3, rows.rank))
        rows = rows.transpose([2, 1, 0, *others]).reshape(
            [depth, self.group * batch, *x.shape[2:]])
        found = self.n(ConvOp, rows, self.n.swap(y, 0, 1), strides=self.dilations,
                       dilations=self.strides, pads=[*self.pads] * 2, group=self.group)
        return self.n.swap(_cut(found, shape[2:]), 0, 1)


def _cut(x: Value, sizes: Sequence[Expr]) -> Value:
    """The first elements of x [a, b, ...] along its spatial dims."""
    for axis, size in enumerate(sizes, start=2):
        if x.shape[axis] != size:
            x = x.part(axis, 0, size)
    return x
