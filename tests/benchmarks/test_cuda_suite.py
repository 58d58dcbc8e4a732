"""The table of CUDA speed, and that its rows can be measured: at tiny sizes, on the CPU."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from compiler.options import CompileOptions
from compiler.tuning.options import TuneOptions
from compiler.tuning.subject import Subject
from tests import processes

ROOT = Path(__file__).parents[2]
CUDA = ROOT / "benchmarks" / "cuda"
WHERE = {"machine": "a device", "versions": "strata 1"}
TITLES = {"norms": "shares"}


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module that writes the table. Another suite's rows have the same name."""
    pytest.importorskip("torch")
    others = {n: m for n, m in sys.modules.items() if n.partition(".")[0] == "rows"}
    for name in others:
        del sys.modules[name]
    monkeypatch.syspath_prepend(CUDA)
    yield importlib.import_module("rows.table")
    for name in [n for n in sys.modules if n.partition(".")[0] == "rows"]:
        del sys.modules[name]
    sys.modules.update(others)


def measured(row: str, ratio: float, **more: Any) -> dict[str, Any]:
    return {"group": "norms", "row": row, "ours": "2 ms", "peers": {"peer": "3 ms"},
            "ratio": ratio, "goal": [0.8, 0.9, False], **WHERE, **more}


def test_the_page(table: ModuleType, tmp_path: Path) -> None:
    results = table.Results.load(tmp_path / "build" / "cuda.json")
    for record in (measured("good", 0.8, auto="1 ms", seconds=3.0),
                   measured("better", 0.95, notes=["a | note"], seconds=4.4),
                   measured("worse", 0.5), measured("worse", 0.7),
                   {"group": "norms", "row": "broken", "fault": "it\nbroke", **WHERE},
                   {"group": "norms", "row": "absent", "missing": "no package", **WHERE},
                   measured("a model", 9.0, group="compile", goal=[8.0, 4.0, True])):
        results.put(record)
    lines = table.report(table.Results.load(results.file), TITLES, "Busy.").splitlines()
    assert "| good | 2 ms | 1 ms | peer 3 ms | 0.80 | 0.8 | 0.9 | met |" in lines
    assert "| better | 2 ms |  | peer 3 ms | 0.95 | 0.8 | 0.9 | stretch |" in lines
    assert "| worse | 2 ms |  | peer 3 ms | 0.70 | 0.8 | 0.9 | **missed** |" in lines
    assert "| a model | 2 ms |  | peer 3 ms | 9.00 | ≤ 8 | ≤ 4 | **missed** |" in lines
    assert "- better: a \\| note" in lines and "- broken: it broke" in lines
    assert "- norms, compile: on a device; strata 1." in lines and "Busy." in lines
    assert {line.count("|") for line in lines if line.startswith("| ") and "note" not in line
            } == {9}
    assert "It took 7 s for norms." in lines


def test_peers_that_are_measured_later(table: ModuleType) -> None:
    first = measured("row", 0.9, seconds=3.0)
    later = measured("row", 0.7, seconds=9.0) | {"peers": {"peer": "5 ms", "slow": "1 ms"}}
    found = table.joined(first, later)
    assert found["peers"] == {"peer": "3 ms", "slow": "1 ms"}
    assert (found["ratio"], found["seconds"]) == (0.7, 12.0)
    at_most = {"goal": [8.0, 4.0, True]}
    assert table.joined(first | at_most, later | at_most)["ratio"] == 0.9
    broken = {"group": "norms", "row": "row", "fault": "it broke", **WHERE}
    assert table.joined(first, broken) == first and table.joined(broken, later) == later


def test_slow_modes_come_last(
    table: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    del table
    monkeypatch.delitem(sys.modules, "suite", raising=False)
    suite = importlib.import_module("suite")
    rows = {"products": ["a", "b"], "norms": ["c"], "models": ["d", "e"]}
    found = [(p.group, list(p.rows), list(p.modes), p.beside)
             for p in suite.parts(rows, ["default", "max-autotune"])]
    quick, slow = ["default"], ["max-autotune"]
    assert found == [
        ("products", ["a", "b"], quick, False), ("norms", ["c"], quick, False),
        ("models", ["d"], quick, False), ("models", ["e"], quick, False),
        ("products", ["a", "b"], slow, True), ("models", ["d"], slow, True),
        ("models", ["e"], slow, True)]
    monkeypatch.delitem(sys.modules, "suite")


def test_a_result_that_is_wrong_or_nan(table: ModuleType) -> None:
    del table
    torch = importlib.import_module("torch")
    programs = importlib.import_module("rows.programs")
    exact = torch.tensor([1.0, -4.0], dtype=torch.float64)
    assert programs.off(torch.tensor([1.0, -3.0]), exact) == 0.25
    assert programs.off(torch.tensor([1.0, float("nan")]), exact) == float("inf")
    assert programs.off(torch.tensor([1.0]), exact) == float("inf")
    assert programs.allowed(0.0, torch.float16) < 0.01 < programs.allowed(0.01, torch.float16)


def test_every_group_has_rows(table: ModuleType) -> None:
    del table
    rows = importlib.import_module("rows")
    for name in rows.MEASURED:
        module = rows.group(name)
        assert module.TITLE and module.rows(rows.Setting(smoke=True))


def suite(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return processes.run(
        [sys.executable, CUDA / "suite.py", "--smoke", "--modes", "", "--results",
         folder / "cuda.json", "-o", folder / "table.md", *map(str, words)], text=True,
        capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)})


def test_rows_can_be_measured(tmp_path: Path) -> None:
    """What does not fit in the time is left out; a later run adds it."""
    pytest.importorskip("torch")
    done = suite(tmp_path, "--rows", "norms", "--budget", 0)
    assert done.returncode == 0 and "left out" in done.stdout, done.stderr
    done = suite(tmp_path, "--rows", "norms,moves", "--only", "RMS,row sum", "--jobs", 2)
    assert done.returncode == 0, done.stderr
    records = json.loads((tmp_path / "cuda.json").read_text())
    assert set(records) == {"norms/RMS norm 8192x4096", "moves/row sum 8192x4096 f32"}
    assert all(record["ratio"] > 0 for record in records.values())
    assert "eager" in (tmp_path / "table.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "only", "more"), [
    ("norms", "softmax", ["--interpret"]), ("products", "fp8,linear", []),
    ("attention", "fp16", []), ("convolutions", "", []), ("host", "four", []),
    ("models", "BERT-base b1,decode", [])])
def test_more_rows_can_be_measured(tmp_path: Path, rows: str, only: str, more: list[str]) -> None:
    for package in ("torch", *["transformers"] * (rows == "models"),
                    *["triton"] * ("--interpret" in more)):
        pytest.importorskip(package)
    done = suite(tmp_path, "--rows", rows, "--only", only, *more)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout and "missing" not in done.stdout


@pytest.mark.slow
def test_kernels_of_rows_can_be_tuned(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = processes.run(
        [sys.executable, CUDA / "seed.py", "kernels", tmp_path, "moves", "--smoke", "--jobs", "1"],
        text=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr
    models = sorted(tmp_path.glob("*/model.mlir"))
    options = CompileOptions(target="cuda", features="sm_90", cache="off")
    assert len(models) == 2
    assert all(Subject(str(model), options).tasks(TuneOptions()) for model in models)
