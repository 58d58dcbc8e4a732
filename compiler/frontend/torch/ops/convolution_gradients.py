"""The gradients of convolutions, as convolutions and products.

For y = conv(x, w), the gradient of x is the transposed convolution of that of y by the same filter:
for each phase of the stride, a convolution by every stride-th tap of the turned filter, or one
product where windows lie side by side. The gradient of w is an operation of its own. For a
transposed convolution, x and y trade places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from compiler.frontend import formulas as f
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.torch.ops.convolution import spread
from compiler.frontend.values import Value
from dialects.graph.convolution import ConvOp, ConvTransposeOp
from dialects.graph.filter_gradient import ConvFilterGradientOp
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
    inputs = filters = bias = n.scalar(0.0, x.element)
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

    # ------------------------------------------------------------------ inputs
    def convolved(self, x: Value, weight: Value, sizes: Sequence[Expr]) -> Value:
        """The convolution of x [n, i, ...] by weight [o, i, ...], cut to `sizes`."""
        found = self.n(ConvOp, x, weight, strides=self.strides, dilations=self.dilations,
                       pads=[*self.pads] * 2, group=self.group)
        return _cut(found, sizes)

    def transposed(self, y: Value, weight: Value, sizes: Sequence[Expr]) -> Value:
        """The transposed convolution of y [n, o, ...] by weight [o, i, ...], cut to `sizes`."""
        kernel = self.n.integers(weight.shape[2:], "filter sizes")
        dilated = any(s > 1 and d > 1 for s, d in zip(self.strides, self.dilations, strict=True))
        if dilated or any(p > d * (k - 1) for p, d, k in zip(
                self.pads, self.dilations, kernel, strict=True)):
            return self._transposed_at_once(y, weight, sizes)
        if all(s == 1 for s in self.strides):
            low = [d * (k - 1) - p for p, d, k in zip(
                self.pads, self.dilations, kernel, strict=True)]
            return _cut(self._turned(y, weight, low, low), sizes)
        if kernel == [*self.strides] and not any(self.pads):
            return self._side_by_side(y, weight, sizes)
        return self._in_phases(y, weight, kernel, sizes)

    def _side_by_side(self, y: Value, weight: Value, sizes: Sequence[Expr]) -> Value:
        """Where windows neither overlap nor leave gaps, as patches of images: each element of y
        times the filter is a window, and elements beyond the last window are 0.

        All phases are one product; a patch of 16 x 16 has 256.
        """
        found = self.n(ConvTransposeOp, y, weight, strides=self.strides, group=self.group)
        for axis, size in enumerate(sizes, start=2):
            rest = size - found.shape[axis]
            if rest.constant != 0:
                shape = [*found.shape[:axis], rest, *found.shape[axis + 1:]]
                zeros = self.n.scalar(0.0, y.element).broadcast(shape)
                found = f.concat([found, zeros], axis=axis)
        return found

    def _transposed_at_once(self, y: Value, weight: Value, sizes: Sequence[Expr]) -> Value:
        found = self.n(ConvTransposeOp, y, weight, strides=self.strides, dilations=self.dilations,
                       pads=[*self.pads] * 2, output_padding=[s - 1 for s in self.strides],
                       group=self.group)
        return _cut(found, sizes)

    def _turned(self, y: Value, weight: Value, low: Sequence[int], high: Sequence[int]) -> Value:
        """The convolution of y by a filter [o, i, ...] whose taps are in the opposite order."""
        count, depth, *kernel = weight.shape
        spatial = list(range(3, weight.rank + 1))
        axes = [axis for axis, size in enumerate(kernel, start=2) if size.constant != 1]
        swapped = _turned(weight, axes).reshape(
            [self.group, count // self.group, depth, *kernel]).transpose(
            [0, 2, 1, *spatial]).reshape([self.group * depth, count // self.group, *kernel])
        return self.n(ConvOp, y, swapped, strides=[1] * len(kernel), dilations=self.dilations,
                      pads=[*low, *high], group=self.group)

    def _in_phases(
        self, y: Value, weight: Value, kernel: Sequence[int], sizes: Sequence[Expr]
    ) -> Value:
        """Elements at distances of the stride from each other are convolutions of y.

        Every phase has `more` elements more than y, which reach the last element of x.
        """
        reach = [d * (k - 1) + 1 for d, k in zip(self.dilations, kernel, strict=True)]
        more = [-(-k // s) - 1 + (s - 1 > p) for k, s, p in zip(
            reach, self.strides, self.pads, strict=True)]
        phases = [self._phase(y, weight, kernel, more, phase)
                  for phase in product(*map(range, self.strides))]
        found = _interleaved(phases, self.strides)
        for axis, (pad, size) in enumerate(zip(self.pads, sizes, strict=True), start=2):
            found = found.part(axis, pad, size)
        return found

    def _phase(
        self, y: Value, weight: Value, kernel: Sequence[int], more: Sequence[int],
        phase: Sequence[int],
    ) -> Value:
        """The elements of one phase: 0 if no tap meets them.

        Taps are `dilation` apart where the stride is 1, and otherwise side by side.
        """
        taps = [-((r - k) // s) for k, s, r in zip(kernel, self.strides, phase, strict=True)]
        if 0 in taps:
            shape = [y.shape[0], weight.shape[1] * self.group, *(
                size + add for size, add in zip(y.shape[2:], more, strict=True))]
            return self.n.scalar(0.0, y.element).broadcast(shape)
        for axis, (first, count, step) in enumerate(zip(
                phase, taps, self.strides, strict=True), start=2):
            weight = weight.part(axis, first, count, step)
        low = [d * (count - 1) for d, count in zip(self.dilations, taps, strict=True)]
        return self._turned(y, weight, low, more)

    # ------------------------------------------------------------------ filters
    def filters(self, x: Value, y: Value, shape: Sequence[Expr]) -> Value:
        """The gradient [o, i, ...] of a filter that convolves x to something with gradient y."""
        kernel = self.n.integers(shape[2:], "filter sizes")
        return self.n(ConvFilterGradientOp, x, y, kernel=kernel, strides=self.strides,
                      dilations=self.dilations, pads=[*self.pads] * 2, group=self.group)


def _turned(x: Value, axes: Sequence[int]) -> Value:
    """x with the elements along some axes in the opposite order."""
    for axis in axes:
        x = x.part(axis, x.shape[axis] - 1, x.shape[axis], -1)
    return x


def _interleaved(phases: Sequence[Value], strides: Sequence[int]) -> Value:
    """One tensor of all phases [n, c, ...], the last spatial dim's fastest."""
    shape, rank = phases[0].shape, len(strides)
    joined = f.concat((v.reshape([1, *shape]) for v in phases), axis=0)
    parted = joined.reshape([*strides, *shape])
    order = [rank, rank + 1]
    for k in range(rank):
        order += [rank + 2 + k, k]
    sizes = [size * s for size, s in zip(shape[2:], strides, strict=True)]
    return parted.transpose(order).reshape([*shape[:2], *sizes])


def _cut(x: Value, sizes: Sequence[Expr]) -> Value:
    """The first elements of x [a, b, ...] along its spatial dims."""
    for axis, size in enumerate(sizes, start=2):
        if x.shape[axis] != size:
            x = x.part(axis, 0, size)
    return x
