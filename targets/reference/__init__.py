"""The reference target: it executes a module of any level with NumPy.

It is slow, and defines what the other targets must compute. At every level an operation's
`evaluate`, next to its definition, says what it means. There is no target code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from dialects.loop import KernelOp
from dialects.strata.binding import EvaluationError
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.base import Target
from targets.interface import Executable
from targets.parts import Emission, ReportProgress, Running, Scheduling, ignore_progress
from targets.reference.interpret import interpret, model_function


class ReferenceExecutable(Executable):
    """A module and its weights, interpreted at every run."""

    def __init__(self, module: ModuleOp, weights: WeightStore):
        self.module, self.weights = module, weights
        function = model_function(module)
        self.input_names, self.output_names = function.input_names, function.output_names

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        try:
            return [np.array(v, order="C") for v in interpret(self.module, self.weights, inputs)]
        except EvaluationError as error:
            raise ValueError(str(error)) from error

    def with_weights(self, weights: WeightStore) -> ReferenceExecutable:
        return ReferenceExecutable(self.module, weights)


class ReferenceScheduling(Scheduling):
    """Keeps the axes of kernels; schedules are the simplest that can be lowered."""

    def schedule(self, kernel: KernelOp) -> Schedule:
        """One element at a time, in the order of the axes, in a single program."""
        return Schedule(tuple(Level("loop", axis) for axis in kernel.axes))


class ReferenceEmission(Emission):
    """There is no target code."""

    def emit(self, module: ModuleOp, level: str) -> str:
        raise ValueError(f"the reference target has no target code, and so no level {level!r}")


class ReferenceRunning(Running):
    """The interpreters of the dialects."""

    def load(
        self, module: ModuleOp, weights: WeightStore, report: ReportProgress = ignore_progress
    ) -> ReferenceExecutable:
        return ReferenceExecutable(module, weights)


@dataclass(frozen=True)
class ReferenceTarget(Target):
    """Defines what is right."""

    scheduling, emission, running = ReferenceScheduling, ReferenceEmission, ReferenceRunning

    def report(self) -> list[str]:
        return [f"ready: NumPy {np.__version__}"]


TARGET = ReferenceTarget(
    "reference", (), "executes every level with NumPy, as the definition of what is right",
    lowers=False)
