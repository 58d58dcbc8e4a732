"""Many processes on one cache, processes that are killed, and memory over long times."""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import compiler
from tests.faults.models import Bench, X, python, save_model

COMPILE = """
import sys, numpy, compiler
y, = compiler.compile(sys.argv[1], threads=1, cache=sys.argv[2])(numpy.ones((2, 8), "float32"))
assert (y == 8).all()
print(y.shape[1])
"""


def left_over(cache: Path) -> list[Path]:
    return list(cache.rglob("*.part"))


def test_a_child_made_by_fork_uses_what_its_parent_loaded(bench: Bench) -> None:
    code = """
import os, sys, numpy, compiler
x = numpy.ones((2, 8), "float32")
exe = compiler.compile(sys.argv[1], threads=2, cache=sys.argv[2])
def right():
    return (exe(x)[0] == 8).all()
assert right()
for _ in range(3):
    child = os.fork()
    if not child:
        again = compiler.compile(sys.argv[1], threads=2, cache=sys.argv[2])
        os._exit(0 if right() and (again(x)[0] == 8).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
assert right()
"""
    _, err = python(code, bench.model, bench.cache).communicate(timeout=120)
    assert not err


@pytest.mark.slow
def test_sixteen_processes_compile_the_same_model(bench: Bench) -> None:
    processes = [python(COMPILE, bench.model, bench.cache) for _ in range(16)]
    assert {process.communicate() for process in processes} == {("300\n", "")}
    assert len(bench.files("entries")) == 1 and not left_over(bench.cache)
    bench.check()
    assert bench.compiled == 0


@pytest.mark.slow
def test_processes_killed_while_they_write(bench: Bench) -> None:
    """A hundred times, at random moments: the next one answers right, and keeps what it made."""
    code = """
import sys, numpy, compiler
print("ready", flush=True)
while True:
    for width in (300, 301, 302):
        compiler.compile(sys.argv[1].replace("model", f"model{width}"), threads=1,
                         cache=sys.argv[2])
    import shutil
    shutil.rmtree(sys.argv[2] + "/programs/entries", ignore_errors=True)
"""
    for width in (300, 301, 302):
        save_model(bench.folder / f"model{width}.onnx", width=width)
    rng = random.Random(0)
    for _ in range(100):
        process = python(code, bench.model, bench.cache)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        for width in (300, 301, 302):
            path = str(bench.folder / f"model{width}.onnx")
            y, = compiler.compile(path, threads=1, cache=bench.cache)(X)
            np.testing.assert_array_equal(y, np.full((2, width), 8, np.float32))


# ---------------------------------------------------------------------- memory
def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_hundred_thousand_calls_take_no_more_memory(bench: Bench) -> None:
    exe = bench.compile(cache="off")
    inputs = [np.ones((n, 8), np.float32) for n in (1, 2)]
    for k in range(2000):
        exe(inputs[k // 100 % 2])
    before = resident()
    for k in range(100_000):
        exe(inputs[k // 100 % 2])
    assert resident() - before < 2 << 20


@pytest.mark.slow
def test_compiling_and_dropping_takes_no_more_memory(bench: Bench) -> None:
    """Five hundred times, most of them out of the cache."""
    def cycle(count: int) -> None:
        for k in range(count):
            bench.check(cache="off" if k % 10 == 0 else bench.cache)

    cycle(100)
    before = resident()
    cycle(400)
    assert resident() - before < 8 << 20
