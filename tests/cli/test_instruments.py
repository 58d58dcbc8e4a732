"""What watches the pipeline: times, provenance, progress, and the contracts of the levels."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from conftest import Run
from xdsl.dialects.builtin import ModuleOp

from compiler.driver import Compiler
from compiler.instrument.progress import Progress
from compiler.instrument.provenance import without_node
from compiler.levels import LEVELS, detect_level, strangers
from compiler.options import CompileOptions
from compiler.pipeline import PIPELINE

LEVEL_NAMES = list(dict.fromkeys(step.level for step in PIPELINE))


def lowered(model: Path, level: str) -> ModuleOp:
    return Compiler(str(model), CompileOptions("reference")).lower(level).module


@pytest.mark.parametrize("name", LEVEL_NAMES)
def test_contracts_tell_levels_apart(small_model: Path, name: str) -> None:
    module = lowered(small_model, name)
    level = detect_level(module)
    assert level is not None
    assert level.name == name
    assert all(strangers(module, other) for other in LEVELS if other.name != name)


@pytest.mark.parametrize("name", LEVEL_NAMES)
def test_every_operation_names_its_node(small_model: Path, name: str) -> None:
    assert not without_node(lowered(small_model, name))


def test_pass_times_are_told(strata: Run, small_model: Path) -> None:
    done = strata("lower", small_model, "--target", "reference", "--to", "graph", "--timing")
    rows = done.err.splitlines()
    assert rows[-1].endswith(f"in {sum(s.level == 'graph' for s in PIPELINE)} passes")
    assert any("graph-decompose" in row for row in rows)


def test_short_work_is_silent() -> None:
    stream = io.StringIO()
    with Progress(True, stream) as progress:
        progress.tell("something short")
    assert stream.getvalue() == ""


def test_long_work_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.instrument.progress.PATIENCE", 0.0)
    monkeypatch.setattr("compiler.instrument.progress.PERIOD", 0.01)
    stream = io.StringIO()
    with Progress(True, stream) as progress:
        progress.tell("something long")
        time.sleep(0.3)
    assert stream.getvalue().startswith("something long (")
    assert stream.getvalue().count("\n") == 1


def test_nothing_is_told_unasked_where_no_one_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.instrument.progress.PATIENCE", 0.0)
    stream = io.StringIO()
    with Progress(None, stream) as progress:
        progress.tell("something long")
        time.sleep(0.3)
    assert stream.getvalue() == ""
