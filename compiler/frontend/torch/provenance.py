"""Where a node of a program comes from: the module's path, and the line of the model."""

from __future__ import annotations

import re
from typing import Any

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\s*\n\s*(.*)')


def path_of(node: Any) -> str:
    """`encoder.layer.0/linear`: the innermost module that the node runs in, and its name."""
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values() if not path.startswith("_empty")]
    inner = re.sub(r"^L\['self'\]\.?", "", paths[-1]) if paths else ""
    return f"{inner}/{node.name}" if inner else str(node.name)


def source_of(node: Any) -> str:
    """`model.py:12 in forward: return x.cumsum(1)`; the last line outside of torch itself."""
    frames: list[tuple[str, str, str, str]] = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if not re.search(r"[/\\]torch[/\\]|^<", f[0])] or frames
    if not own:
        return ""
    file, line, function, code = own[-1]
    return f"{file}:{line} in {function}: {code.strip()}"
