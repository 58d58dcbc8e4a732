"""Scripts outside the packages import names that the packages have, also in functions."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("compiler", "dialects", "passes", "targets", "tests", "examples", "docs")
SCRIPTS = [path for folder in ("benchmarks", "examples", "docs")
           for path in sorted((ROOT / folder).rglob("*.py"))]


def missing(text: str) -> Iterator[str]:
    """The names that imports of our packages ask for in vain."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            wanted = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            wanted = [(node.module, alias.name) for alias in node.names]
        else:
            continue
        yield from (f"{module} {name}".strip() for module, name in wanted
                    if module.partition(".")[0] in PACKAGES and not _is_there(module, name))


def _is_there(module: str, name: str) -> bool:
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        ours = (error.name or "").partition(".")[0] in PACKAGES
        return not ours  # a package that is not installed here
    return not name or hasattr(found, name) or (
        hasattr(found, "__path__") and find_spec(f"{module}.{name}") is not None)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_what_scripts_import_is_there(path: Path) -> None:
    assert list(missing(path.read_text(encoding="utf-8"))) == []


def test_a_missing_name_is_found() -> None:
    text = "from dialects.block import KernelOp, Block\ndef f():\n    import compiler.nowhere\n"
    assert list(missing(text)) == ["dialects.block Block", "compiler.nowhere"]
