"""Work on large arrays by several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from dialects.strata import parallel
from dialects.strata.parallel import WORTH_A_THREAD, Arrays, Begun, in_threads
from dialects.strata.types import Array


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


def test_the_caller_is_one_of_the_threads() -> None:
    together = threading.Barrier(2, timeout=30)

    def work(item: int) -> threading.Thread:
        together.wait()
        return threading.current_thread()

    assert threading.current_thread() in in_threads(work, range(2))


@pytest.mark.parametrize("is_callers", [True, False])
def test_an_interrupt_ends_the_work(is_callers: bool) -> None:
    together, begun = threading.Barrier(2, timeout=30), list[int]()

    def work(item: int) -> None:
        begun.append(item)
        together.wait()
        if (threading.current_thread() is threading.main_thread()) == is_callers:
            raise KeyboardInterrupt
        raise ValueError(f"item {item}")

    with pytest.raises(KeyboardInterrupt):
        in_threads(work, range(100))
    assert sorted(begun) == [0, 1]


@pytest.mark.filterwarnings("error")
def test_numpys_error_state_holds_in_threads() -> None:
    def work(item: float) -> np.float32:
        return np.float32(item) / np.float32(0)

    with np.errstate(divide="ignore"):
        assert in_threads(work, [1.0, 2.0]) == [np.inf, np.inf]


# ---------------------------------------------------------------------- arrays on their way
SIZE = WORTH_A_THREAD // 4
LOOKS: list[Callable[[Arrays], Array]] = [
    lambda arrays: arrays["a"], lambda arrays: arrays.get("a"),
    lambda arrays: next(iter(arrays.values())), lambda arrays: next(iter(arrays.items()))[1],
    lambda arrays: arrays.settle() or arrays.unfilled("a")]


def begun(fill: Callable[[Array], None], size: int = SIZE) -> Begun:
    array = np.zeros(size, np.float32)
    return Begun(array, lambda: fill(array))


@pytest.mark.parametrize("look", LOOKS)
def test_whoever_looks_at_an_array_waits_until_it_is_filled(
    look: Callable[[Arrays], Array]
) -> None:
    arrays, may_fill = Arrays(), threading.Event()

    def fill(array: Array) -> None:
        assert may_fill.wait(30)
        array[:] = 7

    arrays.begin("a", begun(fill))
    assert "a" in arrays and arrays.unfilled("a").shape == (SIZE,)
    assert not arrays.unfilled("a").any()
    threading.Timer(0.05, may_fill.set).start()
    assert (look(arrays) == 7).all()


def test_arrays_are_filled_in_order_by_one_thread_after_another() -> None:
    arrays, order = Arrays(), list[int]()
    for k in range(20):
        arrays.begin(f"{k}", begun(lambda array, k=k: order.append(k)))
        if k % 5 == 0:
            arrays.settle()
    arrays.settle()
    assert order == [*range(20)]


def test_an_error_is_raised_where_the_array_is_needed() -> None:
    arrays = Arrays()

    def fail(array: Array) -> None:
        raise MemoryError("no pages")

    arrays.begin("a", begun(fail))
    arrays.begin("b", begun(lambda array: array.fill(1)))
    assert arrays["b"].all()
    with pytest.raises(MemoryError, match="no pages"):
        arrays.settle()
    with pytest.raises(MemoryError):
        arrays["a"]
    del arrays["a"]
    arrays.settle()


@pytest.mark.parametrize("size", [SIZE, 5])
def test_an_array_is_filled_from_one_that_was_begun_before(size: int) -> None:
    arrays, may_fill = Arrays(), threading.Event()

    def first(array: Array) -> None:
        assert may_fill.wait(30)
        array[:] = 7

    threading.Timer(0.05, may_fill.set).start()
    arrays.begin("a", begun(first))
    arrays.begin("b", begun(lambda array: np.copyto(array, arrays.unfilled("a")[:size] + 1), size),
                 ["a"])
    assert (arrays["b"] == 8).all()


@pytest.mark.parametrize("size", [SIZE, 5])
def test_an_array_is_not_filled_from_one_that_could_not_be(size: int) -> None:
    arrays = Arrays()

    def fail(array: Array) -> None:
        raise MemoryError("no pages")

    arrays.begin("a", begun(fail))
    with pytest.raises(MemoryError, match="no pages"):
        arrays.begin("b", begun(lambda array: array.fill(1), size), ["a"])
        arrays["b"]


@pytest.mark.parametrize(("processors", "size"), [(1, SIZE), (2, 5)])
def test_small_arrays_and_one_processor_need_no_other_thread(
    monkeypatch: pytest.MonkeyPatch, processors: int, size: int
) -> None:
    monkeypatch.setattr(parallel, "_processors", lambda: processors)
    arrays, threads = Arrays(), list[threading.Thread]()
    arrays.begin("a", begun(lambda array: threads.append(threading.current_thread()), size))
    assert threads == [threading.current_thread()]
