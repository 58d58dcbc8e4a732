"""Resolves the arguments of a node to what importers receive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from compiler.frontend.faults import Fault, Skip
from compiler.frontend.torch.sizes import Sizes
from compiler.frontend.torch.tensors import element_of

_AS_IN_PYTHON = (bool, int, float, complex, str)


class Missing:
    """A missing value; its node has a recorded problem."""


@dataclass(frozen=True)
class Arguments:
    """Resolves arguments. `values`: the results of the nodes so far, by node name."""

    values: Mapping[str, Any]
    sizes: Sizes

    def of_schema(self, node: Any) -> list[Any]:
        """All arguments in the order of the operator's schema, with defaults for missing ones."""
        found: list[Any] = []
        for k, argument in enumerate(node.target._schema.arguments):
            if k < len(node.args):
                given = node.args[k]
            else:
                given = node.kwargs.get(argument.name, argument.default_value)
            found.append(self.value(given))
        return found

    def value(self, argument: Any) -> Any:
        """Resolve nodes to their values and dtypes to element types. Raises Fault or Skip."""
        kind = type(argument).__name__
        if isinstance(argument, (list, tuple)):
            return [self.value(a) for a in cast(Sequence[Any], argument)]
        if kind == "Node":
            return self._of_node(argument)
        if argument is None or isinstance(argument, _AS_IN_PYTHON) or hasattr(argument, "graph"):
            return argument
        if kind == "dtype":
            return element_of(argument)
        if kind == "SymInt":
            return self.sizes(argument)
        if kind in ("device", "layout", "memory_format"):
            return None
        raise Fault(f"it has an argument of type {kind}, {argument}")

    def _of_node(self, node: Any) -> Any:
        found = self.values[node.name] if node.name in self.values else self._of_integer(node)
        if isinstance(found, Missing):
            raise Skip
        return found

    def _of_integer(self, node: Any) -> Any:
        """The value of a placeholder that is not a tensor: an integer as a size, or a constant.

        Raises Fault for a tensor, which has a value unless its type is not supported.
        """
        value = node.meta.get("val")
        if node.op == "get_attr" or hasattr(value, "dtype"):
            raise Fault(f"the type of its operand '{node.name}' is not supported")
        return self.sizes(value) if type(value).__name__ == "SymInt" else value
