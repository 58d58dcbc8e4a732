"""Variants of kernels: what is known of the sizes for which one is compiled.

What is known of sizes decides how wide memory accesses can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from dialects.symbolic.symbol import Symbol
from targets.cuda.build.compile import Binary, Job
from targets.cuda.build.source import NARROW_ELEMENTS, KernelSource
from targets.cuda.runtime.planned import KernelCall, PlannedKernel

Variant = tuple[PlannedKernel, frozenset[Symbol], bool]
"""A kernel, its sizes that are multiples of 16, and whether offsets need 64 bits."""


class Sources(Protocol):
    """The sources of a program's kernels."""

    def source(self, kernel: PlannedKernel, wide: bool) -> KernelSource:
        """The source of a kernel; `wide`: with offsets of 64 bits."""
        ...


class Compiled(NamedTuple):
    """A compiled variant, and the source from which it was compiled, or what launches need of it.
    """

    binary: Binary
    source: KernelSource


def variant_of(call: KernelCall, values: Mapping[Symbol, int]) -> Variant:
    """The variant for given values of the kernel's sizes."""
    divisible = frozenset([s for s in call.kernel.strides if values[s] % 16 == 0])
    wide = any(int(count.evaluate(values)) > NARROW_ELEMENTS for count in call.kernel.counts)
    return call.kernel, divisible, wide


def job_of_source(variant: Variant, source: KernelSource) -> Job:
    """The compile job of a variant with this source."""
    kernel, divisible, _ = variant
    count = len(kernel.buffers)
    sizes = [count + k for k, name in enumerate(kernel.size_names) if name in divisible]
    return Job(source, (*range(count), *sizes))  # buffers lie at multiples of 256 bytes
