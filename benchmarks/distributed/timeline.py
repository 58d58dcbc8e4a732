"""What runs on a device during a call, in order: kernels and copies, and whether exchanges overlap.

CUPTI records them, through PyTorch's profiler, also those of CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import DeviceType


@dataclass(frozen=True)
class Span:
    """A kernel or a copy: when it began after the first one, and how long it took, in
    microseconds. `stream`: where it ran, as CUPTI numbers streams."""

    name: str
    start: float
    length: float
    stream: int

    @property
    def end(self) -> float:
        return self.start + self.length

    @property
    def is_exchange(self) -> bool:
        """Whether NCCL exchanges data with other ranks."""
        return self.name.startswith("nccl")


def recorded(call: Callable[[], Any]) -> list[Span]:
    """What the device does in a call, in the order of its beginning; nothing without a GPU."""
    call()
    if not torch.cuda.is_available():
        return []
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    events = [e for e in profiler.events() or () if e.device_type == DeviceType.CUDA]
    first = min((e.time_range.start for e in events), default=0)
    spans = [Span(e.name, e.time_range.start - first, e.time_range.elapsed_us(),
                  e.device_resource_id) for e in events]
    return sorted(spans, key=lambda s: s.start)


def covered(spans: Sequence[Span]) -> float:
    """The microseconds in which any of them runs."""
    total, end = 0.0, 0.0
    for span in sorted(spans, key=lambda s: s.start):
        total += max(0.0, span.end - max(end, span.start))
        end = max(end, span.end)
    return total


def summary(spans: Sequence[Span]) -> str:
    """How long exchanges and other work took, and how much of it at the same time."""
    exchanges = [s for s in spans if s.is_exchange]
    others = [s for s in spans if not s.is_exchange]
    both, whole = covered(spans), max((s.end for s in spans), default=0.0)
    return (f"{whole:.0f} us: {len(others)} launches in {covered(others):.0f} us, "
            f"{len(exchanges)} exchanges in {covered(exchanges):.0f} us, of which "
            f"{both - covered(others):.0f} us beside nothing else; nothing runs for "
            f"{whole - both:.0f} us")


def listing(spans: Sequence[Span]) -> str:
    """A line for each: when it began and how long it took, in microseconds, stream and name."""
    return "\n".join(f"{s.start:9.1f} {s.length:8.1f} {s.stream:4d}  {s.name[:100]}" for s in spans)
