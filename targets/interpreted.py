"""Executables whose host program NumPy interprets, while the target runs the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from dialects.host import host_function
from dialects.host.interpret import RunKernel, interpret_host
from dialects.strata.binding import EvaluationError
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.interface import Executable


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
