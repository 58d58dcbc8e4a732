"""Which modules of the project import which, and the circles among them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path


def modules(root: Path, packages: tuple[str, ...]) -> dict[str, Path]:
    """Module name -> file, of some of the packages below a folder."""
    found: dict[str, Path] = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Module -> the modules that it imports: at its head, in functions, and for types alone."""
    return {name: set(_imported(path, files)) - {name} for name, path in files.items()}


def _imported(path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in files or node.module in files:
                    yield inner if inner in files else node.module


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Sets of modules that reach each other, largest first.

    Source: R. Tarjan, Depth-first search and linear graph algorithms, 1972.
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == number[name]:
            circle = stack[stack.index(name):]
            del stack[stack.index(name):]
            if len(circle) > 1:
                found.append(sorted(circle))

    for name in graph:
        if name not in number:
            visit(name)
    return sorted(found, key=len, reverse=True)
