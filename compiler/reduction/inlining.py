"""Puts the bodies of a model's functions in the place of their calls.

    y = f(x)  with  f <alpha = 0.5>    ->    y = Elu<alpha = 0.5>(x)

`onnx.inliner` does this, but it drops an attribute whose number is the function's default, so that
the operator's own default holds. Calls therefore state all defaults first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import inliner

Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without functions; the same object if it has none."""
    if not model.functions:
        return model
    stated = onnx.ModelProto()
    stated.CopyFrom(model)
    functions: dict[Key, onnx.FunctionProto] = {
        (f.domain, f.name, f.overload): f for f in stated.functions}
    for scope in (stated.graph, *stated.functions):
        for node in _nodes(scope.node):
            called = functions.get((node.domain, node.op_type, node.overload))
            if called is not None:
                given = {a.name for a in node.attribute}
                node.attribute.extend(a for a in called.attribute_proto if a.name not in given)
    return inliner.inline_local_functions(stated)


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """These, and those of their bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)
