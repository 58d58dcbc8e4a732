"""A compiled model as data: its signature, the plan of its host functions, and its kernels.

`planning/program.py` makes it from a module at block level, and `stored.py` writes it to files and
reads it back. `CudaExecutable` runs it. Nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dialects.strata.array_type import ArrayType
from dialects.strata.assumptions import Assumption
from dialects.symbolic.symbol import Symbol
from targets.cuda.build.source import KernelSource
from targets.cuda.errors import CudaError
from targets.cuda.runtime.control import ControlPlan
from targets.cuda.runtime.planned import HostPlan, KernelCall, PlannedKernel
from targets.cuda.runtime.variants.variant import Compiled, Sources, Variant, variant_of


@dataclass(frozen=True)
class Signature:
    """What callers see of a model. `assumptions`: about the sizes of inputs, choices first."""

    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    inputs: tuple[ArrayType, ...]
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """All fields, as JSON can represent them."""
        return {"input_names": self.input_names, "output_names": self.output_names,
                "inputs": [t.facts() for t in self.inputs],
                "assumptions": [a.facts() for a in self.assumptions], "notes": self.notes}

    @staticmethod
    def read(facts: Mapping[str, Any]) -> Signature:
        """The inverse of `facts`."""
        return Signature(
            tuple(map(str, facts["input_names"])), tuple(map(str, facts["output_names"])),
            tuple(map(ArrayType.read, facts["inputs"])),
            tuple(map(Assumption.read, facts["assumptions"])), tuple(map(str, facts["notes"])))


@dataclass(frozen=True)
class CudaProgram:
    """`host`: straight steps, which become one graph, or functions that run step by step.

    `compiled`: variants that are compiled already; `sources` compile all others.
    """

    signature: Signature
    host: HostPlan | ControlPlan
    sources: Sources
    compiled: Mapping[Variant, Compiled] = field(default_factory=dict[Variant, Compiled])

    def variants(self, sizes: Mapping[Symbol, int]) -> list[Variant]:
        """The variants that a run with these sizes of the inputs compiles, unless it launches them
        at sizes that only the run knows. Raises CudaError for sizes that 32 bits do not hold."""
        return [variant_of(call, call.size_values(sizes)) for call in self._calls
                if not call.kernel.library and call.symbols <= sizes.keys()
                and call.happens(sizes)]

    @property
    def _calls(self) -> Sequence[KernelCall]:
        """The launches that are over the sizes of the inputs."""
        if isinstance(self.host, HostPlan):
            return self.host.launches
        main = next(f for f in self.host.functions if f.name == self.host.main)
        return [step.call for step in main.launches]


@dataclass(frozen=True)
class ReadSources:
    """Sources from a file."""

    sources: Mapping[tuple[PlannedKernel, bool], KernelSource]

    def source(self, kernel: PlannedKernel, wide: bool) -> KernelSource:
        """The source of a kernel. Raises CudaError for a variant that the file does not have."""
        found = self.sources.get((kernel, wide))
        if found is None:
            raise CudaError(f"the program's file has no code for kernel @{kernel.name} at these "
                            "sizes: compile the model again")
        return found
