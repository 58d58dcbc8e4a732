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


NEIGHBOURS = ("cpu", "cuda", "large", "shared", "torch", "zoo")
"""Folders of benchmarks/ that scripts add to their search path."""


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


def missing_beside(path: Path) -> Iterator[str]:
    """The names that a script asks of modules beside it, or in a shared folder, in vain."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found = _neighbours(path, node.module)
            yield from (f"{node.module} {alias.name}" for alias in node.names
                        if found and not any(_defines(f, alias.name) for f in found))


def _neighbours(path: Path, module: str) -> list[Path]:
    """The files that a module's name may mean in a script outside the packages."""
    if module.partition(".")[0] in PACKAGES:
        return []
    folders = [*path.parents[:2], *(ROOT / "benchmarks" / name for name in NEIGHBOURS)]
    for folder in folders[:2]:  # a script's own folder comes first
        if here := _files(folder, module):
            return here
    return [file for folder in folders[2:] for file in _files(folder, module)]


def _files(folder: Path, module: str) -> list[Path]:
    place = folder.joinpath(*module.split("."))
    return [f for f in (place.with_suffix(".py"), place / "__init__.py") if f.is_file()]


def _defines(file: Path, name: str) -> bool:
    """Whether a file binds a name somewhere, or is a package with such a module."""
    if file.name == "__init__.py" and _files(file.parent, name):
        return True
    bound: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    return name in bound


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_what_scripts_import_is_there(path: Path) -> None:
    assert list(missing(path.read_text(encoding="utf-8"))) == []
    assert list(missing_beside(path)) == []


def test_a_missing_name_is_found() -> None:
    text = "from dialects.block import KernelOp, Block\ndef f():\n    import compiler.nowhere\n"
    assert list(missing(text)) == ["dialects.block Block", "compiler.nowhere"]


def test_a_name_that_a_neighbour_lost_is_found(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text("from statistics import mean\nSHOWN = 4\n")
    script = tmp_path / "script.py"
    script.write_text("def f():\n    from models import SHOWN, kernels, mean\n")
    assert list(missing_beside(script)) == ["models kernels"]
