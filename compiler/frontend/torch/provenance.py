"""The origin of a node: the path of its module, and the line of the model."""

from __future__ import annotations

import re
from typing import Any

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\s*\n\s*(.*)')


def path_of(node: Any) -> str:
    """The innermost module in which the node runs, and its name: `encoder.layer.0/linear`."""
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values() if not path.startswith("_empty")]
    inner = re.sub(r"^L\['self'\]\.?", "", paths[-1]) if paths else ""
    return f"{inner}/{node.name}" if inner else str(node.name)


def source_of(node: Any) -> str:
    """The source line, as in `model.py:12 in forward: return x.cumsum(1)`.

    It is the innermost line outside of torch itself; empty if none is recorded.
    """
    frames: list[tuple[str, str, str, str]] = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if not re.search(r"[/\\]torch[/\\]|^<", f[0])] or frames
    if not own:
        return ""
    file, line, function, code = own[-1]
    return f"{file}:{line} in {function}: {code.strip()}"
