"""The modules of a model, and what became of all nodes of one: `encoder.layer.3.attention`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from compiler.explaining.collect import Explanation
from compiler.frontend.origins import ModelNode

_DOTTED = re.compile(r"[\w-]+(\.[\w-]+)+")
_SEPARATORS = re.compile(r"[./]")
Path = tuple[str, ...]


def modules_around(node: ModelNode) -> Path:
    """The modules around a node, the outermost first: those of its scope, or else of its name."""
    if node.scope:
        return tuple(node.scope.split("."))
    *around, _ = [part for part in node.name.split("/") if part] or [node.name]
    return tuple(m for part in around
                 for m in (part.split(".") if _DOTTED.fullmatch(part) else [part]))


def modules_in(nodes: Sequence[ModelNode]) -> dict[Path, list[ModelNode]]:
    """Each module of a model, with the nodes inside it."""
    found: dict[Path, list[ModelNode]] = {}
    for node in nodes:
        around = modules_around(node)
        for depth in range(len(around)):
            found.setdefault(around[:depth + 1], []).append(node)
    return found


def matching(name: str, modules: Sequence[Path]) -> list[Path]:
    """The modules that a name may mean: the one with exactly this name, or else all whose names end
    with it, as `layer.3` is the end of `encoder.layer.3`."""
    wanted = tuple(part for part in _SEPARATORS.split(name) if part)
    if not wanted or wanted in modules:
        return [wanted] if wanted else []
    return [path for path in modules if path[-len(wanted):] == wanted]


def operations_of(found: Explanation, nodes: Sequence[ModelNode]) -> Iterator[tuple[str, str]]:
    """For each level, the operations that stand for some nodes, with their numbers."""
    inside = [name for node in nodes for name in found.inside(node)]
    for level, operations in found.operations.items():
        counts = Counter[str]()
        for name in inside:
            counts += operations.get(name, Counter[str]())
        if counts:
            yield level, ", ".join(f"{n} x {op}" if n > 1 else op for op, n in counts.items())
