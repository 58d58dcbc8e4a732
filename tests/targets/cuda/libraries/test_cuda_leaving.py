"""Graphs of several ranks are destroyed before their ranks part, whoever still holds the model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dialects.ranks.collectives import ALL_REDUCE, Collective, Group
from dialects.strata.weights import WeightStore
from targets.communication import Exchange
from targets.cuda.build.compile import CompileOptions
from targets.cuda.errors import CudaError
from targets.cuda.libraries import leaving
from targets.cuda.libraries.leaving import add_holder, free_graphs, listen
from targets.cuda.planning.program import load_module
from targets.cuda.runtime.executable import CudaExecutable
from tests.targets.cuda.fakes.fake_driver import FakeDriver
from tests.targets.cuda.samples import parse

SUM = Exchange(Collective(ALL_REDUCE, Group("tp", ((0, 1),)), "sum"), "float32", "layer/down")
TWICE = """builtin.module {
  block.kernel @twice(%x: f32[64], %y: f32[64]) grid(%p: 1) sizes()
      schedule<grid i0 tile 64 | warps = 1> {
    %v = block.load %x[t0] : tile<64xf32>
    %s = block.map (%v[0]) : tile<64xf32> {
    ^bb0(%e: f32):
      %u = arith.addf %e, %e : f32
      block.yield %u
    }
    block.store %s, %y[t0]
    block.yield
  }
  host.func @main(%x: f32[64], %y: f32[64]) inputs ["x"] outputs ["y"] sizes() {
    host.launch @twice(%x, %y) sizes()
    host.return
  }
}
"""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeDriver, CudaExecutable]:
    """A model that says that it is one of several ranks."""
    if find_spec("triton") is None:
        pytest.skip("needs Triton")
    monkeypatch.setattr(CudaExecutable, "exchanges", [SUM])
    module = parse(TWICE)
    device = FakeDriver.of(module)
    device.install(monkeypatch)
    return device, load_module(module, WeightStore(), CompileOptions(cache=tmp_path))


def test_graphs_are_destroyed_and_made_again(fake: tuple[FakeDriver, CudaExecutable]) -> None:
    device, executable = fake
    x = np.arange(64, dtype=np.float32)
    for run in range(3):
        np.testing.assert_array_equal(executable.run([x])[0], 2 * x)
        assert device.log.count("close") == run
        used = len(device.memory)
        free_graphs()
        assert device.log.count("close") == run + 1
        assert len(device.memory) < used
    free_graphs()  # there are none any more
    assert device.log.count("close") == 3


def test_a_call_in_progress_keeps_its_graph(fake: tuple[FakeDriver, CudaExecutable]) -> None:
    device, executable = fake
    x = np.ones(64, np.float32)
    executable.run([x])
    with executable.last_state("test"):
        free_graphs()
        assert device.log.count("close") == 0
    np.testing.assert_array_equal(executable.run([x])[0], 2 * x)


def test_models_that_are_gone_or_have_failed_hinder_no_others() -> None:
    told = list[str]()

    class Held:
        def __init__(self, name: str) -> None:
            self.name = name

        def free(self) -> None:
            told.append(self.name)
            if self.name == "failed":
                raise CudaError("a kernel failed on the device")

    kept = [Held("failed"), Held("good")]
    for holder in (*kept, Held("gone")):
        add_holder(holder)
    del holder
    free_graphs()
    assert sorted(told) == ["failed", "good"]


# ---------------------------------------------------------------------- the end of a group
@pytest.fixture
def leave(monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[list[str], Callable[[], None]]]:
    """What is done, and a function that stands for PyTorch's, behind a decorator as that is."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        pytest.skip("needs Python 3.12")
    done = list[str]()

    def destroy_process_group() -> None:
        done.append("NCCL waits for graphs")

    @wraps(destroy_process_group)
    def logged() -> None:
        destroy_process_group()

    torch = ModuleType("torch.distributed")
    vars(torch)["destroy_process_group"] = logged
    monkeypatch.setitem(sys.modules, "torch.distributed", torch)
    monkeypatch.setattr(leaving, "free_graphs", lambda: done.append("graphs are destroyed"))
    before = {k for k in range(6) if monitoring.get_tool(k)}
    listen.cache_clear()
    yield done, logged
    for tool in {k for k in range(6) if monitoring.get_tool(k)} - before:
        monitoring.free_tool_id(tool)
    listen.cache_clear()


def test_graphs_are_destroyed_before_a_group_is(
    leave: tuple[list[str], Callable[[], None]],
) -> None:
    done, destroy = leave
    listen()
    listen()
    for _ in range(2):
        done.clear()
        destroy()
        assert done == ["graphs are destroyed", "NCCL waits for graphs"]


def test_debuggers_keep_their_places(leave: tuple[list[str], Callable[[], None]]) -> None:
    done, destroy = leave
    monitoring: Any = getattr(sys, "monitoring", None)
    for tool in leaving._TOOLS:
        if monitoring.get_tool(tool) is None:
            monitoring.use_tool_id(tool, "a debugger")
    listen()
    destroy()
    assert done == ["NCCL waits for graphs"]
