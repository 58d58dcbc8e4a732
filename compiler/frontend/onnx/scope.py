"""What names mean in a graph of ONNX, or inside one call of a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple, TypeAlias

import onnx
from onnx import AttributeProto

from compiler.frontend.frames import Frame
from compiler.frontend.onnx.sequences import AnyValue
from compiler.frontend.onnx.wire import Span
from compiler.frontend.values import Value
from dialects.records import dataclass
from dialects.text.syntax import identifier

Tensor: TypeAlias = onnx.TensorProto | onnx.SparseTensorProto


class Missing(NamedTuple):
    """A missing value. Without a reason, its node has a recorded problem."""

    reason: str = ""


@dataclass
class Scope:
    """The meaning of names inside a graph, or inside one call of a function.

    `weights`: the graph's tensors, with the position of their bytes in the file. `around`: the
    scope of the enclosing graph, in which names that this one lacks are looked up.
    """

    opsets: Mapping[str, int]
    frame: Frame
    path: str = ""
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict[str, AttributeProto])
    weights: Mapping[str, tuple[Tensor, Span | None]] = field(
        default_factory=dict[str, "tuple[Tensor, Span | None]"])
    around: Scope | None = None
    values: dict[str, AnyValue | Missing | None] = field(
        default_factory=dict[str, "AnyValue | Missing | None"])


def without_spans(graph: onnx.GraphProto) -> dict[str, tuple[Tensor, Span | None]]:
    """A graph's own tensors by name."""
    sparse = {t.values.name: (t, None) for t in graph.sparse_initializer}
    return {**sparse, **{t.name: (t, None) for t in graph.initializer}}


def name_value(value: AnyValue | Missing | None, name: str) -> None:
    """Let the IR show the model's name for a value that has none yet."""
    if not isinstance(value, Value):
        return
    if value.ssa is None:
        value.label = value.label or name
    elif value.ssa.name_hint is None:
        value.ssa.name_hint = identifier(name)
