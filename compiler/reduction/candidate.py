"""A model with the inputs on which it fails, during reduction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.io.output import npz_bytes, write_bytes

if TYPE_CHECKING:
    import onnx

    from dialects.strata.types import Array


def _nothing() -> Mapping[str, Array]:
    return {}


@dataclass(frozen=True)
class Candidate:
    """A model with inputs by name; missing ones are random."""

    model: onnx.ModelProto
    inputs: Mapping[str, Array] = field(default_factory=_nothing)

    @property
    def nodes(self) -> int:
        """The number of nodes, including those of subgraphs."""
        return count_nodes(self.model.graph)

    @property
    def elements(self) -> int:
        """The number of elements of inputs and weights."""
        return sum(a.size for a in self.inputs.values()) + sum(
            _product(t.dims) for t in self.model.graph.initializer)

    def named_inputs(self) -> dict[str, Array]:
        """The inputs that the model still has."""
        names = {info.name for info in self.model.graph.input}
        return {name: array for name, array in self.inputs.items() if name in names}

    def save(self, path: Path) -> Path:
        """Write the model, and its inputs as `.npz` next to it; return the path of the inputs."""
        write_bytes(path, self.model.SerializeToString())
        inputs_path = path.with_suffix(".npz")
        write_bytes(inputs_path, npz_bytes(self.named_inputs()))
        return inputs_path


def count_nodes(graph: onnx.GraphProto) -> int:
    return len(graph.node) + sum(
        count_nodes(a.g) for node in graph.node for a in node.attribute if a.HasField("g"))


def _product(dims: object) -> int:
    total = 1
    for dim in dims:  # type: ignore[attr-defined]
        total *= int(dim)  # pyright: ignore[reportUnknownArgumentType]
    return total
