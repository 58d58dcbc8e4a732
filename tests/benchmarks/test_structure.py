"""The page with the figures of the structure is not much older than the tree."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/structure.py"
MOST = 0.1
"""What the figures of the page may be off by."""


@pytest.fixture(scope="module")
def structure() -> Any:
    spec = importlib.util.spec_from_file_location("structure", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outdated(rows: dict[str, str], now: dict[str, str]) -> dict[str, str]:
    """The rows of the page that are off by more -> what they should say."""
    return {row: count for row, count in now.items()
            if abs(int(rows.get(row, 0)) - int(count)) > MOST * int(count)}


def test_figures_are_those_of_the_tree(structure: Any) -> None:
    """Otherwise `python benchmarks/structure.py --write` rewrites them."""
    rows = {row: now for row, _, now in structure.kept()}
    assert outdated(rows, dict(structure.sizes_of(structure.ROOT))) == {}


def test_old_figures_are_found() -> None:
    rows = {"lines": "91", "modules": "89"}
    assert outdated(rows, {"lines": "100", "modules": "100", "more": "1"}) == {
        "modules": "100", "more": "1"}
