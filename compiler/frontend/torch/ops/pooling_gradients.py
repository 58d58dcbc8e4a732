"""The gradients of pools: every element of x sums what the windows that hold it pass to it.

An element at position h lies in the windows (h + pad) // stride - k for k = 0, 1, ..., as far as
they reach. So each sum has a fixed number of terms, and nothing is scattered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as combinations

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.node import fixed
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.torch.ops.convolution import spread
from compiler.frontend.values import Value
from dialects.graph.shape import PadOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, Size


@dataclass(frozen=True)
class _Axis:
    """Windows along one axis of [n, c, ...] with `size` elements.

    `reach`: from the first to the last element of a window. `last`: how many windows can end
    after the last one that starts inside.
    """

    n: Node
    axis: int
    size: Expr
    kernel: int
    stride: int
    pad: int
    reach: int

    @property
    def candidates(self) -> range:
        """The numbers k of the windows that can hold an element."""
        return range(-(-self.reach // self.stride))

    def ends(self, k: int) -> tuple[int, int]:
        """How many windows are added before and after, so that each element has a k-th one."""
        return k, max(0, -(-(self.reach - 1 - self.pad) // self.stride) + 1 - k)

    def of_elements(self, x: Value) -> Value:
        """For each element of the axis, x at its window, for x that begins at its first one."""
        before, count, after = x.shape[:self.axis], x.shape[self.axis], x.shape[self.axis + 1:]
        repeated = x.reshape([*before, count, 1, *after]).broadcast(
            [*before, count, self.stride, *after]).reshape([*before, count * self.stride, *after])
        return repeated.part(self.axis, self.pad, self.size)

    def is_inside(self, k: int, rank: int) -> Value | None:
        """Whether each element lies in its k-th window, broadcast to `rank`; None for all."""
        if (k + 1) * self.stride <= self.kernel:
            return None
        places = self.n.range(self.size, start=self.pad) % self.stride
        return self.along(places < self.kernel - k * self.stride, rank)

    def counts(self, windows: Expr, include_pad: bool) -> Value:
        """The number of elements by which the sum of each window is divided."""
        start = self.n.range(windows, start=-self.pad, step=self.stride)
        end = f.minimum(start + self.kernel, self.n.of_size(
            self.size + (self.pad if include_pad else 0)))
        return end - (start if include_pad else f.maximum(start, 0))

    def along(self, x: Value, rank: int) -> Value:
        return x.reshape([*[1] * self.axis, x.type.count, *[1] * (rank - self.axis - 1)])


def _batched(x: Value, rank: int) -> Value:
    return x if x.rank == rank + 2 else x.reshape([1, *x.shape])


def _axes(
    n: Node, x: Value, kernel: Sequence[Size], stride: Sequence[Size], padding: Sequence[Size],
    dilation: Sequence[Size] = (1,),
) -> list[_Axis]:
    rank = x.rank - 2
    kernels = spread(n, kernel, rank, "kernel sizes")
    strides = spread(n, stride or kernels, rank, "strides")
    pads, dilations = spread(n, padding, rank, "pads"), spread(n, dilation, rank, "dilations")
    return [_Axis(n, 2 + a, x.shape[2 + a], k, s, p, d * (k - 1) + 1)
            for a, (k, s, p, d) in enumerate(zip(kernels, strides, pads, dilations, strict=True))]


@aten_op(*(f"aten.max_pool{k}d_with_indices_backward.default" for k in (2, 3)),
         ignored=("ceil_mode",))
def max_pool_gradient(
    n: Node, gradient: Value, x: Value, kernel: Sequence[Size], stride: Sequence[Size],
    padding: Sequence[Size], dilation: Sequence[Size], ceil_mode: bool, indices: Value,
) -> Value:
    """Each window passes its gradient to the element that was its maximum."""
    rank = int(n.op.split("pool")[1][0])
    x, gradient, indices = (_batched(v, rank) for v in (x, gradient, indices))
    axes = _axes(n, x, kernel, stride, padding, dilation)
    place = n.scalar(0, t.i64)
    for axis in axes:
        place = place * n.of_size(axis.size) + axis.along(n.range(axis.size), x.rank)
    terms: list[Value] = []
    for windows in combinations(*(axis.candidates for axis in axes)):
        chosen, passed = (_at_windows(v, axes, windows, fill)
                          for v, fill in ((indices, -1), (gradient, 0)))
        terms.append(f.where(f.equal(chosen, place), passed, 0.0))
    return f.total(terms).reshape(n.shape)


def _at_windows(x: Value, axes: Sequence[_Axis], windows: Sequence[int], fill: float) -> Value:
    """For each element, x at the window of these numbers; `fill` where there is none."""
    ends = {axis.axis: axis.ends(k) for axis, k in zip(axes, windows, strict=True)}
    low, high = ([ends.get(d, (0, 0))[side] for d in range(x.rank)] for side in (0, 1))
    if any((*low, *high)):
        x = axes[0].n(PadOp, x, low=low, high=high, mode="constant", value=float(fill))
    for axis in axes:
        x = axis.of_elements(x)
    return x


@aten_op(*(f"aten.avg_pool{k}d_backward.default" for k in (2, 3)), ignored=("ceil_mode",))
def avg_pool_gradient(
    n: Node, gradient: Value, x: Value, kernel: Sequence[Size], stride: Sequence[Size],
    padding: Sequence[Size], ceil_mode: bool, include_pad: bool, divisor: int | None,
) -> Value:
    """Each window passes its gradient by its size to all its elements."""
    rank = int(n.op.split("pool")[1][0])
    x, gradient = (_batched(v, rank) for v in (x, gradient))
    axes = _axes(n, x, kernel, stride, padding)
    counts = [axis.along(axis.counts(gradient.shape[axis.axis], include_pad), x.rank)
              for axis in axes]
    count = f.product(counts) if divisor is None else n.scalar(divisor, t.i64)
    found = gradient / count.cast(gradient.element)
    for axis in axes:
        found = f.total(_passed(axis, found, k) for k in axis.candidates)
    return found.reshape(n.shape)


def _passed(axis: _Axis, x: Value, k: int) -> Value:
    inside, found = axis.is_inside(k, x.rank), _at_windows(x, [axis], [k], 0)
    return found if inside is None else f.where(inside, found, 0.0)


@aten_op(*(f"aten._adaptive_avg_pool{k}d_backward.default" for k in (2, 3)))
def adaptive_avg_pool_gradient(n: Node, gradient: Value, x: Value) -> Value:
    """Products with the weights of the averages, one for each spatial dim."""
    rank = int(n.op.split("pool")[1][0])
    for axis in range(x.rank - rank, x.rank):
        sizes = [fixed(v.shape[axis], "sizes") for v in (gradient, x)]
        weights = n.constant(_averages(*sizes).astype(t.dtype_of(gradient.element)))
        gradient = n.swap(n.swap(gradient, axis) @ weights, axis)
    return gradient


def _averages(count: int, size: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """[count, size]: the weight of each element in each of `count` averages of almost equal parts.
    """
    places, parts = np.arange(size), np.arange(count)[:, None]
    inside = (places >= parts * size // count) & (places < -(-(parts + 1) * size // count))
    return inside / inside.sum(axis=1, keepdims=True)
