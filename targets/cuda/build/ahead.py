"""Compiles modules before they are loaded, in a process that needs no device: the tuner's, and
those of a comparison while further ones are lowered.

The results go to the cache of compiled kernels, where `load` finds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Lock

from xdsl.dialects.builtin import ModuleOp

from dialects.host import host_function
from dialects.symbolic.symbol import Symbol
from targets.cuda.build.compile import Binary, CompileOptions, Job, compile_kernels, resources
from targets.cuda.build.worker import Worker, worker
from targets.cuda.errors import CudaError
from targets.cuda.machine import machine_of
from targets.cuda.planning.plan import is_straight
from targets.cuda.planning.program import program_of
from targets.cuda.runtime.variants.variant import job_of_source


def jobs_of(
    module: ModuleOp, sizes: Mapping[Symbol, int], options: CompileOptions, one_launch: bool = True
) -> list[Job]:
    """The launches of a model for these sizes as a later `load_module` compiles them."""
    program = program_of(module, options, one_launch)
    return [job_of_source(v, program.sources.source(v[0], v[2]))
            for v in dict.fromkeys(program.variants(sizes))]


class Builder:
    """Compiles modules, all with the same Triton process, also in several threads. `one_launch`: as
    in `program_of`."""

    def __init__(self, options: CompileOptions, one_launch: bool = True) -> None:
        self.options, self.machine = options, machine_of(options.arch)
        self.one_launch = one_launch
        self.worker, self._replacing = worker(), Lock()

    def build(self, module: ModuleOp, sizes: Mapping[Symbol, int]) -> list[str]:
        """Compile the launches of a model for these sizes. Returns reasons not to time it, if any.

        Raises CudaError for a kernel that Triton rejects, or that the machine cannot run.
        """
        if not is_straight(host_function(module)):
            raise CudaError("a model with control flow on the host cannot be compiled ahead")
        binaries = self._compiled(jobs_of(module, sizes, self.options, self.one_launch))
        for binary in binaries:
            self._check(binary)
        return [why for binary in binaries for why in _objections(binary)]

    def keep(self, jobs: Sequence[Job]) -> None:
        """Compile jobs into the cache. Whoever loads a model learns what Triton rejects of it."""
        with suppress(CudaError):
            self._compiled(jobs)

    def _compiled(self, jobs: Sequence[Job]) -> list[Binary]:
        with self._replacing:
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
