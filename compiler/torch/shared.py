"""Compiled graphs of this process, found by what the graphs say.

Dynamo compiles equal blocks of a model one by one where their classes or modules differ. Their
graphs are equal but for weights, so that code of the first is given the weights of the others.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from compiler.torch.parts import Part, Viewed
from compiler.torch.reordered import Reordered
from compiler.torch.weights import may_change

Code = Part | Reordered | Viewed

_known: weakref.WeakValueDictionary[str, Code] = weakref.WeakValueDictionary()


def find(key: str, weights: Mapping[str, Any]) -> Code | None:
    """Code for an equal graph, with these weights; None if there is none that takes them."""
    code = _known.get(key)
    return code and code.with_weights(weights, [n for n, v in weights.items() if may_change(v)])


def keep(key: str, code: object) -> None:
    """Let later graphs find code, as long as something uses it."""
    if isinstance(code, Code):
        _known[key] = code


def key_of(graph: Any, weights: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """What the code of a graph depends on, but for the contents of weights that may change.

    Empty for a graph that holds other things.
    """
    lines: list[str] = []
    if "dump_dir" in options or not _add(graph, lines):
        return ""
    held = [f"{name} {_shown(tensor)} {_contents(name, tensor)}"
            for name, tensor in sorted(weights.items())]
    return "\n".join([*lines, *held, repr(sorted(options.items(), key=lambda o: o[0]))])


def _contents(name: str, tensor: Any) -> str:
    """A hash of the contents that code is compiled for."""
    from compiler.frontend.torch.contents import contents_of
    from dialects.strata.weights import content_key

    return "" if may_change(tensor) else content_key(contents_of(tensor, name))


def _add(module: Any, lines: list[str]) -> bool:
    """Add the nodes of a graph module; whether that is possible."""
    for node in module.graph.nodes:
        lines.append(f"{node.op} {node.name} {node.target} {node.args} {node.kwargs} "
                     f"{_shown(node.meta.get('val'))}")
        if node.op == "get_attr":
            value = getattr(module, node.target, None)
            if not hasattr(value, "graph") or not _add(value, lines):
                return False
    return True


def _shown(value: Any) -> str:
    """The type of a value of a graph."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"  # pyright: ignore
    if not hasattr(value, "dtype"):
        return str(value)
    return (f"{value.dtype} {tuple(value.shape)} {value.stride()} {value.device} {value.layout} "
            f"{value.is_conj()} {value.is_neg()}")
