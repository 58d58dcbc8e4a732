"""One pool of threads for a process, whoever brings it; and none in a forked child."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import processes

ROOT = Path(__file__).parents[4]
MODEL = """
import os, numpy
from tests.targets.cpu.cpu_kernels import parse_module
from dialects.strata.weights import WeightStore
from targets.base import TargetOptions
from targets.cpu import TARGET
from targets.cpu.runtime.threads import thread_pool
module = parse_module('''
block.kernel @double(%x: f32[n], %y: f32[n]) grid(%p: n ceildiv 16) sizes(n) {
  %a = block.load %x[16*%p + t0] check [0] : tile<[16]xf32>
  %b = block.map (%a[0]) : tile<[16]xf32> {
  ^bb0(%v: f32):
    %w = arith.addf %v, %v : f32
    block.yield %w
  }
  block.store %b, %y[16*%p + t0] check [0]
  block.yield
}
host.func @main(%x: f32[n], %y: f32[n]) inputs ["x"] outputs ["y"] sizes(n) {
  host.launch @double(%x, %y) sizes(n)
  host.return
}''')
executable = TARGET.bind(TargetOptions(threads=3)).running.load(module, WeightStore())
x = numpy.arange(1 << 20, dtype=numpy.float32)
def run():
    before = len(os.listdir("/proc/self/task"))
    assert (executable.run([x])[0] == 2 * x).all()
    return len(os.listdir("/proc/self/task")) - before
"""


def python(code: str) -> list[str]:
    done = processes.run([sys.executable, "-c", MODEL + code], cwd=ROOT, text=True, limit=120,
                         capture_output=True, check=True)
    return done.stdout.split()


def test_a_forked_child_runs_alone() -> None:
    """It would wait for ever for threads that only its parent has."""
    assert python("""
print(run())
child = os.fork()
if not child:
    print(run(), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(run())
""") == ["2", "0", "0"]


def test_a_child_of_a_parent_that_has_run_nothing_has_threads() -> None:
    assert python("""
child = os.fork()
if not child:
    print(run(), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""") == ["2"]


@pytest.mark.slow
def test_torch_and_we_share_a_pool() -> None:
    pytest.importorskip("torch")
    shared, torchs, new = python("""
run()
import torch
run()
print(executable._pool.source, thread_pool().source)
torch.set_num_threads(3)
torch.ones(1 << 22).sin()
print(run())
""")
    assert shared == torchs and "libgomp" in shared
    assert new == "0"  # torch has made the threads, or uses ours


@pytest.mark.parametrize(("given", "count"), [
    ({}, "10000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "passive"}, "0")])
def test_how_long_threads_look_for_work(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], count: str
) -> None:
    """Not long, unless the user says so; and nobody else's environment changes."""
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OMP_DISPLAY_ENV", "verbose")  # libgomp tells when it is loaded
    code = ("import os; from targets.cpu.runtime.threads import thread_pool; "
            "before = dict(os.environ); "
            "print(thread_pool().addresses[0] != 0, dict(os.environ) == before)")
    done = processes.run([sys.executable, "-c", code], cwd=ROOT, text=True, check=True,
                         capture_output=True)
    if done.stdout.split()[0] == "False":
        pytest.skip("there is no libgomp")
    assert f"GOMP_SPINCOUNT = '{count}'" in done.stderr
    assert done.stdout.split()[1] == "True"
