"""Where a node of ONNX comes from: its scope, and the line of the PyTorch model it was made from.

PyTorch's exporter writes both beside a node. Other nodes have the scope that their names tell:
`/encoder/layer.3/attention/MatMul` is in `encoder.layer.3.attention`.
"""

from __future__ import annotations

import ast
from typing import Any, cast

from compiler.frontend.stacks import line_of

_SCOPES, _TRACE = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace"


def origin_of(node: Any, name: str) -> tuple[str, str]:
    """The scope and the source line of a node; empty where nothing tells."""
    told = {p.key: p.value for p in getattr(node, "metadata_props", ())}
    return _scope(told.get(_SCOPES, "")) or _scope_of_name(name), line_of(told.get(_TRACE, ""))


def _scope(text: str) -> str:
    """The innermost module in a list of scopes, whose last one is the node itself."""
    try:
        scopes: object = ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError):
        return ""
    found = cast("list[object]", scopes) if isinstance(scopes, list) else []
    return next((s for s in reversed(found[:-1]) if isinstance(s, str) and s), "")


def _scope_of_name(name: str) -> str:
    return ".".join(part for part in name.split("/")[:-1] if part)
