"""Compiled kernels on the device, and launches with packed parameters.

A kernel is compiled once per variant, because what is known of its sizes decides how wide its
memory accesses can be. Nothing here imports xDSL: sources are text, and Triton compiles them in a
process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dialects.symbolic.symbol import Symbol
from targets.cuda.build.compile import CompileOptions, compile_kernels
from targets.cuda.errors import CudaError
from targets.cuda.libraries.calls import LibraryLaunch, library_launch
from targets.cuda.machine import WARP, machine_of
from targets.cuda.runtime import driver
from targets.cuda.runtime.planned import KernelCall, PlannedKernel
from targets.cuda.runtime.tensor_maps import TensorMap
from targets.cuda.runtime.variants.expected import Expected
from targets.cuda.runtime.variants.variant import (
    Compiled,
    Sources,
    Variant,
    job_of_source,
    variant_of,
)
from targets.locks import Turns


class Kernels:
    """Compiled kernels on the device, by variant. Only one thread at a time adds to them."""

    def __init__(
        self, options: CompileOptions, sources: Sources,
        compiled: Mapping[Variant, Compiled] | None = None,
    ) -> None:
        """`compiled`: the variants that need not be compiled."""
        self.options, self.sources = options, sources
        self._turns = Turns("preparing kernels of the model on the GPU", CudaError)
        self.compiled: dict[Variant, Compiled] = dict(compiled or {})
        self._functions: dict[Variant, Any] = {}
        self._expected = Expected()

    @property
    def version(self) -> int:
        """Grows when variants were compiled that may suit sizes better than those in use."""
        return self._expected.version

    def expect(self, kernels: Iterable[PlannedKernel]) -> None:
        """Compile, once and in a thread, the variants of these kernels that other sizes need."""
        self._expected.start(kernels, self.compiled, self.sources, self.options, compile_kernels)

    def wait(self) -> None:
        """Wait until everything that is expected is compiled."""
        self._expected.wait()

    def suited(self, variant: Variant) -> Variant:
        """The variant, or the one that knows most of these sizes among those that are compiled."""
        kernel, divisible, wide = variant
        if variant in self.compiled:
            return variant
        others = [v for v in [*self.compiled] if v[0] is kernel and v[2] == wide
                  and v[1] <= divisible]
        return max(others, key=lambda v: len(v[1]), default=variant)

    @property
    def lanes(self) -> int:
        """How many chains of kernels of a graph run in parallel."""
        return machine_of(self.options.arch).fitted.graph_lanes

    def prepare(self, variants: Iterable[Variant]) -> None:
        """Compile and load the missing variants together, except kernels that are library calls."""
        with self._turns:
            self._load(_without_libraries(variants))

    def _load(self, variants: Iterable[Variant]) -> None:
        wanted = [v for v in dict.fromkeys(map(self.suited, variants)) if v not in self._functions]
        missing = [v for v in wanted if v not in self.compiled]
        if missing:
            jobs = [job_of_source(v, self.sources.source(v[0], v[2])) for v in missing]
            for variant, job, binary in zip(
                    missing, jobs, compile_kernels(jobs, self.options), strict=True):
                self.compiled[variant] = Compiled(binary, job.source)
        for variant in wanted:
            binary = self.compiled[variant].binary
            self._functions[variant] = driver.load_function(
                binary.cubin, binary.entry, binary.shared)

    def pack(
        self, call: KernelCall, sizes: Mapping[Symbol, int], addresses: Sequence[int],
        others: Callable[[], Iterable[Variant]] = tuple,
    ) -> PackedLaunch | LibraryLaunch | None:
        """A launch for sizes of the host, on buffers at addresses; None if it has no programs, or
        is not launched at these sizes.

        If the variant is missing, `others` that will be needed soon are compiled with it. Raises
        CudaError for more programs, or larger sizes, than a kernel can count.
        """
        if not call.happens(sizes):
            return None
        values = call.size_values(sizes)
        programs = call.programs(values)
        if programs == 0:
            return None
        with self._turns:
            return library_launch(call, values, addresses) or self._pack(
                call, values, programs, addresses, others)

    def _pack(
        self, call: KernelCall, values: Mapping[Symbol, int], programs: int,
        addresses: Sequence[int], others: Callable[[], Iterable[Variant]],
    ) -> PackedLaunch:
        """A launch of one of our own kernels. `values`: the values of its sizes."""
        variant = self.suited(variant_of(call, values))
        if variant not in self._functions:
            self._load([variant, *_without_libraries(others())])
        function, (binary, source) = self._functions[variant], self.compiled[variant]
        if source.groups:
            programs = source.programs(call.extents(values), driver.multiprocessors())
        count = len(call.kernel.buffers)  # what follows is no buffer
        filled: list[Any] = [*addresses[:count], *values.values(), *addresses[count:]]
        for descriptor in binary.descriptors:
            type_ = call.kernel.buffers[descriptor.place]
            shape = [int(e.evaluate(values)) for e in type_.shape]
            filled[descriptor.place] = TensorMap(
                addresses[descriptor.place], shape, type_.dtype.itemsize, descriptor)
        parameters, cells = driver.pack_parameters(filled, binary.parameters)
        grid = tuple(call.extents(values)) if source.spread else ()
        return PackedLaunch(function, programs, WARP * binary.warps, binary.shared, parameters,
                            cells, source.waits, grid)


def _without_libraries(variants: Iterable[Variant]) -> list[Variant]:
    return [v for v in variants if not v[0].library]


@dataclass(frozen=True)
class PackedLaunch:
    """A launch with packed parameters, whose memory is `cells`. `waits`: whether the kernel itself
    waits for the launch before it (programmatic dependent launch)."""

    function: Any
    programs: int
    threads: int
    shared: int
    parameters: Any
    cells: list[Any]
    waits: bool = False
    grid: tuple[int, ...] = ()
    """The axes of the programs; empty for one axis."""

    @property
    def blocks(self) -> tuple[int, int, int]:
        """The numbers of programs along three axes."""
        x, y, z = (*(self.grid or (self.programs,)), 1, 1)[:3]
        return x, y, z

    def __call__(self, stream: int) -> None:
        driver.launch(self.function, self.blocks, self.threads, self.shared, self.parameters,
                      stream)

    def point(self, place: int, address: int) -> None:
        """Set the address of one buffer for later launches."""
        self.cells[place].value = address

    def point_at(self, addresses: Sequence[int]) -> None:
        """Set the addresses of all buffers for later launches."""
        for cell, address in zip(self.cells, addresses, strict=False):
            cell.value = address
