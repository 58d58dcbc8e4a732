"""Runs on tensors share one arena for each stream, whichever program they are of."""

from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest

from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.cuda.build.compile import CompileOptions
from targets.cuda.errors import DeviceMemoryError
from targets.cuda.planning.program import load_module
from targets.cuda.runtime import graph_cache
from targets.cuda.runtime.executable import CudaExecutable
from targets.cuda.runtime.memory.arenas import Arenas, Need
from tests.targets.cuda.fakes.fake_driver import FakeDriver
from tests.targets.cuda.fakes.fake_torch import STREAM, FakeTorch
from tests.targets.cuda.runtime.test_cuda_launch import expected, model

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
OF_ROW = 2 * 320
"""Bytes that the model needs for each row of its input, for numbers of rows that 4 divides."""


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    device = FakeDriver.of(model(WeightStore(), np.zeros(80, np.float32)))
    device.install(monkeypatch)
    found = FakeTorch(device)
    found.install(monkeypatch)
    return found


def loaded() -> CudaExecutable:
    weights = WeightStore()
    module = model(weights, np.arange(80, dtype=np.float32))
    return load_module(module, weights, CompileOptions())


def rows(count: int) -> Array:
    return np.random.default_rng(count).standard_normal((count, 80)).astype(np.float32)


def check(torch: FakeTorch, executable: CudaExecutable, count: int) -> None:
    x = rows(count)
    made = executable.run([torch.tensor(x)])
    torch.fake.synchronize(torch._C._cuda_getCurrentRawStream(0))
    for found, true in zip(made, expected(x), strict=True):
        np.testing.assert_array_equal(found.numpy(), true)


def sizes() -> dict[int, int]:
    arenas: Arenas = graph_cache.ARENAS
    return arenas.sizes


def test_programs_that_run_in_turn_have_one_arena(torch: FakeTorch) -> None:
    """It grows with the largest, at whose end the others get a smaller one."""
    small, large = loaded(), loaded()
    check(torch, small, 4)
    assert sizes() == {STREAM: 4 * OF_ROW}
    for _ in range(3):
        check(torch, large, 8)
        check(torch, small, 4)
        assert sizes() == {STREAM: 8 * OF_ROW}
    del large
    check(torch, small, 4)
    assert sizes() == {STREAM: 4 * OF_ROW}
    del small
    assert sizes() == {}


def test_streams_have_arenas_of_their_own(torch: FakeTorch) -> None:
    """As do a run that the caller captures, which may be replayed while others run, and runs on
    arrays."""
    executable = loaded()
    check(torch, executable, 4)
    torch._C._cuda_getCurrentRawStream = lambda device: STREAM + 1
    check(torch, executable, 8)
    assert sizes() == {STREAM: 4 * OF_ROW, STREAM + 1: 8 * OF_ROW}
    torch._C._cuda_getCurrentRawStream = lambda device: STREAM + 2
    torch.cuda.is_current_stream_capturing = lambda: True
    check(torch, executable, 4)
    torch.cuda.is_current_stream_capturing = lambda: False
    executable.run([rows(8)])
    assert STREAM + 2 not in sizes()
    check(torch, executable, 4)
    assert sizes()[STREAM + 2] == 4 * OF_ROW


def test_needs_end_with_their_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("targets.cuda.runtime.memory.arenas.Memory", lambda size: SimpleNamespace(
        size=size))
    arenas = Arenas()
    few, many = Need(10, arenas), Need(100, arenas)
    first = few.arena(1)
    assert first is few.arena(1)
    assert many.arena(1) is few.arena(1) is not first
    assert few.arena(2).size == 10
    del many
    assert arenas.sizes == {2: 10}
    assert few.arena(1).size == 10
    del few
    assert arenas.sizes == {}


def test_what_the_device_has_no_room_for_is_no_need_of_others(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program too large for the device fails, and smaller ones on its stream go on."""
    def memory(size: int) -> SimpleNamespace:
        if size > 50:
            raise DeviceMemoryError("the device's memory is full")
        return SimpleNamespace(size=size)

    monkeypatch.setattr("targets.cuda.runtime.memory.arenas.Memory", memory)
    arenas = Arenas()
    few, more, most = Need(10, arenas), Need(20, arenas), Need(100, arenas)
    for _ in range(2):
        with pytest.raises(DeviceMemoryError):
            most.arena(1)
        assert few.arena(1).size == 10 and more.arena(1).size == 20
        assert few.arena(1) is more.arena(1)
    del most
    assert few.arena(1).size == 20


def test_arenas_of_other_streams_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that has run on many streams holds no memory there that another needs."""
    there = WeakSet[Any]()

    class Memory:
        def __init__(self, size: int) -> None:
            if sum(memory.size for memory in there) + size > 50:
                raise DeviceMemoryError("the device's memory is full")
            self.size = size
            there.add(self)

    monkeypatch.setattr("targets.cuda.runtime.memory.arenas.Memory", Memory)
    arenas = Arenas()
    few, more = Need(10, arenas), Need(30, arenas)
    for stream in range(7):
        assert few.arena(stream).size == 10
    assert more.arena(3).size == 30 == arenas.sizes[3]
    assert few.arena(3) is more.arena(3) and few.arena(0).size == 10
