"""Compiles modules before they are loaded, in a process that needs no device: the tuner's, and
several at a time for a comparison.

The results go to the cache of compiled kernels, where `load` finds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from xdsl.dialects.builtin import ModuleOp

from dialects.host import host_function
from dialects.symbolic.symbol import Symbol
from targets.cuda.build.compile import Binary, CompileOptions, Job, compile_kernels, resources
from targets.cuda.build.worker import Worker
from targets.cuda.errors import CudaError
from targets.cuda.machine import machine_of
from targets.cuda.planning.plan import is_straight, plan_host
from targets.cuda.planning.sources import job_of, overlapping
from targets.cuda.runtime.planned import Launch
from targets.cuda.runtime.variants.variant import variant_of


class Builder:
    """Compiles one module after another, all with the same Triton process."""

    def __init__(self, options: CompileOptions) -> None:
        self.options, self.machine = options, machine_of(options.arch)
        self.worker = Worker()

    def build(self, module: ModuleOp, sizes: Mapping[Symbol, int]) -> list[str]:
        """Compile the launches of a model for these sizes. Returns reasons not to time it, if any.

        Raises CudaError for a kernel that Triton rejects, or that the machine cannot run.
        """
        if not is_straight(host_function(module)):
            raise CudaError("a model with control flow on the host cannot be compiled ahead")
        binaries = self._compiled(self._jobs(module, sizes))
        for binary in binaries:
            self._check(binary)
        return [why for binary in binaries for why in _objections(binary)]

    def build_together(self, programs: Sequence[tuple[ModuleOp, Mapping[Symbol, int]]]) -> None:
        """Compile the launches of several models at a time: the slowest kernels of each share the
        processors. Whoever loads a model learns what Triton rejects of it."""
        jobs = [job for module, sizes in programs if is_straight(host_function(module))
                for job in self._jobs(module, sizes)]
        with suppress(CudaError):
            self._compiled(jobs)

    def _jobs(self, module: ModuleOp, sizes: Mapping[Symbol, int]) -> list[Job]:
        plan = plan_host(module)
        constants = overlapping(plan, self.options)
        return [job_of(variant_of(s, s.size_values(sizes)), self.options, constants.get(s.kernel))
                for s in plan.steps if isinstance(s, Launch) and not s.kernel.library
                and s.happens(sizes)]

    def _compiled(self, jobs: Sequence[Job]) -> list[Binary]:
        if self.worker.is_lost:
            self.worker = Worker()
        return compile_kernels(jobs, self.options, self.worker)

    def _check(self, binary: Binary) -> None:
        """Raises CudaError if the kernel needs more shared memory than there is."""
        if binary.shared > self.machine.shared:
            raise CudaError(f"kernel @{binary.entry} needs {binary.shared} bytes of shared memory, "
                            f"of which a program has {self.machine.shared}")


def _objections(binary: Binary) -> Iterator[str]:
    needed = resources(binary)
    if needed is not None and needed.local:
        yield f"kernel @{binary.entry} spills {needed.local} bytes per thread"
