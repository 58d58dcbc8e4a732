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
from conftest import PLUGINS, Run

ROOT = Path(__file__).parents[2]
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
        return subprocess.run([sys.executable, "-m", module, *map(str, words)], text=True,
                              cwd=tmp_path, env=os.environ | {"PYTHONPATH": path},
                              capture_output=True, check=False)
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


def test_without_the_package_its_operations_are_unknown(strata: Run, tmp_path: Path) -> None:
    (tmp_path / "squares.mlir").write_text(SQUARES)
    done = strata("run", "squares.mlir", "--target", "reference")
    assert done.status == 1
    assert "example.square" in done.err
