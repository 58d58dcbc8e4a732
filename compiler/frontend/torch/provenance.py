"""The origin of a node: the path of its module, and the line of the model."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from compiler.frontend.stacks import line_of


def path_of(node: Any) -> str:
    """The innermost module in which the node runs, and its name: `encoder.layer.0/linear`."""
    inner = scope_of(node)
    return f"{inner}/{node.name}" if inner else str(node.name)


def scope_of(node: Any) -> str:
    """The innermost module in which the node runs: `encoder.layer.0`; empty for the whole."""
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values() if not path.startswith("_empty")]
    return _plain(paths[-1]) if paths else ""


@lru_cache(1024)
def _plain(path: str) -> str:
    """A module's path as users write it: `L['self'].layers[0].out` becomes `layers.0.out`."""
    path = re.sub(r"^L\['\w+'\]\.?", "", path).replace("_modules.", "")
    return re.sub(r"\['?([^\]']+)'?\]", r".\1", path).lstrip(".")


def source_of(node: Any) -> str:
    """The source line, as in `model.py:12 in forward: return x.cumsum(1)`.

    It is the innermost line outside of torch itself; empty if none is recorded.
    """
    return line_of(node.meta.get("stack_trace") or "")
