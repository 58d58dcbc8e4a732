"""The structure of the project: no circle of imports, and no folder that a reader gets lost in."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
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
LONGEST = 400
LONG = {
    "benchmarks/claims.py", "compiler/pipeline/driver.py",
    "dialects/graph/unary.py", "dialects/symbolic/expr.py",
    "passes/rewrites/loop/nests.py", "targets/cpu/emit/kernel.py",
    "tests/frontend/operators/onnx_contrib_samples.py", "tests/programs/test_program_cache.py",
    "tests/targets/cpu/emit/test_cpu_compute.py", "tests/targets/cuda/runtime/test_cuda_calls.py",
    "tests/targets/cuda/samples.py"}
"""Files that are longer. `expr.py` is one class with its normal form, whose parts need each other;
the others wait to be parted by subject."""

LONGEST_CLASS = 300
LONG_CLASSES = {"Compiler": 360, "NestOp": 340, "_KernelEmitter": 335}
"""Classes that are longer, and how long they may be. `NestOp` is the whole loop dialect in one
operation; the others wait to be parted."""


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


def lengths(root: Path, tops: Sequence[str]) -> dict[str, int]:
    """File -> number of lines, where these are too many for one file."""
    found = {path.relative_to(root).as_posix(): len(path.read_bytes().splitlines())
             for top in tops for path in (root / top).rglob("*.py")}
    return {file: count for file, count in found.items() if count > LONGEST}


def test_files_are_short() -> None:
    assert lengths(ROOT, TOPS).keys() - LONG == set()


def test_files_that_became_short_leave_the_list() -> None:
    assert LONG - lengths(ROOT, TOPS).keys() == set()


def test_long_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "p" / "q").mkdir(parents=True)
    for name, count in (("short", LONGEST), ("q/long", LONGEST + 1)):
        (tmp_path / "p" / f"{name}.py").write_text("\n" * count)
    assert lengths(tmp_path, ["p"]) == {"p/q/long.py": LONGEST + 1}


def spans(root: Path, tops: Sequence[str]) -> dict[str, int]:
    """Class -> number of lines, where these are too many for one class."""
    files = [path for top in tops for path in (root / top).rglob("*.py")]
    texts = [text for path in files if len((text := path.read_text(encoding="utf-8")).splitlines())
             > LONGEST_CLASS]
    found = {node.name: (node.end_lineno or 0) - node.lineno + 1 for text in texts
             for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)}
    return {name: count for name, count in found.items() if count > LONGEST_CLASS}


def test_classes_are_short() -> None:
    found = spans(ROOT, PACKAGES)
    assert {name: n for name, n in found.items() if n > LONG_CLASSES.get(name, 0)} == {}
    assert LONG_CLASSES.keys() - found.keys() == set()  # what became short leaves the list


def test_long_classes_are_found(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    text = "".join(f"class {name}:\n" + "    x = 1\n" * count + "\n\n"
                   for name, count in (("Short", LONGEST_CLASS - 1), ("Long", LONGEST_CLASS)))
    (tmp_path / "p" / "m.py").write_text(text)
    assert spans(tmp_path, ["p"]) == {"Long": LONGEST_CLASS + 1}
