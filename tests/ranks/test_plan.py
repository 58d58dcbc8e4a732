"""The plan for many devices: it follows from the facts of links, and tells what two GPUs took."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "distributed"


@pytest.fixture(scope="module")
def plan() -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / "plan.py"), run_name="plan")


def test_the_page_is_what_the_model_says(plan: dict[str, Any]) -> None:
    assert (FOLDER / "PLAN.md").read_text() == plan["page"]()


def test_two_devices_take_what_was_measured(plan: dict[str, Any]) -> None:
    """Nothing of two GPUs was fitted but their all-reduce."""
    for device in map(plan["calibrated"], plan["DEVICES"]):
        measured = plan["MEASURED"][device.name]
        for case, times in zip(plan["CHECKED"], measured, strict=True):
            found = [1e3 * device.step(plan["FOUR"], case, n) for n in (1, 2)]
            assert found == pytest.approx(times, rel=0.25), (device.name, case.name)


def test_ranks_stop_paying(plan: dict[str, Any]) -> None:
    assert plan["last_paying"]({n: 1 / n for n in plan["SIZES"]}) == 512
    assert plan["last_paying"]({n: 1 / min(n, 4) for n in plan["SIZES"]}) == 4
