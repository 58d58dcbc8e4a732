"""Compiles variants of kernels in a thread before a call at other sizes needs them.

The first call at some sizes waits for the variants that it launches, and for no others. What other
sizes may need is known by then: each kernel without any knowledge of its sizes, and with all sizes
in strides divisible by 16. These serve all other sizes, too (`Kernels`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace

from targets.cuda.build.compile import Binary, CompileOptions, Job
from targets.cuda.runtime.planned import PlannedKernel
from targets.cuda.runtime.variants.variant import Compiled, Sources, Variant, job_of_source

THREAD = "strata-kernels"
Compile = Callable[[Sequence[Job], CompileOptions], list[Binary]]


class Expected:
    """The thread of a program, which starts once. `version` grows when it has ended."""

    def __init__(self) -> None:
        self.version = 0
        self._thread: threading.Thread | None = None

    def start(
        self, kernels: Iterable[PlannedKernel], compiled: MutableMapping[Variant, Compiled],
        sources: Sources, options: CompileOptions, compile_: Compile,
    ) -> None:
        """Compile what is missing of these kernels into `compiled`. Later calls do nothing."""
        if self._thread is not None:
            return
        missing = [v for v in variants_of(kernels) if v not in compiled]

        def run() -> None:
            # a call that needs the kernel has the same error; at exit, modules are gone
            with suppress(Exception):
                jobs = [job_of_source(v, sources.source(v[0], v[2])) for v in missing]
                for variant, job, binary in zip(
                        missing, jobs, compile_(jobs, _beside(options)), strict=True):
                    compiled[variant] = Compiled(binary, job.source)
                self.version += 1

        self._thread = threading.Thread(target=run, name=THREAD, daemon=True)
        if missing:
            self._thread.start()

    def wait(self) -> None:
        """Wait until the thread has ended, if there is one."""
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()


def variants_of(kernels: Iterable[PlannedKernel]) -> Iterator[Variant]:
    """The variants that together serve all sizes but those that need wide offsets."""
    for kernel in kernels:
        if kernel.size_names and not kernel.library:
            yield kernel, frozenset(), False
            if kernel.strides:
                yield kernel, frozenset(kernel.strides), False


def _beside(options: CompileOptions) -> CompileOptions:
    """The options for half of the processors, without reports of progress."""
    processes = options.processes or len(os.sched_getaffinity(0))
    return replace(options, processes=max(1, processes // 2), report=None)
