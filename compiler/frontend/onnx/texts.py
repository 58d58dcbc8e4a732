"""Strings that models only move, such as labels that are gathered, or names that are passed on.

    Gather(["cat", "dog"], argmax)    ->    Gather([0, 1], argmax) with a table of strings

A tensor of strings becomes a tensor of i64 indices into the model's table of strings. Equal strings
have the same index, so that they can be compared. Operators that compute on characters are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import onnx

from compiler.frontend.builder import Builder
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.sequences import AnyValue, Texts
from compiler.frontend.values import Value, constant
from dialects.records import dataclass

ALL = range(1 << 31)
MOVED: dict[str, tuple[Sequence[int], bool]] = {
    **dict.fromkeys((
        "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Gather",
        "GatherElements", "GatherND", "Slice", "Expand", "Tile", "Split", "Compress",
        "ArrayFeatureExtractor"), ((0,), True)),
    "Concat": (ALL, True), "Where": ((1, 2), True),
    "ScatterElements": ((0, 2), True), "ScatterND": ((0, 2), True),
    "Shape": ((0,), False), "Size": ((0,), False), "Equal": (ALL, False),
}
"""Operator -> the inputs that may be strings, and whether its results are strings then."""


@dataclass
class Table:
    """The strings of a model, each with its index."""

    build: Builder
    places: dict[str, int] = field(default_factory=dict[str, int])

    def constant(self, texts: Sequence[bytes | str], shape: Sequence[int], name: str) -> Texts:
        found = [self.places.setdefault(_decoded(text), len(self.places)) for text in texts]
        return Texts(constant(self.build, np.array(found, np.int64).reshape(shape), name, name))

    def tensor(self, tensor: onnx.TensorProto, name: str) -> Texts:
        """A tensor of strings. Raises Fault if its strings do not fill its shape."""
        shape = tuple(tensor.dims)
        if min(shape, default=0) < 0 or np.prod(shape, dtype=object) != len(tensor.string_data):
            raise Fault(f"{len(tensor.string_data)} strings do not fill its shape {list(shape)}")
        return self.constant(tensor.string_data, shape, name)


def _decoded(text: bytes | str) -> str:
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def is_text(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type == onnx.TensorProto.STRING


def moved(
    op_type: str, inputs: Sequence[AnyValue | None],
    importer: Callable[[Sequence[AnyValue | None]], Any],
) -> Any:
    """The results of an operator, some of whose inputs are strings. Raises Fault if it needs
    numbers.
    """
    places, stay = MOVED.get(op_type, ((), False))
    if any(isinstance(v, Texts) and k not in places for k, v in enumerate(inputs)):
        raise Fault("it computes on strings, which can only be moved and compared",
                    "run the operators that read or make texts before or after the model")
    if stay and any(isinstance(v, Value) for k, v in enumerate(inputs) if k in places):
        raise Fault("some of its inputs are strings, and some are not")
    results = importer([v.places if isinstance(v, Texts) else v for v in inputs])
    if not stay:
        return results
    single = isinstance(results, Value)
    texts = [Texts(v) if isinstance(v, Value) else v for v in ([results] if single else results)]
    return texts[0] if single else texts


def constant_of(table: Table, node: onnx.NodeProto, name: str) -> Texts | None:
    """The strings of a Constant; None for a Constant of numbers."""
    for attribute in node.attribute:
        if attribute.name == "value" and is_text(attribute.t):
            return table.tensor(attribute.t, name)
        if attribute.name == "value_string":
            return table.constant([attribute.s], (), name)
        if attribute.name == "value_strings":
            return table.constant(attribute.strings, (len(attribute.strings),), name)
    return None

