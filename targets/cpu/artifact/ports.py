"""A model's inputs and outputs as parameters in C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dialects.strata.array_type import ArrayType
from dialects.symbolic.symbol import Symbol
from targets.cpu.artifact.binding import input_symbols
from targets.cpu.artifact.c_text import DTYPES, parameter_names
from targets.cpu.runtime.plan import RunPlan
from targets.interface import TargetError
from targets.naming import Names

MOST_DIMS = 16
"""The dims of an array in the interface, STRATA_MOST_DIMS of `api.h`."""


class Ports(NamedTuple):
    """A model's inputs and outputs, and the symbols of the inputs' sizes."""

    plan: RunPlan
    outputs: Sequence[ArrayType]
    late: Sequence[bool]
    """Which outputs the run itself allocates, because only it knows their sizes."""
    symbols: Sequence[Symbol]

    @staticmethod
    def of(plan: RunPlan) -> Ports:
        """Raises TargetError for arrays of more dims than the interface has."""
        given = iter(plan.outputs)
        outputs = [next(given) if late is None else late for late in plan.returned]
        for name, type_ in zip((*plan.input_names, *plan.output_names), (*plan.inputs, *outputs),
                               strict=True):
            if type_.rank > MOST_DIMS:
                raise TargetError(f"'{name}' has {type_.rank} dims, and the C interface has at "
                                  f"most {MOST_DIMS}")
        late = [r is not None for r in plan.returned]
        return Ports(plan, outputs, late, input_symbols(plan.inputs))


class Parameter(NamedTuple):
    """A parameter of `run`: an open size, an input or an output.

    `shape`: the name of the parameter in which an output's shape is returned, if only the run knows
    it. `counter`: the name of a variable for its number of elements.
    """

    name: str
    type: ArrayType | None
    is_output: bool = False
    shape: str = ""
    counter: str = ""

    @property
    def c_type(self) -> str:
        return "int64_t" if self.type is None else DTYPES[self.type.element][1]

    @property
    def declarations(self) -> list[str]:
        if self.type is None:
            return [f"int64_t {self.name}"]
        if self.shape:
            return [f"const {self.c_type} **{self.name}",
                    f"int64_t {self.shape}[{max(1, self.type.rank)}]"]
        return [f"{'' if self.is_output else 'const '}{self.c_type} *{self.name}"]


class Parameters(NamedTuple):
    """The parameters of `run` after the state."""

    sizes: Sequence[Parameter]
    inputs: Sequence[Parameter]
    outputs: Sequence[Parameter]

    @staticmethod
    def of(ports: Ports) -> Parameters:
        names = parameter_names()
        sizes = [Parameter(names.fresh(s.name), None) for s in ports.symbols]
        inputs = [_array(names, name, type_, False, "") for name, type_ in zip(
            ports.plan.input_names, ports.plan.inputs, strict=True)]
        outputs = [_array(names, name, type_, True, "_shape" * late) for name, type_, late in zip(
            ports.plan.output_names, ports.outputs, ports.late, strict=True)]
        return Parameters(sizes, inputs, outputs)

    @property
    def declarations(self) -> list[str]:
        return [d for group in self for p in group for d in p.declarations]


def _array(names: Names, name: str, type_: ArrayType, is_output: bool, shape: str) -> Parameter:
    own = names.fresh(name)
    return Parameter(own, type_, is_output, names.fresh(own + shape) if shape else "",
                     names.fresh(f"{own}_count"))
