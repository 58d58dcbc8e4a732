"""What the tuner asks of the CUDA target: times of launches, code compiled ahead, schedules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dialects.weights import WeightStore
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.compile import CompileOptions
from targets.cuda.launch import CudaExecutable
from targets.cuda.stopwatch import FIRST, MOST_COPIES, Stopwatch
from tests.targets.cuda.fake_driver import FakeDriver
from tests.targets.cuda.test_cuda_launch import expected, model

X = np.ones((5, 80), np.float32)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeDriver, CudaExecutable]:
    """A model of two launches with 640 bytes of constants, which has run."""
    weights = WeightStore()
    module = model(weights, np.arange(80, dtype=np.float32))
    device = FakeDriver.of(module)
    device.install(monkeypatch)
    device.install_compiler(monkeypatch)
    executable = CudaExecutable(module, weights, CompileOptions(cache=tmp_path))
    executable.run([X])
    return device, executable


def test_a_stopwatch_replays_one_graph_of_many_runs(
    fake: tuple[FakeDriver, CudaExecutable],
) -> None:
    device, executable = fake
    device.log.clear()
    watch = executable.stopwatch(0)
    steps = [entry for entry in device.log if entry != "run add"]
    assert steps == ["replay"] * 2 + ["close"]  # the graph that tells how many runs to take
    assert watch.count == FIRST and not watch.copies  # each takes a millisecond on this device
    device.log.clear()
    assert watch(10) == pytest.approx(1e-3 / 12)  # three graphs, behind one that is under way
    assert device.log == ["replay"] * 4
    device.synchronize(0)
    assert device.log.count("run add") == 4 * FIRST * 2


def test_constants_are_far_away_where_the_model_has_many(
    fake: tuple[FakeDriver, CudaExecutable],
) -> None:
    _, executable = fake
    watch = executable.stopwatch(3000)
    assert len(watch.copies) == 4  # 3000 bytes between two uses of the same 1024
    assert len(executable.stopwatch(1 << 30).copies) == MOST_COPIES
    for found, wanted in zip(executable.run([X]), expected(X), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_the_timer_spoils_the_cache_for_models_that_exceed_it(
    fake: tuple[FakeDriver, CudaExecutable],
) -> None:
    device, executable = fake
    small, large = (TARGET.timer(executable, [X], footprint, TargetOptions())
                    for footprint in (device.cache, device.cache + 1))
    assert isinstance(small, Stopwatch) and isinstance(large, Stopwatch)
    assert not small.copies and large.copies
