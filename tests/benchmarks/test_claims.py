"""The page of `benchmarks/claims.py`: from the figures that are kept; and how it judges."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def claims() -> Any:
    import sys

    spec = importlib.util.spec_from_file_location("claims", FOLDER / "claims.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["claims"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_made_of_the_figures(claims: Any) -> None:
    figures = json.loads(claims.FIGURES.read_text(encoding="utf-8"))
    assert claims.page(figures) == claims.PAGE.read_text(encoding="utf-8")
    for found in figures.values():
        assert found["rows"].keys() == claims.CLAIMS.keys()
        for row in found["rows"].values():
            for side in (row["torch"], row["strata"]):
                assert "problem" in side or side["factor"] == sorted(side["factor"])


@pytest.mark.parametrize("factor, told", [
    ([1.5, 1.6, 1.7], "yes"), ([1.3, 1.4, 1.5], "yes"), ([0.5, 0.9, 2.0], "unclear"),
    ([0.9, 1.0, 1.1], "less"), ([2.5, 3.0, 4.0], "more"), ([1.0, 2.5, 4.0], "unclear")])
def test_the_interval_decides(claims: Any, factor: list[float], told: str) -> None:
    assert claims.verdict(claims.CLAIMS["softmax"], {"factor": factor}) == told
    assert claims.verdict(claims.CLAIMS["softmax"], {"problem": "none"}) == "not measured"


def test_memory_of_eager_operators_is_counted(claims: Any) -> None:
    """Three results of 400 bytes, of which two are alive at once; a view takes nothing."""
    torch: Any = pytest.importorskip("torch")

    class Chain(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            x = x.reshape(10, 10)
            for _ in range(3):
                x = torch.exp(x)
            return x

    assert claims.eager_memory(Chain(), (torch.zeros(100),)) == (1200, 800)


def test_both_ways_of_a_claim_compute_the_same(claims: Any) -> None:
    torch: Any = pytest.importorskip("torch")
    module, inputs = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval(), (
        torch.randn(3, 8),)
    expected = module(*inputs)
    for name in ("dynamic", "layout", "folding", "graphs", "softmax"):
        for run in claims.of_strata(name, module, inputs, "cpu", 1):
            [found] = run()
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert claims.planned(module, inputs, "cpu")[0] >= claims.planned(module, inputs, "cpu")[1]
