"""CONTRIBUTING.md is carried out: its edits are made in a copy of the tree, with their tests.

A comment before a block of code names the file that it belongs to, and what its line follows:

    <!-- edit: FILE -->              at the end of FILE, which may be new
    <!-- edit: FILE: TEXT -->        after the line of FILE that contains TEXT

Lines of a block that begin with `from` go to the file's imports.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import processes

ROOT = Path(__file__).parents[2]
COPIED = ("compiler", "dialects", "passes", "targets", "tests", "docs", "examples",
          "CONTRIBUTING.md", "pyproject.toml")
IGNORED = shutil.ignore_patterns("__pycache__", "*.onnx", "*.npz", "*.png")
_EDIT = re.compile(
    r"^ *<!-- edit: (?P<file>[\w./]+)(?:: (?P<after>.+?))? -->\n"
    r"(?P<indent> *)```\w*\n(?P<code>.*?)^ *```$", re.MULTILINE | re.DOTALL)


class Edit(NamedTuple):
    """A block of the guide, the file that it belongs to, and the text in the line before it."""

    file: str
    after: str
    code: str


def edits(section: str) -> list[Edit]:
    """The edits of a section, by the beginning of its title."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    text = guide.split(f"\n### {section}")[1].split("\n### ")[0]
    return [Edit(m["file"], m["after"] or "",
                 textwrap.dedent(m["code"]) if not m["after"] else
                 "".join(line.removeprefix(m["indent"]) for line in m["code"].splitlines(True)))
            for m in _EDIT.finditer(text)]


def carry_out(edit: Edit, root: Path) -> None:
    path = root / edit.file
    if not path.exists():
        path.write_text(edit.code, encoding="utf-8")
        return
    imports, code = (
        "".join(line for line in edit.code.splitlines(True) if line.startswith("from ") is begins)
        for begins in (True, False))
    text = path.read_text(encoding="utf-8")
    if edit.after:
        [place] = [m.end() for m in re.finditer(f"{re.escape(edit.after)}.*\n", text)]
        text = text[:place] + code.strip("\n") + "\n" + text[place:]
    else:
        text += "\n\n" + code.strip("\n") + "\n"
    first = text.index("\nfrom ", text.index("from __future__")) + 1
    path.write_text(text[:first] + imports + text[first:], encoding="utf-8")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the tree."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=IGNORED)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def python(tree: Path, *words: str) -> str:
    """What Python prints there; the copy hides the tree that is installed. It must succeed."""
    done = processes.run([sys.executable, *words], cwd=tree, text=True, limit=600,
                         env=os.environ | {"PYTHONPATH": str(tree)}, capture_output=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def files_with(tree: Path, *texts: str) -> list[str]:
    """The test files that contain all of some texts."""
    found = [p for p in sorted((tree / "tests").rglob("test_*.py")) if p.name != "test_guide.py"]
    return [str(p.relative_to(tree)) for p in found
            if all(text in p.read_text(encoding="utf-8") for text in texts)]


def passed(report: str) -> int:
    [count] = re.findall(r"(\d+) passed", report)
    return int(count)


def test_an_operator_takes_three_edits(tree: Path) -> None:
    found = edits("An elementwise operator")
    assert [edit.file.partition("/")[0] for edit in found] == ["dialects", "compiler", "tests"]
    for edit in found:
        carry_out(edit, tree)
    files = files_with(tree, "op_samples.graph_samples import")
    files = [f for f in files if "pytorch" not in f and "cuda" not in f and "hip" not in f]
    report = python(tree, "-m", "pytest", "-m", "not slow and not gpu", "-k", "tanh_shrink",
                    "-p", "no:cacheprovider", *files)
    assert passed(report) >= 7 * 4  # seven samples, through text, evaluation, levels, targets
    python(tree, "-m", "pytest", "-p", "no:cacheprovider", "-k", "constraint",
           *files_with(tree, "tests.constraints"))
    assert "graph.tanh_shrink" in python(tree, "-m", "compiler", "list", "ops")
    assert "TanhShrink" in python(tree, "-c", "from docs.operators import page; print(page())")
    assert "    %y = graph.tanh_shrink" in python(tree, "-c", MODEL)


MODEL = """
import onnx.parser, compiler
model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
m (float[n] x) => (float[n] y) { y = com.example.TanhShrink(x) }''')
exe = compiler.compile(model, threads=1)
import numpy as np
x = np.linspace(-3, 3, 50, dtype=np.float32)
np.testing.assert_allclose(exe(x)[0], x - np.tanh(x), atol=1e-6)
from compiler.pipeline.driver import Compiler
print(Compiler(exe.model, exe.options).read().module)
"""


def test_a_pass_takes_a_file_a_test_and_a_line(tree: Path) -> None:
    found = edits("A pass")
    assert [edit.file for edit in found] == [
        "passes/graph/drop_powers.py", "tests/passes/graph/drop_powers.mlir",
        "compiler/pipeline/steps.py"]
    for edit in found:
        carry_out(edit, tree)
    report = python(tree, "-m", "pytest", "-p", "no:cacheprovider", "-k", "drop_powers",
                    *files_with(tree, "check_file"))
    assert passed(report) == 1
    [line] = [line for line in python(tree, "-m", "compiler", "list", "passes").splitlines()
              if line.startswith("graph-drop-powers ")]
    assert " default " in line and line.endswith("Replace `x ** 1` by `x`")


@pytest.mark.parametrize("section", ["An elementwise operator", "A pass"])
def test_new_files_of_the_guide_are_written_as_ours(section: str) -> None:
    pytest.importorskip("ruff")
    for edit in edits(section):
        if edit.file.endswith(".py") and not (ROOT / edit.file).exists():
            done = processes.run(
                [sys.executable, "-m", "ruff", "check", "--stdin-filename", edit.file, "-"],
                cwd=ROOT, input=edit.code, text=True, capture_output=True)
            assert done.returncode == 0, done.stdout
