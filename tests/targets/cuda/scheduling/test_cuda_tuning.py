"""What the tuner asks of the CUDA target: times of launches, code compiled ahead, schedules."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from compiler.tuning.database import Database
from compiler.tuning.files import shipped_file
from dialects.strata.weights import WeightStore
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build import ahead
from targets.cuda.build.ahead import Builder, jobs_of
from targets.cuda.build.compile import CompileOptions, Resources
from targets.cuda.build.worker import Worker
from targets.cuda.errors import CudaError
from targets.cuda.machine import machine_of
from targets.cuda.planning.program import load_module
from targets.cuda.runtime.executable import CudaExecutable
from targets.cuda.runtime.stopwatch import FIRST, MOST_COPIES, NEAR, Stopwatch
from tests.symbols import by_symbol
from tests.targets.cuda import samples
from tests.targets.cuda.fakes.fake_driver import FakeDriver
from tests.targets.cuda.runtime.test_cuda_launch import expected, model
from tests.targets.cuda.samples import as_model, kernel_of, parse

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
X = np.ones((5, 80), np.float32)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeDriver, CudaExecutable]:
    """A model of two launches with 640 bytes of constants, which has run."""
    weights = WeightStore()
    module = model(weights, np.arange(80, dtype=np.float32))
    device = FakeDriver.of(module)
    device.install(monkeypatch)
    device.install_compiler(monkeypatch)
    executable = load_module(module, weights, CompileOptions(cache=tmp_path))
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
    assert watch.count == FIRST and not watch.copies  # each takes two milliseconds on this device
    device.log.clear()
    assert watch(10) == pytest.approx(2e-3)  # in three graphs, behind one that is under way
    assert [entry for entry in device.log if entry != "run add"] == ["replay"] * 4
    device.streams.finish_all()
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


def test_the_timer_spoils_the_cache_for_models_that_need_much_of_it(
    fake: tuple[FakeDriver, CudaExecutable],
) -> None:
    device, executable = fake
    small, large = (TARGET.bind(TargetOptions()).running.timer(executable, [X], footprint)
                    for footprint in (device.cache // NEAR, device.cache // NEAR + 1))
    assert isinstance(small, Stopwatch) and isinstance(large, Stopwatch)
    assert not small.copies and large.copies


# ---------------------------------------------------------------------- code compiled ahead
@needs_triton
@pytest.mark.parametrize("one_launch", [True, False], ids=["graph", "step by step"])
@pytest.mark.parametrize("how", ["build", "jobs"])
def test_what_is_compiled_ahead_is_found_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, one_launch: bool
) -> None:
    """A kernel in a graph waits for the one before it, so its code is another one."""
    weights = WeightStore()
    module = model(weights, np.zeros(80, np.float32))
    options = TargetOptions(features="sm_90", cache=tmp_path, one_launch=one_launch)
    building = TARGET.bind(options).building
    sizes = by_symbol({"batch": 5})
    if how == "build":
        assert not building.build(module, weights, sizes)
    else:
        building.compile_ahead([*building.jobs(module, sizes).values()])
    assert len(list(tmp_path.rglob("*.kernel"))) == 1  # both launches are of one kernel and variant
    device = FakeDriver.of(module)
    device.install(monkeypatch)
    monkeypatch.setattr(Worker, "compile", None)  # nothing is left to be compiled
    executable = load_module(module, weights, CompileOptions(cache=tmp_path / "cuda"), one_launch)
    assert executable.run([X])[0].shape == (5, 80)


def test_where_no_cache_keeps_code_nothing_is_compiled_ahead() -> None:
    weights = WeightStore()
    module, sizes = model(weights, np.zeros(80, np.float32)), by_symbol({"batch": 5})
    for options in (TargetOptions(features="sm_90"), TargetOptions(interpret=True)):
        assert not TARGET.bind(options).building.jobs(module, sizes)


@needs_triton
def test_code_that_the_machine_cannot_run(tmp_path: Path) -> None:
    builder = Builder(CompileOptions(cache=tmp_path))
    builder.machine = replace(machine_of("sm_90"), shared=1024)
    product = as_model(kernel_of(samples.matmul("f16", 64, 64, 32)))
    with pytest.raises(CudaError, match="bytes of shared memory, of which a program has 1024"):
        builder.build(product, by_symbol({"m": 64, "k": 64}))


@needs_triton
def test_code_that_is_not_worth_a_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "resources", lambda binary: Resources(255, 96))
    builder = Builder(CompileOptions(cache=tmp_path))
    [why] = builder.build(as_model(kernel_of(samples.SOFTMAX)), by_symbol({"n": 64}))
    assert "@softmax spills 96 bytes per thread" in why


def test_what_decides_while_it_runs_is_not_compiled_ahead() -> None:
    module = parse("""builtin.module {
      host.func @main(%n: i64[1], %y: f32[4]) inputs ["n"] outputs ["y"] sizes() {
        strata.size m = %n
        host.return
      }
    }""")
    with pytest.raises(CudaError, match="cannot be compiled ahead"):
        Builder(CompileOptions()).build(module, {})
    assert jobs_of(module, {}, CompileOptions()) == []


@needs_triton
def test_models_that_are_compiled_together_are_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder(CompileOptions(cache=tmp_path))
    swap, transpose = (as_model(kernel_of(text)) for text in (samples.SWAP, samples.TRANSPOSE))
    programs = [(swap, {}), (transpose, by_symbol({"m": 64, "n": 64}))]
    builder.keep([job for module, sizes in programs
                  for job in jobs_of(module, sizes, builder.options)])
    monkeypatch.setattr(builder.worker, "compile", lambda *_: pytest.fail("compiled again"))
    for module, sizes in programs:
        assert builder.build(module, sizes) == []


@needs_triton
def test_a_lost_worker_starts_again(tmp_path: Path) -> None:
    builder = Builder(CompileOptions(cache=tmp_path))
    first, second = (as_model(kernel_of(text)) for text in (samples.SWAP, samples.TRANSPOSE))
    builder.build(first, {})
    lost = builder.worker
    lost._process.kill()
    lost._process.communicate()
    assert builder.build(second, by_symbol({"m": 64, "n": 64})) == []
    assert builder.worker is not lost


# ---------------------------------------------------------------------- the key of what was found
def test_winners_are_of_a_device_and_of_a_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("targets.cuda.target.triton_version", lambda: "3.9.0")
    monkeypatch.setattr("targets.cuda.target.find_spec", lambda name: True)
    keys = {TARGET.bind(TargetOptions(features=arch)).tuning.key() for arch in ("sm_80", "sm_90")}
    assert len(keys) == 2 and all(key and "Triton 3.9.0" in key for key in keys)
    assert TARGET.bind(TargetOptions(interpret=True)).tuning.key() is None
    monkeypatch.setattr("targets.cuda.target.find_spec", lambda name: None)
    assert TARGET.bind(TargetOptions()).tuning.key() is None


def test_what_ships_is_sealed_and_small() -> None:
    path = Path(shipped_file("cuda"))
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        machines = [row[0] for row in connection.execute("SELECT description FROM machines")]
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()
    assert path.stat().st_size < 1 << 20
    for machine in machines:
        winners = Database(str(path), machine).read()
        assert winners and all(w.choice.gain >= 1.0 for w in winners.values())
        library = any("library" in dict(w.choice.schedule.options)
                      for w in winners.values() if w.choice.schedule)
        assert library == ("cublas" in machine)
