"""Dialects, passes and targets from outside: a file, and an installed package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import processes
from tests.cli.conftest import PLUGINS, Run

ROOT = Path(__file__).parents[3]
SQUARES = """\
strata.func @main(%x: f32[n]) -> (f32[n]) inputs ["x"] outputs ["y"] {
  %y = example.square %x : f32[n]
  strata.return %y
}
"""


def test_a_plugin_file_adds_a_pass(strata: Run, small_model: Path, my_pass: Path) -> None:
    lower = ("lower", small_model, "--target", "reference", "--to", "graph", "--plugin", my_pass)
    assert "graph.pow" not in strata(*lower).out
    done = strata(*lower, "--passes", "default,after(graph-cse)=my-pass{base=2.0}")
    assert done.status == 0, done.err
    assert "graph.pow" in done.out
    assert "my-pass" in strata("list", "passes", "--plugin", my_pass).out


def test_the_readme_shows_the_plugin_file() -> None:
    """The example in README.md is the file that these tests run."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, after = readme.partition("<!-- plugin example: tests/plugin -->\n```python\n")
    shown = after.partition("```")[0]
    assert shown == (PLUGINS / "my_pass.py").read_text(encoding="utf-8")


def install(site: Path, folder: Path) -> None:
    """Let Python believe that the project in a folder is installed: write what names it."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    name = project["name"].replace("-", "_")
    info = site / f"{name}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines: list[str] = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def installed(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a module with arguments where Strata and the example package are installed."""
    site = tmp_path / "site"
    install(site, PLUGINS)
    install(site, ROOT)
    path = os.pathsep.join(map(str, (site, PLUGINS, ROOT)))

    def run(*words: object, module: str = "compiler") -> subprocess.CompletedProcess[str]:
        return processes.run([sys.executable, "-m", module, *map(str, words)], text=True,
                             cwd=tmp_path, env=os.environ | {"PYTHONPATH": path},
                             capture_output=True)
    return run


def test_xdsl_opt_sees_our_dialects_and_passes(
    installed: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "squares.mlir").write_text(SQUARES)
    done = installed("squares.mlir", "-p", "example-expand,graph-to-loop",
                     module="xdsl.tools.xdsl_opt")
    assert done.returncode == 0, done.stderr
    assert "loop.nest" in done.stdout


def test_an_installed_package_is_found(
    installed: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "squares.mlir").write_text(SQUARES)
    done = installed("run", "squares.mlir", "--target", "example", "--dim", "n=4")
    assert done.returncode == 0, done.stderr
    assert "y  float32[4]" in done.stdout
    done = installed("opt", "squares.mlir", "--target", "example", "--passes", "example-expand")
    assert "graph.mul" in done.stdout, done.stderr
    done = installed("verify", "squares.mlir", "--target", "reference", "--passes",
                     "default,before(graph-fold-sizes)=example-expand")
    assert done.returncode == 0, done.stderr
    names = [row["name"] for row in json.loads(installed("list", "targets", "--json").stdout)]
    assert "example" in names
    assert "example-expand" in installed("list", "passes").stdout
    assert "example.square" in installed("list", "ops").stdout


DISTANCES = """\
strata.func @main(%a: f32[m, 7], %b: f32[3, 7]) -> (f32[m, 3]) inputs ["a", "b"] outputs ["d"] {
  %d = example_op.l1_distance %a, %b : f32[m, 3]
  strata.return %d
}
"""


def test_modules_of_an_installed_package_are_plugins(
    installed: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """An operation, its nests, a level and a target, each of another module of the package."""
    (tmp_path / "d.mlir").write_text(DISTANCES)
    done = installed("verify", "d.mlir", "--target", "c", "--dim", "m=4")
    assert done.returncode == 0, done.stderr
    assert "task-from-host" in done.stdout + done.stderr


def test_without_the_package_its_operations_are_unknown(strata: Run, tmp_path: Path) -> None:
    (tmp_path / "squares.mlir").write_text(SQUARES)
    done = strata("run", "squares.mlir", "--target", "reference")
    assert done.status == 1
    assert "example.square" in done.err


@pytest.mark.parametrize(("command", "target"), [
    ("run", "cpu"), ("run", "example"), ("verify", "example")])
def test_an_operation_without_lowering(
    installed: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, command: str,
    target: str,
) -> None:
    """The message says where the operation is defined; a target that executes graphs runs it."""
    (tmp_path / "squares.mlir").write_text(SQUARES)
    done = installed(command, "squares.mlir", "--target", target)
    if (command, target) == ("run", "example"):
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 1
    assert "example.square has no lowering" in done.stderr
    source = (ROOT / "tests" / "plugin" / "strata_example" / "dialect.py").read_text()
    line = source.splitlines().index("@irdl_op_definition") + 1
    assert f"dialect.py, line {line}" in done.stderr
    assert not list(tmp_path.glob("reproducer*"))


FAILING_TARGET = '''
from targets.parts import Emission
from targets.reference import ReferenceTarget

class FailingEmission(Emission):
    def emit(self, module, level):
        return [][0]

class Failing(ReferenceTarget):
    emission = FailingEmission
    def report(self):
        return [][1]

TARGET = Failing("failing", ("count",), "fails", lowers=False)
'''


def test_a_target_of_a_plugin_that_fails(
    strata: Run, small_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "failing.py").write_text(FAILING_TARGET)
    for words, line in ((("lower", small_model, "--target", "failing"), 7), (("doctor",), 12)):
        done = strata(*words, "--plugin", "failing.py")
        assert done.status == 1
        assert f"failing.py, line {line}" in done.err, done.err
        assert "fault of the compiler" not in done.err


def test_an_installed_plugin_that_cannot_be_imported(tmp_path: Path) -> None:
    info = tmp_path / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[strata.targets]\nbroken = broken_package:TARGET\n")
    path = os.pathsep.join(map(str, (tmp_path, ROOT)))
    done = processes.run([sys.executable, "-m", "compiler", "list", "targets"], text=True,
                         cwd=tmp_path, env=os.environ | {"PYTHONPATH": path},
                         capture_output=True)
    assert done.returncode == 1
    assert "the plugin 'broken' cannot be loaded" in done.stderr
    assert "broken_package" in done.stderr
    (tmp_path / "broken_package.py").write_text("x = 1\nTARGET = x / 0\n")
    (info / "entry_points.txt").write_text("[strata.plugins]\nbroken = broken_package\n")
    done = processes.run([sys.executable, "-m", "compiler", "list", "targets"], text=True,
                         cwd=tmp_path, env=os.environ | {"PYTHONPATH": path},
                         capture_output=True)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "broken_package.py\", line 2" in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["targets", "xdsl"])
def test_a_file_that_hides_a_package(small_model: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("x = 1\n")
    script = "import compiler, sys; compiler.compile(sys.argv[1], target='cpu')"
    (tmp_path / "mine.py").write_text(script)
    for words in (["-m", "compiler", "run"], ["mine.py"]):
        done = processes.run([sys.executable, *words, str(small_model)], text=True, cwd=tmp_path,
                             env=os.environ | {"PYTHONPATH": str(ROOT), "STRATA_CACHE": "cache"},
                             capture_output=True)
        assert done.returncode == 1
        if words[0] == "-m" or name in ("targets", "passes", "dialects"):
            assert f"{name}.py hides the package '{name}'" in done.stderr, done.stderr
            assert "fault of the compiler" not in done.stderr
        assert not list(tmp_path.glob("reproducer*"))
