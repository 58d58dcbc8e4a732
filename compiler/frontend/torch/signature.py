"""The placeholders of a program that are weights, and the outputs that a caller gets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compiler.frontend.faults import Faults


@dataclass(frozen=True)
class Signature:
    """The roles of a program's placeholders and outputs.

    `weights`: placeholder -> tensor. `labels`: placeholder -> the name of a weight in the model, or
    of an argument for the caller. `results`: the indices of the outputs that the caller gets.
    `parameters`: the weights whose contents may be replaced. `unread`: integers that nothing
    reads, which a compiled graph does not take: they may be no numbers, as the sizes of nested
    tensors are not. `negative`: integers that are below 0.
    """

    weights: Mapping[str, Any]
    results: Sequence[int]
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    parameters: Collection[str] = ()
    unread: Collection[str] = ()
    negative: Collection[str] = ()

    def shown(self, name: str) -> str:
        return self.labels.get(name, name)


def signature_of(program: Any, faults: Faults) -> Signature:
    """The signature of an ExportedProgram. What a compiled model cannot keep is added to `faults`.

    New contents of buffers are dropped: a compiled model is for inference, so that its weights do
    not change. New contents of an argument are a fault, since the caller may rely on them.
    """
    weights: dict[str, Any] = {}
    labels: dict[str, str] = {}
    for spec in program.graph_signature.input_specs:
        kind, name = spec.kind.name, spec.arg.name
        if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            held = program.state_dict if spec.target in program.state_dict else program.constants
            weights[name], labels[name] = held[spec.target], spec.target
        elif kind != "USER_INPUT":
            faults.add(f"input '{name}' is a {kind.lower().replace('_', ' ')}, which cannot be "
                       "compiled")
    return Signature(weights, _results(program, faults), labels)


def _results(program: Any, faults: Faults) -> list[int]:
    results: list[int] = []
    for k, spec in enumerate(program.graph_signature.output_specs):
        kind = spec.kind.name
        if kind == "USER_OUTPUT":
            results.append(k)
        elif kind == "USER_INPUT_MUTATION":
            faults.add(f"the model writes into its input '{spec.target}', which a compiled model "
                       "cannot do", hint="let it return the new contents instead")
        elif kind != "BUFFER_MUTATION":
            faults.add(f"output '{spec.arg.name}' is a {kind.lower().replace('_', ' ')}, which a "
                       "compiled model does not have", hint="export the model for inference")
    return results
