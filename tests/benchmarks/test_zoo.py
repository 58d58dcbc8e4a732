"""The table of the zoo is gathered over several runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ZOO = Path(__file__).parents[2] / "benchmarks" / "zoo"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, as a module."""
    monkeypatch.syspath_prepend(str(ZOO))
    monkeypatch.delitem(sys.modules, "run", raising=False)
    import run

    yield run
    del sys.modules["run"]


def test_a_run_goes_on_with_the_page(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a page has is kept, what failed is measured again, and each cell is written at once."""
    names, page, asked = ["a", "b", "c"], tmp_path / "PAGE.md", list[str]()
    for name in names:
        (tmp_path / f"{name}.onnx").touch()
    (tmp_path / "models.json").write_text(json.dumps(
        {"models": [{"name": name, "flags": {}, "cases": []} for name in names]}))
    monkeypatch.setenv("STRATA_ZOO", str(tmp_path))

    def measure(column: str, model: Path, *_: Any) -> dict[str, Any]:
        asked.append(f"{column} {model.stem}")
        if len(asked) > 1:
            assert f"first {asked[0].split()[1]}" in page.read_text()
        return {"ok": model.stem != "b" or len(asked) > 3, "text": f"first {model.stem}"}

    monkeypatch.setattr(run, "measure", measure)
    results = iter(("one.json", "two.json"))  # the second run is on another machine

    def main(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", [
            "run.py", "--columns", "strategies", "-o", str(page),
            "--results", str(tmp_path / next(results)), *words])
        return run.main()

    assert main() == 1 and "**FAIL**" in page.read_text()
    assert main("--resume") == 0
    assert asked == ["strategies a", "strategies b", "strategies c", "strategies b"]
    rows = [line for line in page.read_text().splitlines() if " | first" in line]
    assert rows == [f"| {name} | first {name} |" for name in names]


@pytest.mark.parametrize("page", [
    "STRATEGIES.md", "KERNELS_IN_RING.md", "CHECKED.md", "RESULTS.md", "ORIGINS.md"])
def test_pages_are_read_as_they_are_written(run: Any, page: str, tmp_path: Path) -> None:
    text = (ZOO / page).read_text()
    results = run.Results.load(tmp_path / "none.json")
    results.add_page(text)
    assert results.cells and results.well
    order = list(results.cells)
    assert results.table(order).strip() in text
