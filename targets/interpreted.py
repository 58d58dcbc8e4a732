"""What a target needs that only runs kernels, of all or of some: the rest is done beside it.

NumPy interprets the host program around the launches (`InterpretedHost`), and kernels that the
target does not claim are left to another target, such as the CPU's.

A kernel at loop level is what passes made of a subgraph of the model. A target whose scheduling
derives from `SharedScheduling` says of each whether it claims it:

    class OwnScheduling(SharedScheduling):
        def claims(self, kernel):
            return any(map(is_contraction, kernel.nests))   # the device has products only

        def claimed_schedule(self, kernel):
            return ...                                       # as `schedule` of other targets

The others get the schedule of the target `beside`, with the option `left`. `Running.load` calls
`left_kernel` for each, which runs it on the arrays of the host program, and `Emission.emit` leaves
it out (`is_left`). `targets/opencl` is an example, `tests/plugin/strata_example/products_only.py`
is a smaller one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp

from dialects.block import KernelOp
from dialects.host import host_function
from dialects.host.interpret import RunKernel, interpret_host
from dialects.loop import KernelOp as LoopKernel
from dialects.loop import NestOp
from dialects.strata.binding import EvaluationError
from dialects.strata.schedule import Schedule
from dialects.strata.schedule_options import FlagOption
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from passes.contract import Packing
from targets.base import Parts, find_target
from targets.interface import Executable
from targets.options import TargetOptions
from targets.parts import Scheduling

LEFT = FlagOption("left", False, "another target runs the kernel, which its own does not claim",
                  "targets of devices")


@dataclass
class InterpretedHost(Executable):
    """A module at block level. `run_kernel` runs one kernel on C-contiguous arrays, in place."""

    module: ModuleOp
    weights: WeightStore
    run_kernel: RunKernel

    def __post_init__(self) -> None:
        function = host_function(self.module)
        self.input_names, self.output_names = function.input_names, function.output_names

    def with_weights(self, weights: WeightStore) -> InterpretedHost:
        made = copy(self)
        made.weights = weights
        return made

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        try:
            return interpret_host(self.module, inputs, self.weights, self.run_kernel)
        except EvaluationError as error:
            raise ValueError(str(error)) from error


# ---------------------------------------------------------------------- kernels for another target
class SharedScheduling(Scheduling):
    """A target's rules for the kernels that it claims, and those of `beside` for all others."""

    beside: ClassVar[str] = "cpu"
    """The target that runs what is left."""

    @abstractmethod
    def claims(self, kernel: LoopKernel) -> bool:
        """Whether this target runs a kernel. It is asked before and after `prepare`, and must
        answer the same."""

    @abstractmethod
    def claimed_schedule(self, kernel: LoopKernel) -> Schedule:
        """Choose a schedule for a kernel that is claimed."""

    @cached_property
    def _others(self) -> Parts:
        return parts_beside(self.beside, self.options)

    def schedule(self, kernel: LoopKernel) -> Schedule:
        if self.claims(kernel):
            return self.claimed_schedule(kernel)
        found = self._others.scheduling.schedule(kernel)
        own = {option.name for option in self._others.target.schedule_options}
        kept = [pair for pair in found.options if pair[0] not in own]
        return replace(found, options=(*kept, (LEFT.name, 1)))

    def prepare(self, kernel: LoopKernel) -> None:
        if not self.claims(kernel):
            self._others.scheduling.prepare(kernel)

    def panels(
        self, kernel: LoopKernel, nest: NestOp, constants: Collection[int]
    ) -> Mapping[int, Packing] | None:
        if self.claims(kernel):
            return self.claimed_panels(kernel, nest, constants)
        return self._others.scheduling.panels(kernel, nest, constants)

    def result_order(self, kernel: LoopKernel) -> Sequence[int] | None:
        return None if self.claims(kernel) else self._others.scheduling.result_order(kernel)

    def claimed_panels(
        self, kernel: LoopKernel, nest: NestOp, constants: Collection[int]
    ) -> Mapping[int, Packing] | None:
        """`panels` of a kernel that is claimed."""
        return None


def is_left(kernel: KernelOp) -> bool:
    """Whether a kernel was scheduled for another target."""
    return kernel.schedule is not None and kernel.schedule.data.option(LEFT)


def left_kernel(
    kernel: KernelOp, options: TargetOptions, beside: str = SharedScheduling.beside
) -> RunKernel:
    """A function that runs a kernel of block level on another target, on arrays and in place.

    Raises TargetError if that target cannot.
    """
    return parts_beside(beside, options).running.single(kernel)


def parts_beside(name: str, options: TargetOptions) -> Parts:
    """The parts of another target, with the options of a device that mean something there."""
    return find_target(name).bind(replace(options, features=None, triple=None))
