"""Layers of a captured graph that repeat (compiler/layers): which nodes may be equal.

Operands are nodes of the graph, whose names are those of the values. Only parameters are weights
that differ.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp

from compiler.frontend.origins import ModelNode
from compiler.frontend.torch.contents import contents_of
from compiler.frontend.torch.provenance import path_of, scope_of, source_of
from compiler.frontend.torch.signature import Signature
from compiler.layers.expansion import expand
from compiler.layers.repeated import LayerNode, Repeated, find_repeated
from dialects.strata.types import WeightAttr
from dialects.strata.weights import WeightStore


def find_layers(graph: Any, parameters: Collection[str]) -> Repeated | None:
    """The equal parts of a graph; None if there are too few to leave some out."""
    called = [n for n in graph.nodes if n.op == "call_function"]
    nodes = [LayerNode(path_of(n), _kind(n, parameters), [v.name for v in _operands(n)], [n.name],
                       n) for n in called]
    used = {v.name for n in graph.nodes if n.op != "call_function" for v in _operands(n)}
    return find_repeated(nodes, parameters, used)


def expand_layers(
    module: ModuleOp, store: WeightStore, signature: Signature, repeated: Repeated,
    nodes: Sequence[ModelNode],
) -> list[ModelNode]:
    """Call what the imported parts have become for all parts. Returns all nodes of the model.

    Raises NotAlike if the parts have not become calls of one function.
    """
    labels = {name: signature.shown(name) for name in signature.weights}
    tensors = {label: signature.weights[name] for name, label in labels.items()}

    def handle(label: str) -> WeightAttr:
        return store.add_parameter(label, contents_of(tensors[label], label))

    return expand(module, store, repeated, nodes, labels, handle,
                  lambda n: (scope_of(n.node), source_of(n.node)))


def _kind(node: Any, parameters: Collection[str]) -> Hashable:
    value = node.meta.get("val")
    used = [_key(user.args[1:], parameters) for user in node.users] if isinstance(
        value, (list, tuple)) else None
    return (node.target, _key(node.args, parameters), _key(node.kwargs, parameters),
            _type(value), str(used))


def _key(argument: Any, parameters: Collection[str]) -> Hashable:
    """What an argument is, apart from which result or parameter."""
    if hasattr(argument, "all_input_nodes"):
        if argument.op == "call_function":
            return "result"
        if argument.name in parameters:
            return "parameter", _type(argument.meta.get("val"))
        return "other", argument.name
    if isinstance(argument, (list, tuple)):
        return tuple(_key(a, parameters) for a in cast(Sequence[Any], argument))
    if isinstance(argument, Mapping):
        items = cast(Mapping[str, Any], argument).items()
        return tuple((k, _key(a, parameters)) for k, a in items)
    return type(argument).__name__, str(argument)


def _type(value: Any) -> Hashable:
    """The type of a result, as the fake tensor tells."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_type, cast(Sequence[Any], value)))
    if hasattr(value, "dtype"):
        return value.dtype, str(tuple(value.shape)), str(value.stride()), str(value.device)
    return type(value).__name__, str(value)


def _operands(node: Any) -> Iterator[Any]:
    """The nodes among a node's arguments, in order."""
    return _nodes_in([node.args, node.kwargs])


def _nodes_in(argument: Any) -> Iterator[Any]:
    if hasattr(argument, "all_input_nodes"):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for inner in cast(Sequence[Any], argument):
            yield from _nodes_in(inner)
    elif isinstance(argument, Mapping):
        for inner in cast(Mapping[str, Any], argument).values():
            yield from _nodes_in(inner)
