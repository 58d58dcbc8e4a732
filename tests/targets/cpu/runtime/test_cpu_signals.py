"""Signals in a call whose loop takes for ever: handlers run soon, and what one raises ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import compiler
from dialects.strata.types import Array
from targets.cpu.runtime.executable import CpuExecutable
from tests import processes

ROOT = Path(__file__).parents[4]
ENDLESS = 2**48
PLAIN = """// strata: level=graph
builtin.module {
  strata.func @main(%x: f32[SIZE], %n: i64[1]) -> (f32[SIZE]) inputs ["x", "n"] outputs ["y"] {
    strata.size count = %n
    %y = strata.loop @body at k trip count carried(%x) with() : f32[SIZE]
    strata.return %y
  }
  strata.func @body(%x: f32[SIZE]) -> (f32[SIZE]) inputs ["x"] outputs ["y"] {
    %y = graph.sin %x : f32[SIZE]
    strata.return %y
  }
}
"""
NESTED = """// strata: level=graph
builtin.module {
  strata.func @main(%x: f32[SIZE], %n: i64[1]) -> (f32[SIZE]) inputs ["x", "n"] outputs ["y"] {
    strata.size count = %n
    %y = strata.loop @outer at k trip count carried(%x) with() : f32[SIZE]
    strata.return %y
  }
  strata.func @outer(%x: f32[SIZE]) -> (f32[SIZE]) inputs ["x"] outputs ["y"] {
    %y = strata.loop @inner at k trip 2 carried(%x) with() : f32[SIZE]
    strata.return %y
  }
  strata.func @inner(%x: f32[SIZE]) -> (f32[SIZE]) inputs ["x"] outputs ["y"] {
    %y = graph.sin %x : f32[SIZE]
    strata.return %y
  }
}
"""
WHILE = """// strata: level=graph
builtin.module {
  strata.func @main(%x: f32[SIZE], %n: i64[1]) -> (f32[SIZE]) inputs ["x", "n"] outputs ["y"] {
    %zero = graph.constant {value = literal[0]} : i64[]
    %most = graph.reshape %n {shape = []} : i64[]
    %some = graph.less %zero, %most : i1[]
    %y = strata.loop @body at k while %some carried(%x) with(%most) : f32[SIZE]
    strata.return %y
  }
  strata.func @body(%x: f32[SIZE], %n: i64[]) -> (i1[], f32[SIZE]) sizes(k)
      inputs ["x", "n"] outputs ["go", "y"] {
    %y = graph.sin %x : f32[SIZE]
    %k = graph.sizes {values = [k + 1], shape = [], to = i64} : i64[]
    %go = graph.less %k, %n : i1[]
    strata.return %go, %y
  }
}
"""


class Rung(Exception):
    """What a handler raises."""


@contextmanager
def alarm(handler: Callable[[], None], seconds: float = 0.25) -> Generator[None]:
    """Run a handler after that time, by a signal."""
    def answer(number: int, frame: object) -> None:
        del number, frame
        handler()

    before = signal.signal(signal.SIGALRM, answer)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def ring() -> None:
    raise Rung


def loaded(folder: Path, text: str, size: int = 8, threads: int = 1) -> compiler.Executable:
    (folder / "model.mlir").write_text(text.replace("SIZE", str(size)))
    return compiler.compile(folder / "model.mlir", target="cpu", threads=threads, cache="off")


def iterated(x: Array, trips: int) -> Array:
    for _ in range(trips):
        x = np.sin(x)
    return x


@pytest.mark.parametrize(("text", "per_trip"), [(PLAIN, 1), (NESTED, 2), (WHILE, 1)])
@pytest.mark.parametrize(("size", "threads"), [(8, 1), (8, 2), (200_000, 2)])
def test_what_a_handler_raises_ends_the_call(
    tmp_path: Path, text: str, per_trip: int, size: int, threads: int
) -> None:
    exe = loaded(tmp_path, text, size, threads)
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    for _ in range(3):
        started = time.monotonic()
        with alarm(ring), pytest.raises(Rung) as raised:
            exe(x, np.array([ENDLESS]))
        assert time.monotonic() - started < 10
        assert raised.traceback[-1].name == "ring"
        np.testing.assert_allclose(exe(x, np.array([5]))[0], iterated(x, 5 * per_trip), rtol=1e-5)
    executable = exe.loaded
    assert isinstance(executable, CpuExecutable)
    assert executable.calls.busy == 0
    assert not any(state.heap.has_blocks for state in executable.calls.idle)


def test_a_handler_that_raises_nothing_runs_and_the_call_goes_on(tmp_path: Path) -> None:
    """It calls the same executable, which another thread does as well."""
    exe = loaded(tmp_path, PLAIN)
    x, found = np.linspace(-1, 1, 8, dtype=np.float32), list[Array]()
    started, trips = time.monotonic(), 100_000
    while time.monotonic() - started < 0.4:  # so many that the call takes this long
        trips *= 2
        started = time.monotonic()
        exe(x, np.array([trips]))
    wanted = exe(x, np.array([trips]))[0]
    rung: list[float] = []

    def answer() -> None:
        rung.append(time.monotonic())
        found.extend(exe(x, np.array([3])))

    with alarm(answer, 0.05):
        np.testing.assert_array_equal(exe(x, np.array([trips]))[0], wanted)
        ended = time.monotonic()
    assert rung and rung[0] < ended - 0.05
    np.testing.assert_allclose(found[0], iterated(x, 3), rtol=1e-6)


def test_a_call_of_another_thread_is_not_ended(tmp_path: Path) -> None:
    """Python's signals are for the main thread alone."""
    exe = loaded(tmp_path, PLAIN)
    x, found = np.ones(8, np.float32), list[Array]()
    thread = threading.Thread(target=lambda: found.extend(exe(x, np.array([3_000_000]))))
    with pytest.raises(Rung), alarm(ring, 0.01):
        thread.start()
        while True:
            time.sleep(0.001)
    thread.join()
    assert len(found) == 1


def test_a_timed_call_is_ended_too(tmp_path: Path) -> None:
    """Tuning and benchmarks call machine code without what belongs to a call."""
    executable = loaded(tmp_path, PLAIN).loaded
    assert isinstance(executable, CpuExecutable)
    count = np.array([1])
    call = executable.native_call([np.ones(8, np.float32), count])
    count[0] = ENDLESS
    with alarm(ring), pytest.raises(Rung):
        call()


CHILD = """
import sys, numpy as np, compiler
exe = compiler.compile("model.mlir", target="cpu")
x = np.ones(8, np.float32)
print("ready", flush=True)
try:
    exe(x, np.array([2**48]))
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(np.allclose(exe(x, np.array([2]))[0], np.sin(np.sin(x)), 1e-6), flush=True)
"""


def test_control_c_in_a_program_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text(PLAIN.replace("SIZE", "8"))
    process = processes.start([sys.executable, "-c", CHILD], cwd=tmp_path, text=True,
                              env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        told = process.stdout.readline()
        seconds = time.monotonic() - started
        rest = process.stdout.read()  # `communicate` would miss what was read with the line
        process.wait(timeout=30)
    finally:
        process.kill()
    assert (told, rest, process.returncode) == ("interrupted\n", "True\n", 0)
    assert seconds < 10  # a tenth of a second, where nobody else wants the processor
