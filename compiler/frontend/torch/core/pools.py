"""Maximum pools: gradients from where in its window each maximum lies, and fractional windows.

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
        numbers = torch_module().arange(count, device=like.device, dtype=_counting(like))
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
    torch, sizes = torch_module(), [a.size for a in axes]
    few = all(isinstance(size, int) for size in sizes) and prod(sizes) < 1 << 31
    rest = indices.to(torch.int32) if few else indices
    found = torch.zeros([], dtype=rest.dtype, device=indices.device)
    for number, axis in enumerate(axes):
        below = prod((a.size for a in axes[number + 1:]), start=1)
        places, rest = rest // below, rest % below
        found = found * axis.span + axis.within(places)
    most = prod(axis.span for axis in axes)
    kind = next(k for k in (torch.int8, torch.int16, torch.int32) if most <= torch.iinfo(k).max)
    return found.to(kind)


def _counting(like: Any) -> Any:
    """The type of integers in which to count along with these; the widest one for floats."""
    torch = torch_module()
    return torch.int64 if like.is_floating_point() else like.dtype


# ---------------------------------------------------------------------- windows of other forms
def placed_gradient(rank: int, given: Any, x: Any, *more: Any) -> Any:
    """The gradient of x [..., s...] of so many spatial dims, of which results took elements.

    The last argument has their indices [..., t...], row-major among the spatial dims.
    """
    torch, lead = torch_module(), x.dim() - rank
    rows = more[-1].flatten(lead)
    zeros = torch.zeros_like(x).flatten(lead)
    return zeros.scatter_add(-1, rows, given.flatten(lead)).reshape(x.shape)


def fractional_max_pool(
    rank: int, x: Any, kernel: Sequence[int], sizes: Sequence[int], draws: Any
) -> Any:
    """Maxima of windows whose starts are drawn, and their places; of several NaN, the last one's.

    x [n, c, s...] or [c, s...]; draws [n, c, rank] in 0 to 1, for images those of columns first.
    """
    torch, lead = torch_module(), x.dim() - rank
    if any(not isinstance(s, int) for s in x.shape[lead:]):
        return NotImplemented
    index = torch.zeros((), dtype=torch.int64, device=x.device)
    for a in range(rank):
        own = draws[..., 1 - a if rank == 2 else a].reshape(*x.shape[:lead], 1)
        starts = _drawn_starts(own, x.shape[lead + a], kernel[a], sizes[a])
        taps = starts.unsqueeze(-1) + torch.arange(kernel[a], device=x.device)
        ones = [1] * (rank - 1 - a)
        form = [*x.shape[:lead], *[1] * a, sizes[a], *ones, *[1] * a, kernel[a], *ones]
        index = index * x.shape[lead + a] + taps.reshape(form)
    index = index.flatten(-rank)
    flat, places = x.flatten(lead), index.flatten(lead)
    taken = flat.gather(-1, places).reshape(index.shape)
    first = index.gather(-1, taken.argmax(-1, keepdim=True)).squeeze(-1)
    last = torch.where(taken.isnan(), index, -1).amax(-1)
    return taken.amax(-1), torch.where(last < 0, first, last)


def _drawn_starts(draw: Any, size: int, kernel: int, count: int) -> Any:
    """Where the windows of an axis start; the last one ends the axis. [..., count]"""
    torch = torch_module()
    numbers = torch.arange(count, device=draw.device)
    step = (size - kernel) / (count - 1) if count > 1 else 0.0
    starts = ((numbers + draw) * step).to(torch.int64) - (draw * step).to(torch.int64)
    return torch.where(numbers == count - 1, size - kernel, starts)
