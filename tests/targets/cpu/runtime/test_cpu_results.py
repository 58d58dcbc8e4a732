"""Memory of results: it is used again once nobody can see it, and never before."""

from __future__ import annotations

import gc
import os
import threading

import numpy as np
import pytest

from targets.cpu.runtime.results import LARGE, Result
from tests import processes

SIZE = LARGE // 4
F32 = np.dtype(np.float32)


def address(array: np.ndarray) -> int:
    return array.ctypes.data


@pytest.mark.parametrize("size", [0, 1, 7, SIZE - 1, SIZE, SIZE + 3])
@pytest.mark.parametrize("name", ["float32", "float16", "int64", "bool"])
def test_results_are_plain_arrays(size: int, name: str) -> None:
    array = Result((size,), np.dtype(name)).array()
    assert array.shape == (size,) and array.dtype == name
    assert array.flags.writeable and array.flags.c_contiguous and type(array) is np.ndarray
    array[:] = 1
    assert (array == 1).all()


def test_large_results_begin_with_a_cache_line() -> None:
    result = Result((3, SIZE), F32)
    kept = [result.array() for _ in range(3)]
    assert all(address(a) % 64 == 0 for a in kept)


def test_dropped_memory_is_used_again() -> None:
    result = Result((SIZE,), F32)
    first = result.array()
    place = address(first)
    del first
    assert address(result.array()) == place


def test_memory_that_is_seen_stays() -> None:
    result = Result((2, SIZE), F32)
    whole = result.array()
    whole[:] = 1
    views = [whole[1], whole.T[5:], whole.reshape(-1)[::2].view(np.int32), memoryview(whole)]
    del whole
    while views:
        result.array()[:] = 2
        assert (np.asarray(views[-1]).view(np.float32) == 1).all()
        views.pop()


def test_tensors_of_other_libraries_keep_it() -> None:
    torch = pytest.importorskip("torch")
    result = Result((SIZE,), F32)
    tensor = torch.from_numpy(result.array()).fill_(1)
    other = torch.from_dlpack(result.array()).fill_(2)
    result.array()[:] = 3
    assert (tensor == 1).all() and (other == 2).all()


def test_one_piece_is_spare() -> None:
    result = Result((SIZE,), F32)
    kept = [result.array() for _ in range(4)]
    kept.clear()
    assert len(result._spare) == 1


def test_cycles_give_it_back() -> None:
    result = Result((SIZE,), F32)
    cycle: list[object] = [result.array()]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert len(result._spare) == 1


def test_arrays_outlive_their_maker() -> None:
    result = Result((SIZE,), F32)
    array = result.array()
    array[:] = 1
    del result
    assert (array == 1).all()


def test_threads_have_memory_of_their_own() -> None:
    result, wrong = Result((SIZE,), F32), list[int]()

    def work(number: int) -> None:
        for _ in range(200):
            array = result.array()
            array[:: 4096] = number
            wrong.extend(array[:: 4096][array[:: 4096] != number])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_has_its_own() -> None:
    result = Result((SIZE,), F32)
    kept = result.array()
    kept[:] = 1
    result.array()
    child = processes.fork()
    if child == 0:
        kept[:] = 2
        result.array()[:] = 3
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (kept == 1).all()
