"""Which kernels take the time of a call on a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

Span = tuple[str, float, float]
"""A kernel's name, and when it started and ended."""


def slowest_kernels(call: Callable[[], Any], count: int) -> list[tuple[str, int, float]]:
    """The kernels for which a call waits longest: name, number, microseconds; first the sums.

    A kernel counts from its start, or from the end of all that ended before it, if that is later.
    So times add up, although a kernel that is launched early waits for the one before it, and
    although branches of a CUDA graph overlap.
    """
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        call()
        torch.cuda.synchronize()
    spans = [(event.name[:60], event.time_range.start, event.time_range.end)
             for event in found.events() if event.device_type == DeviceType.CUDA]
    waits, numbers = waited_for(spans), Counter(name for name, _, _ in spans)
    rows = sorted(((name, numbers[name], wait) for name, wait in waits.items()),
                  key=lambda row: -row[2])
    return [("all", len(spans), sum(waits.values())), *rows[:count]]


def waited_for(spans: Iterable[Span]) -> Counter[str]:
    """How much later everything ended because of the kernels of each name."""
    found, done = Counter[str](), float("-inf")
    for name, start, end in sorted(spans, key=lambda span: span[2]):
        found[name] += end - max(start, done)
        done = end
    return found
