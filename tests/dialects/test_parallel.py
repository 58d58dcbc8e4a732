"""Work on large arrays by several threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dialects.strata import parallel
from dialects.strata.parallel import in_threads


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_processors", lambda: 2)


def test_results_come_in_the_order_of_the_items() -> None:
    together = threading.Barrier(2, timeout=30)

    def work(item: int) -> int:
        together.wait()  # so that two threads are at it
        return 10 * item

    assert in_threads(work, range(6)) == [0, 10, 20, 30, 40, 50]


def test_one_item_needs_no_thread() -> None:
    assert in_threads(lambda _: threading.current_thread(), [1]) == [threading.current_thread()]
    assert in_threads(lambda item: item, []) == []


def test_an_error_is_the_callers() -> None:
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda item: 1 // item, [1, 0, 2])


@pytest.mark.filterwarnings("error")
def test_numpys_error_state_holds_in_threads() -> None:
    def work(item: float) -> np.float32:
        return np.float32(item) / np.float32(0)

    with np.errstate(divide="ignore"):
        assert in_threads(work, [1.0, 2.0]) == [np.inf, np.inf]
