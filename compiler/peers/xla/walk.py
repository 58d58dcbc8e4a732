"""Runs a graph of ATen operators with JAX."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from compiler.diagnostics import StrataError

_TABLES = ("operators", "indices", "windows")


def walk(graph: Any, constants: Mapping[str, Any], inputs: Sequence[Any]) -> Any:
    """What the graph computes: a tuple. Raises StrataError for an operator without a function."""
    values: dict[Any, Any] = {}
    given = iter(inputs)
    for node in graph.nodes:
        match node.op:
            case "placeholder":
                values[node] = next(given)
            case "get_attr":
                values[node] = constants[node.target]
            case "call_function":
                values[node] = _called(node, *(_known(x, values) for x in (node.args, node.kwargs)))
            case _:
                return _known(node.args[0], values)
    raise AssertionError("a graph ends with its output")


def _called(node: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Sizes are integers, which Python's functions compute; an operator of ATen has a name."""
    if getattr(node.target, "namespace", None) != "aten":
        return node.target(*args, **kwargs)
    name = str(node.target).removeprefix("aten.")
    function = functions().get(name)
    if function is None:
        raise StrataError(f"xla has no function for {node.target}")
    return function(*args, **kwargs)


def _known(argument: Any, values: Mapping[Any, Any]) -> Any:
    """An argument with values in place of nodes."""
    if isinstance(argument, dict):
        return {key: _known(x, values) for key, x in cast(dict[Any, Any], argument).items()}
    if isinstance(argument, (tuple, list)):
        parts = cast(Any, argument)
        return type(parts)(_known(x, values) for x in parts)
    is_node = hasattr(argument, "meta") and hasattr(argument, "target")
    return values[argument] if is_node else argument


@cache
def functions() -> Mapping[str, Callable[..., Any]]:
    """Operator and overload -> its function of JAX."""
    package = __name__.rpartition(".")[0]
    tables = [importlib.import_module(f"{package}.{name}").FUNCTIONS for name in _TABLES]
    return {name: function for table in tables for name, function in table.items()}
