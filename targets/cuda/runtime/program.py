"""A compiled model as data: its signature, the plan of its host functions, and its kernels.

`planning/program.py` makes it from a module at block level, and `stored.py` writes it to files and
reads it back. `CudaExecutable` runs it. Nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dialects.strata.array_type import ArrayType
from dialects.strata.assumptions import Assumption
from targets.cuda.build.source import KernelSource
from targets.cuda.errors import CudaError
from targets.cuda.runtime.control import ControlPlan
from targets.cuda.runtime.planned import HostPlan, PlannedKernel
from targets.cuda.runtime.variants.variant import Compiled, Sources, Variant


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
