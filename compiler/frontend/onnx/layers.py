"""Layers of an ONNX graph that repeat (compiler/layers): which nodes may be equal.

Only initializers of floats may differ, and only where `graph-call-layers` lets them: these are not
literals, nor the same number throughout. Importers do not get to know their contents. All others
have equal contents in equal nodes, whatever their names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.element_types import element_type
from compiler.frontend.onnx.functions import Functions
from compiler.frontend.onnx.load import OnnxFile
from compiler.frontend.onnx.scope import Missing
from compiler.frontend.onnx.sequences import AnyValue
from compiler.frontend.onnx.texts import is_text
from compiler.frontend.onnx.validate import NamedNodes, used_names
from compiler.frontend.values import Value
from compiler.layers.repeated import LayerNode, Repeated, find_repeated, longest
from dialects.graph.constant import MAX_LITERAL
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.strata.weights import content_key
from passes.rewrites.graph.matching import number_of

WEIGHT = "weight"
SUBGRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
Describe: TypeAlias = "Callable[[str], Hashable]"
"""What equal nodes have in common in an operand, given by its name."""


def find_layers(
    named: NamedNodes, file: OnnxFile, functions: Functions, given: Collection[str]
) -> Repeated | None:
    """The equal parts of a graph; None if there are too few to leave some out.

    `given`: the initializers that are inputs of the model.
    """
    if longest([(n.op_type, len(n.input)) for _, n in named]) is None:
        return None
    graph, constants = file.proto.graph, _Constants(file, given)
    nodes = [LayerNode(name, _kind(node, functions, constants.describe), _operands(node),
                       node.output, node) for name, node in named]
    return find_repeated(nodes, constants.weights, {o.name for o in graph.output}, constants.equal)


def is_settled(repeated: Repeated, values: Mapping[str, AnyValue | Missing | None]) -> bool:
    """Whether the last two parts before those that are left out have results of the same types
    and with the same known contents. Then all later parts have, too."""
    return all(_is_alike(values[a], values[b]) for a, b in repeated.last_results())


def _is_alike(a: object, b: object) -> bool:
    if not isinstance(a, Value) or not isinstance(b, Value) or a.type != b.type:
        return False
    if a.contents is None or b.contents is None:
        return a.contents is b.contents
    return a.contents.dtype == b.contents.dtype and np.array_equal(a.contents, b.contents)


class _Constants:
    """A graph's initializers. Those that have been described are in `weights`, if they may differ,
    or in `equal`, if they have equal contents in equal nodes."""

    def __init__(self, file: OnnxFile, given: Collection[str]):
        self.file = file
        self.tensors = {tensor.name: k for k, tensor in enumerate(file.proto.graph.initializer)
                        if tensor.name not in given}
        self.weights, self.equal = set[str](), dict[str, Hashable]()

    def describe(self, name: str) -> Hashable:
        """The type of a weight, or the contents of another constant; None for any other value."""
        if name in self.equal:
            return self.equal[name]
        if name not in self.tensors:
            return None
        tensor = self.file.proto.graph.initializer[self.tensors[name]]
        try:
            if is_text(tensor):
                return None
            array = self.file.initializer(self.tensors[name])
            is_float = t.is_float(element_type(tensor.data_type))
        except Fault:  # the import tells
            return None
        type_ = tensor.data_type, array.shape
        if is_float and array.size > MAX_LITERAL and number_of(array) is None:
            self.weights.add(name)
            return WEIGHT, type_
        return self.equal.setdefault(name, (type_, _contents(array)))


def _contents(array: Array) -> Hashable:
    return array.tobytes() if array.size <= MAX_LITERAL else content_key(array)


def _kind(node: onnx.NodeProto, functions: Functions, describe: Describe) -> Hashable:
    """What nodes must share to be equal; None for those that are themselves several nodes."""
    if _has_subgraphs(node) or functions.local(node) is not None:
        return None
    attributes = sorted(a.SerializeToString(deterministic=True) for a in node.attribute)
    return (node.domain, node.op_type, *attributes, tuple(map(bool, node.output)),
            tuple(describe(name) if name else "" for name in node.input))


def _operands(node: onnx.NodeProto) -> list[str]:
    """The names of what a node reads, also in its subgraphs."""
    return sorted(used_names(node)) if _has_subgraphs(node) else [v for v in node.input if v]


def _has_subgraphs(node: onnx.NodeProto) -> bool:
    return any(a.type in SUBGRAPHS for a in node.attribute)
