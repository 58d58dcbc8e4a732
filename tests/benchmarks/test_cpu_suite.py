"""The table of CPU speed, and that the rows which need no models can be measured."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import processes

ROOT = Path(__file__).parents[2]
CPU = ROOT / "benchmarks" / "cpu"
WHERE = {"machine": "a processor", "versions": "strata 1", "load": 0.5, "threads": 1}


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that writes the table."""
    monkeypatch.syspath_prepend(CPU)
    return importlib.import_module("rows.table")


def measured(group: str, row: str, ratio: float, **more: Any) -> dict[str, Any]:
    return {"group": group, "row": row, "ours": "2 ms", "peers": {"peer": "3 ms"}, "ratio": ratio,
            **WHERE, **more}


def test_results_gather_in_a_file(table: ModuleType, tmp_path: Path) -> None:
    """A row that is measured again takes the place of the older one."""
    file = tmp_path / "build" / "cpu.json"
    table.Results.load(file).put(measured("kernels", "softmax", 0.5))
    again = table.Results.load(file)
    again.put(measured("kernels", "softmax", 1.5))
    again.put({**measured("kernels", "softmax", 2.5), "threads": 2})
    ratios = [record["ratio"] for record in table.Results.load(file).records.values()]
    assert ratios == [1.5, 2.5]


def lines_of(table: ModuleType, tmp_path: Path, *records: dict[str, Any]) -> list[str]:
    results = table.Results.load(tmp_path / "cpu.json")
    for record in records:
        results.put(record)
    return table.report(results, "Busy.").splitlines()


def test_a_row_and_its_goal(table: ModuleType, tmp_path: Path) -> None:
    lines = lines_of(table, tmp_path, measured("kernels", "good", 1.0),
                     measured("kernels", "better", 1.25), measured("kernels", "worse", 0.99),
                     measured("start", "late", 1.01), measured("start", "soon", 0.5))
    assert "| good | 1 | 2 ms | peer 3 ms | 1.00 | 1 | 1.2 | met | 0.5 |" in lines
    assert "| better | 1 | 2 ms | peer 3 ms | 1.25 | 1 | 1.2 | stretch | 0.5 |" in lines
    assert "| worse | 1 | 2 ms | peer 3 ms | 0.99 | 1 | 1.2 | **missed** | 0.5 |" in lines
    assert "| late | 1 | 2 ms | peer 3 ms | 1.01 | ≤ 1 | ≤ 0.5 | **missed** | 0.5 |" in lines
    assert "| soon | 1 | 2 ms | peer 3 ms | 0.50 | ≤ 1 | ≤ 0.5 | stretch | 0.5 |" in lines
    assert "- kernels, start: on a processor; strata 1." in lines
    assert "Busy." in lines


def test_a_geometric_mean(table: ModuleType, tmp_path: Path) -> None:
    """It is of the rows with as many threads that could be measured."""
    lines = lines_of(table, tmp_path, measured("int8", "a", 0.5), measured("int8", "b", 9.68),
                     {**measured("int8", "a", 1.0), "threads": 2},
                     {"group": "int8", "row": "c", **WHERE, "fault": "it | broke\nhere"})
    assert ("| **geometric mean of 2** | 1 | | lowest: a, 0.50 | **2.20** | 1.2 | 2 | stretch | |"
            in lines)
    assert ("| **geometric mean of 1** | 2 | | lowest: a, 1.00 | **1.00** | 1.2 | 2 | "
            "**missed** | |" in lines)
    assert "| a | 1 | 2 ms | peer 3 ms | 0.50 |  | |  | 0.5 |" in lines
    assert "| c | 1 | **FAIL** | | | | | | 0.5 |" in lines
    assert "- c: it \\| broke here" in lines


def test_every_line_has_all_columns(table: ModuleType, tmp_path: Path) -> None:
    lines = lines_of(table, tmp_path, measured("zoo", "a", 0.5), measured("kernels", "b", 1.0),
                     {"group": "zoo", "row": "c", **WHERE, "fault": "x"},
                     {"group": "zoo", "row": "d", **WHERE, "missing": "no model"})
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 9
    assert {line.count("|") for line in rows} == {10}


def script(name: str, *words: object) -> subprocess.CompletedProcess[str]:
    """A script of the suite, with this checkout to import from and without a zoo."""
    environment = {k: v for k, v in os.environ.items() if k != "STRATA_ZOO"}
    return processes.run([sys.executable, CPU / name, *map(str, words)], text=True,
                         capture_output=True, env=environment | {"PYTHONPATH": str(ROOT)})


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    """Without a zoo, its rows are there and say what they need."""
    pytest.importorskip("onnxruntime")
    done = script("suite.py", "--rows", "small", "--only", "magika", "--results",
                  tmp_path / "cpu.json", "-o", tmp_path / "table.md")
    assert done.returncode == 0, done.stderr
    assert "magika.onnx is not in the folder $STRATA_ZOO" in done.stdout
    assert "not measured: magika.onnx is not in" in (tmp_path / "table.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("group", "row"), [
    ("gemm", "128x3072x768"), ("chains", "RMS norm, 16 MB"), ("kernels", "softmax 4096x1024"),
    ("int8", "QDQ MatMul, ReLU, MatMul")])
def test_rows_can_be_measured(group: str, row: str) -> None:
    for package in ("onnxruntime", "openvino", "torch"):
        pytest.importorskip(package)
    done = script("row.py", group, row, "--seconds", 0.1)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["ratio"] > 0
    assert "onnxruntime" in figures["peers"]
    assert not [note for note in figures["notes"] if "differs" in note]
