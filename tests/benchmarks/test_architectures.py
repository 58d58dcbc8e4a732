"""The page of `benchmarks/cuda/architectures.py`: what it tells of code, and of what has none."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CUDA = Path(__file__).parents[2] / "benchmarks" / "cuda"


@pytest.fixture
def architectures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(CUDA)
    monkeypatch.delitem(sys.modules, "architectures", raising=False)
    return importlib.import_module("architectures")


def test_the_page(architectures: ModuleType) -> None:
    """The most of a row's kernels; spills; kernels that need more than there is; faults."""
    whole: dict[str, Any] = {a: [(40, 0, 1024)] for a in architectures.ARCHITECTURES}
    large = whole | {"sm_89": [(90, 8, 128 << 10), (30, 0, 0)], "gfx942": "it broke"}
    lines = architectures.page({
        "s/softmax/0": {"class": "softmax", "name": "4x5", "needs": whole},
        "s/product/0": {"class": "product", "name": "6x7", "needs": large}}, "bf16.").splitlines()
    assert "| sm_89 | 2 | 0 | 3 | 1 | 90 | 8 bytes | 128 KiB | 99 KiB | 1 |" in lines
    assert "| gfx942 | 2 | 1 | 1 | 0 | 40 | 0 bytes | 1 KiB | 64 KiB | 0 |" in lines
    row = next(line for line in lines if line.startswith("| product"))
    assert row.split(" | ")[2:] == ["40, 0, 1", "90, 8, 128", "40, 0, 1", "40, 0, 1", "40, 0, 1",
                                    "none |"]
    assert "- gfx942, product: 6x7: it broke" in lines
