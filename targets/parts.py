"""The parts of a target: scheduling, emission, building, running and tuning.

A part is one class. Each is created once per compilation, for the options of that compilation, and
is asked without them. What a part leaves out has its default here; what passes ask has its default
in `passes/contract.py` (`Facts`, `Rules`). A new target must define three methods:

    Scheduling.schedule   a kernel's axes become grid, loops and tiles
    Emission.emit         block kernels become text
    Running.load          a module becomes an executable
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from xdsl.dialects.builtin import ModuleOp

from dialects.block import KernelOp as BlockKernel
from dialects.loop import KernelOp
from dialects.strata.schedule import Schedule
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from passes.contract import Rules
from targets.interface import Executable, TargetError, Timer, cpu_seconds
from targets.options import TargetOptions
from targets.profiles import MOST_RUNS, Probe, Profile, mean_seconds
from targets.shipping import Cargo

if TYPE_CHECKING:
    from dialects.host.interpret import RunKernel
    from dialects.semantics.ring import Ring

SETTLED = 0.25
"""For how many seconds a program runs at least before its quickest run counts."""
ReportProgress = Callable[[int, int], None]
"""Called as work proceeds: with how many kernels have code, and how many there are."""


def ignore_progress(done: int, total: int) -> None:
    """For work whose progress is not shown."""


@dataclass(frozen=True)
class Part:
    """What every part knows: the target's name and levels, and the options that it is bound to."""

    name: str
    levels: Sequence[str]
    """The target's forms of code, from readable to final."""
    options: TargetOptions


class Scheduling(Part, Rules):
    """What the target decides about kernels: one schedule by its rules, others to try."""

    def candidates(self, kernel: KernelOp, around: Schedule) -> Sequence[Schedule]:
        """Schedules to try besides `around`, most promising first.

        `kernel` has the form that the rules see before packing: `panels` follows from its schedule.
        """
        return ()


class Emission(Part, ABC):
    """Target code as text."""

    @abstractmethod
    def emit(self, module: ModuleOp, level: str) -> str:
        """The target code of a module at block level, as text of one of `levels`."""


class Building(Part):
    """Compilation ahead of running."""

    def begin(self) -> None:
        """Start slow preparations while the passes still run; `Running.load` will follow."""

    def expect(self, module: ModuleOp) -> None:
        """Start preparations that depend on the model, at graph level; `Running.load` will follow.
        """

    def build(
        self, module: ModuleOp, weights: WeightStore, sizes: Mapping[Symbol, int]
    ) -> Sequence[str]:
        """Compile a module for given sizes of its inputs, in a process that runs no kernels. A
        later `Running.load` finds the code in the cache.

        Returns the reasons, if any, not to time it.
        """
        return ()

    def jobs(self, module: ModuleOp, sizes: Mapping[Symbol, int]) -> Mapping[str, Any]:
        """What `Running.load` would have to compile for given sizes of a module's inputs, as
        `compile_ahead` takes it, by names that equal code shares; empty where nothing can be
        compiled before."""
        return {}

    def compile_ahead(self, jobs: Sequence[Any]) -> None:
        """Compile jobs, in any number of threads at a time, beside passes. A later `Running.load`
        finds the code in the cache; what cannot be compiled is left to it."""

    def ship(
        self, module: ModuleOp, weights: WeightStore, report: ReportProgress = ignore_progress
    ) -> Cargo:
        """Compile a module to what a library needs, which runs without Python.

        Raises TargetError if the target, the machine or the module does not allow that.
        """
        raise TargetError(f"the target {self.name} writes no libraries")


class Running(Part, ABC):
    """Executables, and how long they take."""

    measures_apart: ClassVar[bool] = False
    """Whether timings are unaffected by other work of the processors at the same time."""
    probe: ClassVar[Probe] = Probe((256, 512, 1024), 1 << 24)
    """The programs that show how fast the machine is."""

    def check_machine(self) -> None:
        """Raises TargetError if this machine cannot run what the options ask for."""

    @abstractmethod
    def load(
        self, module: ModuleOp, weights: WeightStore, report: ReportProgress = ignore_progress
    ) -> Executable:
        """Make a module at block level (a host function and block kernels) runnable."""

    def single(self, kernel: BlockKernel) -> RunKernel:
        """A function that runs one kernel of block level on arrays, in place, for targets that
        leave it to this one (`targets/interpreted.py`). Raises TargetError if there is none."""
        raise TargetError(f"the target {self.name} runs no single kernels")

    def load_in_ring(self, module: ModuleOp, weights: WeightStore, ring: Ring) -> Executable | None:
        """The target's code in a ring, with residues as inputs and outputs; None if it has none.

        Raises TargetError for a module that cannot be executed in the ring.
        """
        return None

    def profile(self, module: ModuleOp, weights: WeightStore) -> Profile:
        """A program that times its launches. Raises TargetError if the target has none."""
        self.check_machine()
        raise TargetError(f"the target {self.name} cannot time the kernels of a running program")

    def seconds(self, executable: Executable, inputs: Sequence[Array]) -> float:
        """The least seconds of some runs, on inputs that lie where kernels read them."""
        def run() -> None:
            executable.run(inputs)

        run()
        times = [mean_seconds(run, 1) for _ in range(6)]
        until = time.monotonic() + SETTLED
        while len(times) < MOST_RUNS and time.monotonic() < until:
            times.append(mean_seconds(run, 1))
        return min(times)

    def timer(
        self, executable: Executable, inputs: Sequence[Array], footprint: int
    ) -> Timer:
        """The timer of one kernel of a model whose constants take `footprint` bytes."""
        return lambda calls: cpu_seconds(executable, inputs, calls)


class Tuning(Part):
    """What tuned schedules depend on."""

    def key(self) -> str | None:
        """What the fastest schedules depend on: the machine, and the version of the candidates.
        None: the target has no candidates.
        """
        return None

    def library_keys(self) -> Sequence[str]:
        """What else the speed of kernels depends on if `options.library` allows library calls: the
        installed libraries with their versions."""
        return ()

    def library_of(self, kernel: KernelOp) -> str | None:
        """The key of the library that some of the kernel's candidates call; None without any."""
        return None
