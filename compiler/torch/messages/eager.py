"""Names what runs eagerly: which nodes, why, at which lines, and what makes it run compiled."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from compiler.diagnostics import count_of

log = logging.getLogger("strata")

EAGER, COMPILED = "strata_eager", "strata_compiled"
"""Attributes of log records: nodes that run eagerly and why, and a compiled part."""

OF_OWN = 'an importer of your own operator makes it compiled: options={"plugins": ["importer.py"]}'
"""What users can do about operators that are not PyTorch's."""


def is_own(node: Any) -> bool:
    """Whether a node runs an operator that is not PyTorch's."""
    wrapped = "auto_functionalized" in str(node.target) and node.args
    target = node.args[0] if wrapped else node.target
    space = str(getattr(target, "namespace", "aten"))
    return hasattr(target, "_schema") and space not in ("aten", "prims", "prim", "torch_nn")


def name_eager(names: Sequence[str], why: str, hint: str = "") -> None:
    """Warn about nodes that run eagerly, why, and what to do."""
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    count = "1 node runs" if len(names) == 1 else f"{count_of(names, 'node')} run"
    log.warning("strata: %s eagerly: %s: %s%s", count, shown, why, f"; {hint}" if hint else "",
                extra={EAGER: (tuple(names), why)})
