"""The gradient of a maximum pool, from where in its window each maximum lies.

    %y, %places = max_pool2d_with_indices(%x, 3, stride 2, pad 1)        i64[n, c, 56, 56]
    %dx = max_pool2d_with_indices_backward(%dy, %x, ..., %places)
    -->  %within = i8 from %places                                        one of 4 * 4
         %dx = sum over windows that can hold an element: where(%within == its own, %dy, 0)

Small numbers are computed next to the pool, so they are what the partitioner saves. An element at
position h lies in the windows (h + pad) // stride - k for k = 0, 1, ..., as far as they reach, and
nothing is scattered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as combinations
from math import prod
from typing import Any

from compiler.frontend.torch.library import torch_module


@dataclass(frozen=True)
class _Axis:
    """Windows along one axis of `size` elements, `after` axes before the last.

    `reach`: from the first to the last element of a window, plus one.
    """

    after: int
    size: Any
    stride: int
    pad: int
    reach: int

    @property
    def candidates(self) -> int:
        """The number of windows that can hold an element."""
        return -(-self.reach // self.stride)

    @property
    def span(self) -> int:
        """A number that distances from the start of such a window do not reach."""
        return self.candidates * self.stride

    def range(self, count: Any, like: Any) -> Any:
        numbers = torch_module().arange(count, device=like.device)
        return numbers.reshape(-1, *[1] * self.after)

    def within(self, places: Any) -> Any:
        """How far elements at these places lie from the starts of their windows."""
        starts = self.range(places.shape[-1 - self.after], places) * self.stride - self.pad
        return places - starts

    def distance(self, k: int, like: Any) -> Any:
        """How far each element lies from the start of its k-th window."""
        return (self.range(self.size, like) + self.pad) % self.stride + k * self.stride

    def ends(self, k: int) -> list[int]:
        """How many windows are added before and after, so that each element has a k-th one."""
        return [k, max(0, -(-(self.reach - 1 - self.pad) // self.stride) + 1 - k)]

    def of_elements(self, x: Any) -> Any:
        """For each element of the axis, x at its window, for x that begins at its first one."""
        dim, shape = x.dim() - self.after, [*x.shape]
        repeated = x.unsqueeze(dim).expand(*shape[:dim], self.stride, *shape[dim:])
        merged = repeated.reshape(*shape[:dim - 1], shape[dim - 1] * self.stride, *shape[dim:])
        return merged.narrow(dim - 1, self.pad, self.size)


def max_pool_gradient(
    given: Any, x: Any, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], ceil_mode: bool, indices: Any,
) -> Any:
    """Each window passes its gradient to the element that was its maximum."""
    axes = _axes(x, kernel, stride, padding, dilation)
    within = _within(axes, indices)
    total: Any = None
    for windows in combinations(*(range(axis.candidates) for axis in axes)):
        own = torch_module().zeros([], dtype=torch_module().int64, device=x.device)
        for axis, k in zip(axes, windows, strict=True):
            own = own * axis.span + axis.distance(k, x)
        chosen, passed = (_at_windows(v, axes, windows, fill)
                          for v, fill in ((within, -1), (given, 0)))
        term = torch_module().where(chosen == own.to(within.dtype), passed, 0)
        total = term if total is None else total + term
    return total


def _axes(
    x: Any, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int],
) -> list[_Axis]:
    rank = len(kernel)
    spread = [list(v) * (rank // len(v)) for v in (kernel, stride or kernel, padding, dilation)]
    return [_Axis(rank - 1 - a, x.shape[a - rank], s, p, d * (k - 1) + 1)
            for a, (k, s, p, d) in enumerate(zip(*spread, strict=True))]


def _at_windows(x: Any, axes: Sequence[_Axis], windows: Sequence[int], fill: int) -> Any:
    """For each element, x at the window of these numbers; `fill` where there is none."""
    pads = [v for axis, k in zip(axes, windows, strict=True) for v in reversed(axis.ends(k))]
    x = torch_module().ops.aten.constant_pad_nd(x, pads[::-1], fill)
    for axis in axes:
        x = axis.of_elements(x)
    return x


def _within(axes: Sequence[_Axis], indices: Any) -> Any:
    """Distances of maxima from the starts of their windows as one small number."""
    torch = torch_module()
    found, rest = torch.zeros([], dtype=torch.int64, device=indices.device), indices
    for number, axis in enumerate(axes):
        below = prod((a.size for a in axes[number + 1:]), start=1)
        places, rest = rest // below, rest % below
        found = found * axis.span + axis.within(places)
    most = prod(axis.span for axis in axes)
    kind = next(k for k in (torch.int8, torch.int16, torch.int32) if most <= torch.iinfo(k).max)
    return found.to(kind)
