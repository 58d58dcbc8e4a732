"""`list`, `doctor`, and help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compiler import __version__
from compiler.cli.commands import commands
from compiler.pipeline.steps import PIPELINE
from tests.cli.conftest import Run


@pytest.mark.parametrize(("kind", "names"), [
    ("ops", {"graph.add", "loop.nest", "host.launch", "block.load", "strata.func"}),
    ("passes", {step.name for step in PIPELINE}),
    ("targets", {"cpu", "cuda", "hip", "opencl", "reference"}),
    ("levels", {"graph", "loop", "host", "block", "llvm", "asm", "triton", "ptx", "sass",
                "amdgcn"}),
    ("frontends", {"onnx"}),
])
def test_list(strata: Run, kind: str, names: set[str]) -> None:
    rows = json.loads(strata("list", kind, "--json").out)
    assert names <= {row["name"] for row in rows}
    text = strata("list", kind).out
    assert all(any(line.startswith(f"{name} ") for line in text.splitlines()) for name in names)


def test_doctor_tells_of_every_target(strata: Run) -> None:
    done = strata("doctor")
    assert done.status == 0
    assert f"strata {__version__}" in done.out
    for name in ("cpu", "cuda", "hip", "opencl", "reference"):
        assert f"target {name}: " in done.out


@pytest.mark.parametrize("command", ["", *commands()])
def test_help(strata: Run, command: str) -> None:
    done = strata(*filter(None, [command]), "--help")
    assert done.status == 0
    assert "usage: python -m compiler" in done.out


def test_every_command_of_the_pages_is_there() -> None:
    """README.md and the help name the same commands, but for those of later releases."""
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    assert all(f"python -m compiler {name}" in readme for name in commands())
