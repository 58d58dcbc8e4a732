"""`bench --sizes`: figures at each set of sizes, draws, and what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.diagnostics import StrataError
from compiler.measuring.sizes import Line, check_names, plot, read_sizes, table
from tests.cli.conftest import Run
from tests.models.onnx_graph import OnnxGraph

FILE = Path("sizes.jsonl")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A product that needs m to be 9."""
    g = OnnxGraph({})
    y = g.node("MatMul", g.input("x", np.float32, ["n", "m"]), g.random_weight(9, 4))
    onnx.save(g.model({"y": y}), tmp_path / "rows.onnx")
    return tmp_path / "rows.onnx"


def test_rows_a_plot_and_json(strata: Run, model: Path) -> None:
    FILE.write_text('{"n": 2, "m": 9}\n\n{"n": [3, 6], "m": 9, "calls": 2}\n{"m": 9, "n": 0}\n')
    done = strata("bench", model, "--target", "reference", "--threads", 1, "--rounds", 2,
                  "--sizes", FILE, "--plot", "shares.svg", "--json", "figures.json")
    assert done.status == 0, done.err
    assert "of static speed" in done.out and "of bandwidth" in done.out
    rows: list[dict[str, Any]] = json.loads(Path("figures.json").read_text())["results"]
    assert [r["sizes"]["n"] for r in rows][::3] == [2, 0] and len(rows) == 4
    assert all(3 <= r["sizes"]["n"] <= 6 for r in rows[1:3])
    for row in rows:
        fixed, own = row["strata, sizes fixed"], row["strata"]
        assert fixed["difference"] < 1e-5 and own["median_ms"] > 0
        assert row["of static"] > 0 and row["of bandwidth"] >= 0
    assert Path("shares.svg").read_text().count("polyline") == 3


def test_sizes_that_the_model_refuses_are_named(strata: Run, model: Path) -> None:
    """The others are measured."""
    FILE.write_text('{"n": 4, "m": 9}\n{"n": 4, "m": 8}\n')
    done = strata("bench", model, "--target", "cpu", "--threads", 1, "--rounds", 2, "--sizes", FILE)
    assert done.status == 1
    assert "m=9 " in done.out and "m=8" not in done.out
    assert "m" in done.err and "9" in done.err and "8" in done.err, done.err


@pytest.mark.parametrize(("text", "message"), [
    ("", "it has no lines"), ("[1]", "line 1: it is no JSON object"),
    ('{"n": 1}\n{"n": -1}', "line 2: 'n' is -1"), ('{"n": 1.5}', "'n' is 1.5"),
    ('{"n": true}', "'n' is True"), ('{"n": [5, 2]}', r"'n' is \[5, 2\]"),
    ('{"n": 1, "calls": 0}', "'calls' is 0"), ("{n: 1}", "line 1: Expecting"),
])
def test_a_wrong_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "sizes.jsonl"
    file.write_text(text)
    with pytest.raises(StrataError, match=message):
        read_sizes(file, 0)


def test_names_are_checked_before_anything_is_timed() -> None:
    with pytest.raises(StrataError, match="'lenght' is not an open size") as error:
        check_names([Line({"batch": 1, "lenght": 2})], ["batch", "length"])
    assert "lacks the size 'length'" in str(error.value) and "length" in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StrataError, match="cannot be read"):
        read_sizes(tmp_path / "none", 0)


def test_draws_follow_the_seed(tmp_path: Path) -> None:
    file = tmp_path / "sizes.jsonl"
    file.write_text('{"n": [1, 1000], "m": 3, "calls": 5}')
    assert read_sizes(file, 1) == read_sizes(file, 1) != read_sizes(file, 2)
    assert len(read_sizes(file, 1)) == 5


def test_no_rows_have_no_summary() -> None:
    assert not [*table([])] and "svg" in plot([])
