"""The structure of the project: no circle of imports, and no folder that a reader gets lost in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.project.import_graph import circles, imports, modules

ROOT = Path(__file__).parents[2]
PACKAGES = ("dialects", "passes", "targets", "compiler")
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


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_are_small(package: str) -> None:
    rooms = Counter(path.parent.relative_to(ROOT).as_posix()
                    for path in (ROOT / package).rglob("*.py") if path.stem != "__init__")
    assert {room: count for room, count in rooms.items()
            if count > MOST and room not in FAMILIES} == {}
