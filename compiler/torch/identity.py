"""What a graph says, as text: equal texts have equal code, in this process and in others.

The text has every node with its operator, arguments and types, the constants that the graph holds,
and the weights that code is compiled for. It has no contents of weights that may change.

The module can be imported without torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from compiler.frontend.faults import Fault
from compiler.frontend.torch.contents import contents_of
from compiler.frontend.torch.library import FOREIGN, torch_module
from compiler.frontend.torch.process_groups import ranks_of
from compiler.torch.weights import may_change
from dialects.strata.weights import content_key


class _Unknown(Exception):
    """A graph holds something that has no text, such as a function without a name."""


def identity_of(graph: Any, weights: Mapping[str, Any]) -> str:
    """A hash of what a graph with such weights says; empty if it holds what has no text."""
    try:
        held = [f"{name} {_type(tensor)} {'' if may_change(tensor) else _contents(name, tensor)}"
                for name, tensor in sorted(weights.items())]
        lines = [*_nodes(graph), *held]
    except (_Unknown, Fault):
        return ""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _contents(name: str, tensor: Any) -> str:
    return content_key(contents_of(tensor, name))


def _nodes(module: Any) -> Iterator[str]:
    """A line for each node of a graph module, and those of the graphs that it holds."""
    for node in module.graph.nodes:
        yield (f"{node.op} {node.name} {_target(node.target)} {_argument(node.args)} "
               f"{_argument(_named(node))} {_type(node.meta.get('val'))}"
               f"{_ranks(node)}{_kernel(node)}")
        if node.op == "get_attr":
            value = getattr(module, node.target, None)
            if hasattr(value, "graph"):
                yield from _nodes(value)
            elif isinstance(value, torch_module().Tensor):
                yield f"{_type(value)} {_contents(node.target, value)}"
            else:
                raise _Unknown(node.target)


def _ranks(node: Any) -> str:
    """The ranks of the process group that a collective operation names, which its name leaves open.
    Raises Fault if there is no such group."""
    if not str(node.target).startswith("_c10d_functional") or not node.args[1:]:
        return ""
    return f" {ranks_of(node.args[-1])[1]}"


def _is_foreign(node: Any) -> bool:
    return getattr(node.target, "__name__", "") == FOREIGN


def _named(node: Any) -> dict[str, Any]:
    """The named arguments, without those that are numbers in a table of this process."""
    left_out = ("kernel_idx", "constant_args_idx") if _is_foreign(node) else ()
    return {name: value for name, value in node.kwargs.items() if name not in left_out}


def _kernel(node: Any) -> str:
    """The source and constants of a user's kernel. Raises Fault."""
    if not _is_foreign(node):
        return ""
    from compiler.frontend.torch.core.foreign import kernel_text

    return f" {kernel_text(node)}"


def _target(target: Any) -> str:
    """A name, an operator, or a function by its name in a module. Raises _Unknown."""
    if isinstance(target, str) or hasattr(target, "_schema"):
        return str(target)
    name = getattr(target, "__qualname__", "") or getattr(target, "__name__", "")
    if not name or "<" in name:
        raise _Unknown(name)
    return f"{type(target).__name__} {getattr(target, '__module__', '')}.{name}"


def _argument(value: Any) -> str:
    """An argument of a node. Raises _Unknown."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_argument, cast('Sequence[Any]', value)))}]"
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return f"{{{', '.join(f'{k}: {_argument(v)}' for k, v in found.items())}}}"
    if isinstance(value, slice):
        bounds = cast("Any", value)
        return f"slice{_argument([bounds.start, bounds.stop, bounds.step])}"
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return repr(value)
    torch = torch_module()
    if not isinstance(value, (torch.fx.Node, torch.dtype, torch.device, torch.layout,
                              torch.memory_format)):
        raise _Unknown(type(value).__name__)
    return str(value)


def _type(value: Any) -> str:
    """The type of a value of a graph."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_type, cast('Sequence[Any]', value)))}]"
    if not hasattr(value, "dtype"):
        return str(value)
    return (f"{value.dtype} {tuple(value.shape)} {value.stride()} {value.device} {value.layout} "
            f"{value.is_conj()} {value.is_neg()}")
