"""How the benchmarks of GPUs attribute time to kernels that overlap."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "shared"))

from suites.kernels import Span, waited_for


@pytest.mark.parametrize(("spans", "waits"), [
    ([("a", 0, 4), ("b", 5, 7), ("a", 9, 10)], {"a": 5, "b": 2}),  # one after the other
    ([("a", 0, 4), ("b", 1, 7)], {"a": 4, "b": 3}),  # launched early, then waits
    ([("a", 0, 9), ("b", 1, 7)], {"b": 6, "a": 2}),  # a branch beside a longer one
    ([], {}),
])
def test_times_of_kernels_add_up(spans: list[Span], waits: dict[str, float]) -> None:
    assert dict(waited_for(spans)) == waits
