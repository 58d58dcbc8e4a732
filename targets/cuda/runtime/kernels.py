"""Compiled kernels on the device, and launches with packed parameters.

A kernel is compiled once per variant, because what is known of its sizes decides how wide its
memory accesses can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dialects.symbolic.symbol import Symbol
from targets.cuda.build.compile import Binary, CompileOptions, Job, compile_kernels
from targets.cuda.emit import EmitOptions, KernelSource, emit_kernel
from targets.cuda.errors import CudaError
from targets.cuda.libraries.calls import LibraryLaunch, library_launch
from targets.cuda.machine import WARP, machine_of
from targets.cuda.runtime import driver
from targets.cuda.runtime.planned import HostPlan, KernelCall, PlannedKernel, constant_buffers
from targets.cuda.runtime.tensor_maps import TensorMap
from targets.locks import Turns

_INT32 = 2**31 - 1

Variant = tuple[PlannedKernel, frozenset[Symbol], bool]
"""A kernel, its sizes that are multiples of 16, and whether offsets need 64 bits."""


def variant_of(call: KernelCall, values: Mapping[Symbol, int]) -> Variant:
    """The variant for given values of the kernel's sizes."""
    divisible = frozenset([s for s in call.kernel.strides if values[s] % 16 == 0])
    wide = any(int(count.evaluate(values)) > _INT32 for count in call.kernel.counts)
    return call.kernel, divisible, wide


class Kernels:
    """Compiled kernels on the device, by variant. Only one thread at a time adds to them."""

    def __init__(self, options: CompileOptions) -> None:
        self._options = options
        self._turns = Turns("preparing kernels of the model on the GPU", CudaError)
        self._loaded: dict[Variant, tuple[Any, Binary, KernelSource]] = {}
        self._constants: Mapping[PlannedKernel, frozenset[int]] = {}

    @property
    def lanes(self) -> int:
        """How many chains of kernels of a graph run in parallel."""
        return machine_of(self._options.arch).fitted.graph_lanes

    def overlap(self, plan: HostPlan) -> None:
        """Enable programmatic dependent launch for a graph's kernels, before any is compiled."""
        self._constants = overlapping(plan, self._options)

    def prepare(self, variants: Iterable[Variant]) -> None:
        """Compile and load the missing variants together, except kernels that are library calls."""
        with self._turns:
            self._load(_without_libraries(variants))

    def _load(self, variants: Iterable[Variant]) -> None:
        missing = [v for v in dict.fromkeys(variants) if v not in self._loaded]
        jobs = [job_of(v, self._options, self._constants.get(v[0])) for v in missing]
        binaries = compile_kernels(jobs, self._options)
        for variant, job, binary in zip(missing, jobs, binaries, strict=True):
            function = driver.load_function(binary.cubin, binary.entry, binary.shared)
            self._loaded[variant] = function, binary, job.source

    def pack(
        self, call: KernelCall, sizes: Mapping[Symbol, int], addresses: Sequence[int],
        others: Callable[[], Iterable[Variant]] = tuple,
    ) -> PackedLaunch | LibraryLaunch | None:
        """A launch for sizes of the host, on buffers at addresses; None if it has no programs.

        If the variant is missing, `others` that will be needed soon are compiled with it. Raises
        CudaError for more programs, or larger sizes, than a kernel can count.
        """
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
        variant = variant_of(call, values)
        if variant not in self._loaded:
            self._load([variant, *_without_libraries(others())])
        function, binary, source = self._loaded[variant]
        if source.groups:
            programs = source.programs(call.extents(values), driver.multiprocessors())
        filled: list[Any] = [*addresses, *values.values()]
        for descriptor in binary.descriptors:
            type_ = call.kernel.buffers[descriptor.place]
            shape = [int(e.evaluate(values)) for e in type_.shape]
            filled[descriptor.place] = TensorMap(
                addresses[descriptor.place], shape, type_.dtype.itemsize, descriptor)
        parameters, cells = driver.pack_parameters(filled, binary.parameters)
        return PackedLaunch(function, programs, WARP * binary.warps, binary.shared, parameters,
                            cells, source.waits)


def _without_libraries(variants: Iterable[Variant]) -> list[Variant]:
    return [v for v in variants if not v[0].library]


def overlapping(plan: HostPlan, options: CompileOptions) -> dict[PlannedKernel, frozenset[int]]:
    """For each kernel with programmatic dependent launch, the positions of its constant buffers;
    empty for machines without that feature."""
    return constant_buffers(plan) if machine_of(options.arch).has_early_launches else {}


def job_of(
    variant: Variant, options: CompileOptions, constants: frozenset[int] | None = None
) -> Job:
    """The compile job of a variant. `constants`: see `EmitOptions`."""
    kernel, divisible, wide = variant
    count = len(kernel.buffers)
    sizes = [count + k for k, name in enumerate(kernel.size_names) if name in divisible]
    assert kernel.operation is not None, "code is made of operations"
    source = emit_kernel(kernel.operation, EmitOptions(
        wide=wide, exact=not options.fp_fusion, constants=constants,
        early=machine_of(options.arch).fitted.early))
    return Job(source, (*range(count), *sizes))  # buffers lie at multiples of 256 bytes


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

    def __call__(self, stream: int) -> None:
        driver.launch(self.function, self.programs, self.threads, self.shared, self.parameters,
                      stream)

    def point(self, place: int, address: int) -> None:
        """Set the address of one buffer for later launches."""
        self.cells[place].value = address

    def point_at(self, addresses: Sequence[int]) -> None:
        """Set the addresses of all buffers for later launches."""
        for cell, address in zip(self.cells, addresses, strict=False):
            cell.value = address
