"""The structure of the project: no circle of imports, and no folder that a reader gets lost in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.project.import_graph import circles, imports, modules

ROOT = Path(__file__).parents[2]
PACKAGES = ("dialects", "passes", "targets", "compiler")
TOPS = (*PACKAGES, "tests", "benchmarks")
MOST = 20
FAMILIES = {"dialects/graph", "passes/graph_to_loop", "compiler/frontend/onnx/ops",
            "compiler/frontend/torch/ops"}
"""Folders with a file for each family of operators."""


def test_imports_have_no_circle() -> None:
    assert circles(imports(modules(ROOT, PACKAGES))) == []


def test_circles_are_found(tmp_path: Path) -> None:
    """In functions and for types alone, too, and behind a package's own file."""
    texts = {"__init__": "", "a": "from p import b", "b": "def f():\n    import p.c",
             "c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import x",
             "d": "from p.a import y", "e": "import p.d"}
    (tmp_path / "p").mkdir()
    for name, text in texts.items():
        (tmp_path / "p" / f"{name}.py").write_text(text)
    graph = imports(modules(tmp_path, ("p",)))
    assert graph["p.e"] == {"p.d"}
    assert circles(graph) == [["p.a", "p.b", "p.c"]]


def crowded(root: Path, top: str) -> dict[str, int]:
    """Folder -> number of modules side by side, where these are too many for one folder."""
    rooms = Counter(path.parent.relative_to(root).as_posix()
                    for path in (root / top).rglob("*.py") if path.stem != "__init__")
    return {room: count for room, count in rooms.items() if count > MOST and room not in FAMILIES}


@pytest.mark.parametrize("top", TOPS)
def test_rooms_are_small(top: str) -> None:
    assert crowded(ROOT, top) == {}


def test_crowded_rooms_are_found(tmp_path: Path) -> None:
    """A package's own file does not count, and folders below have room of their own."""
    for room, count in {"p/full": MOST, "p/full/below": 1, "p/crowded": MOST + 1}.items():
        (tmp_path / room).mkdir(parents=True)
        for name in ("__init__", *(f"m{i}" for i in range(count))):
            (tmp_path / room / f"{name}.py").touch()
    assert crowded(tmp_path, "p") == {"p/crowded": MOST + 1}
