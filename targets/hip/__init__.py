"""The HIP target: the CUDA target's kernels, compiled for AMD GPUs by Triton's other back end.

The rules and the emitters are those of `targets/cuda`. They ask `machine.py` there for the facts of
an architecture, and it knows AMD's, too. Models compile for these GPUs but do not run on them,
because there is no launcher. In Triton's interpreter they run as on CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp

from dialects.loop import KernelOp
from dialects.strata.schedule import Schedule
from dialects.strata.weights import WeightStore
from targets.cuda.build.compile import AMD, check_toolchain, triton_version
from targets.cuda.errors import CudaError
from targets.cuda.machine import AMD_MACHINES, machine_of
from targets.cuda.target import CudaRunning, CudaScheduling, CudaTarget
from targets.hip.schedules import fitted
from targets.interface import Executable, TargetError
from targets.options import TargetOptions
from targets.parts import ReportProgress, Tuning, ignore_progress

DEFAULT_ARCH = "gfx942"


class HipScheduling(CudaScheduling):
    """CUDA's rules, with wavefronts for warps."""

    def schedule(self, kernel: KernelOp) -> Schedule:
        return fitted(super().schedule(kernel), machine_of(self.options.features))


class HipRunning(CudaRunning):
    """Models in Triton's interpreter."""

    def load(
        self, module: ModuleOp, weights: WeightStore, report: ReportProgress = ignore_progress
    ) -> Executable:
        if not self.options.interpret:
            raise TargetError("models compile for AMD GPUs but do not run on them yet: `lower` "
                              "prints the code, `--interpret` runs the kernels on the CPU")
        return super().load(module, weights, report)


@dataclass(frozen=True)
class HipTarget(CudaTarget):
    """AMD GPUs with matrix cores. Bound options always name an architecture."""

    scheduling, running = HipScheduling, HipRunning
    tuning = Tuning  # there is no device on which to time kernels

    def settled(self, options: TargetOptions) -> TargetOptions:
        return replace(options, features=options.features or DEFAULT_ARCH)

    def check(self, options: TargetOptions) -> None:
        if options.features is not None and options.features not in AMD_MACHINES:
            raise TargetError(f"target {self.name} has no architecture {options.features!r}; "
                              f"there are: {', '.join(AMD_MACHINES)}")

    def report(self) -> list[str]:
        try:
            check_toolchain(AMD)
        except CudaError as error:
            return [str(error)]
        return [f"Triton {triton_version()}: kernels compile for {', '.join(AMD_MACHINES)}, and "
                "run with --interpret"]


TARGET = HipTarget(
    "hip", ("triton", AMD.assembly), "AMD GPUs (gfx942), through Triton; compiles only")
