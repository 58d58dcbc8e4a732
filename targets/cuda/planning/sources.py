"""The sources of a program's kernels, emitted from their operations when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dialects.host import ForeignLaunchOp
from targets.cuda.build.compile import CompileOptions
from targets.cuda.build.source import KernelSource
from targets.cuda.emit import EmitOptions, emit_kernel
from targets.cuda.machine import machine_of
from targets.cuda.planning.foreign import foreign_source
from targets.cuda.runtime.planned import HostPlan, PlannedKernel, constant_buffers


@dataclass
class EmittedSources:
    """`constants`: see `EmitOptions`, for each kernel."""

    options: CompileOptions
    constants: Mapping[PlannedKernel, frozenset[int]] = field(
        default_factory=dict[PlannedKernel, frozenset[int]])
    _made: dict[tuple[PlannedKernel, bool], KernelSource] = field(
        default_factory=dict[tuple[PlannedKernel, bool], KernelSource])

    def source(self, kernel: PlannedKernel, wide: bool) -> KernelSource:
        """The source of a kernel; `wide`: with offsets of 64 bits. Raises EmitError."""
        if (kernel, wide) not in self._made:
            self._made[kernel, wide] = emitted(
                kernel, wide, self.options, self.constants.get(kernel))
        return self._made[kernel, wide]


def emitted(
    kernel: PlannedKernel, wide: bool, options: CompileOptions, constants: frozenset[int] | None
) -> KernelSource:
    """The source of a kernel. `constants`: see `EmitOptions`. Raises EmitError."""
    assert kernel.operation is not None, "code is made of operations"
    if isinstance(kernel.operation, ForeignLaunchOp):
        return foreign_source(kernel.operation)
    return emit_kernel(kernel.operation, EmitOptions(
        wide=wide, exact=not options.fp_fusion, constants=constants,
        early=machine_of(options.arch).fitted.early))


def overlapping(plan: HostPlan, options: CompileOptions) -> dict[PlannedKernel, frozenset[int]]:
    """For each kernel with programmatic dependent launch, the positions of its constant buffers;
    empty for machines without that feature."""
    return constant_buffers(plan) if machine_of(options.arch).has_early_launches else {}
