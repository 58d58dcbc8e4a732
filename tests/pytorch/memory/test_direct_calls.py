"""Calls that pass only addresses to compiled code, and those that cannot."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from compiler.torch.backend import Program
from dialects.strata.assumptions import SizeError
from targets.cpu.runtime.executable import CpuExecutable
from targets.cpu.runtime.plan import RunPlan
from targets.cpu.runtime.results import LARGE


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each call of a graph, whether it went the short way."""
    found: list[bool] = []
    original = Program.__call__

    def call(self: Any, *inputs: Any) -> Any:
        found.append(False)
        return original(self, *inputs)

    monkeypatch.setattr(Program, "__call__", call)
    torch._dynamo.reset()
    return found


def check(fast: Any, function: Any, *inputs: Tensor) -> None:
    with torch.no_grad():
        got, want = fast(*inputs), function(*inputs)
    for one, other in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want)),
                          strict=True):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride()


def test_a_call_with_the_kinds_of_the_first_goes_the_short_way(direct: list[bool]) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x @ y, (x > 0).sum(0)

    fast = torch.compile(function, backend="strata")
    for _ in range(3):
        check(fast, function, torch.randn(3, 4), torch.randn(4, 5))
    assert direct == [False]


def test_arguments_with_gaps(direct: list[bool]) -> None:
    """Dynamo compiles for each layout; none is copied wrongly."""
    def function(x: Tensor, y: Tensor) -> Tensor:
        return x * 2 + y

    fast, whole = torch.compile(function, backend="strata", dynamic=False), torch.randn(6, 8)
    for x in (whole[:3, :4], whole[::2, ::2], whole.T[:3, :4], whole[3:, 4:], whole[:1, :4].expand(
            3, 4)):
        for _ in range(2):
            check(fast, function, x, torch.randn(3, 4))


def test_no_elements(direct: list[bool]) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x.sum(0)

    fast = torch.compile(function, backend="strata", dynamic=False)
    for _ in range(2):
        check(fast, function, torch.zeros(0, 3))


def test_results_are_new_memory(direct: list[bool]) -> None:
    fast, x = torch.compile(lambda x: x + 1, backend="strata"), torch.zeros(4)
    with torch.no_grad():
        made = [fast(x) for _ in range(4)]
    assert len({t.data_ptr() for t in made}) == 4
    made[1].fill_(7)
    assert made[2].sum() == 4


@pytest.mark.parametrize("type_", [torch.float32, torch.bfloat16, torch.int64])
def test_large_results_go_the_short_way(direct: list[bool], type_: torch.dtype) -> None:
    """They lie in memory of dropped ones, and never in that of others."""
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + x, x.sum()

    fast = torch.compile(function, backend="strata", dynamic=False)
    inputs = [torch.arange(LARGE // type_.itemsize).to(type_) % (k + 2) for k in range(4)]
    with torch.no_grad():
        made = [fast(x)[0] for x in inputs]
        assert direct == [False]
        assert all(torch.equal(y, x + x) for x, y in zip(inputs, made, strict=True))
        assert len({y.data_ptr() for y in made}) == 4
        place = made.pop().data_ptr()
        assert fast(inputs[0])[0].data_ptr() == place


def test_a_backward_graph_with_frozen_arguments_goes_the_short_way(direct: list[bool]) -> None:
    """It returns None for them, among its gradients."""
    def function(x: Tensor, frozen: Tensor, scale: Tensor) -> Tensor:
        return (x * frozen + scale).tanh().sum()

    fast, inputs = torch.compile(function, backend="strata", dynamic=False), [
        torch.randn(4, 5, requires_grad=True), torch.randn(5), torch.randn(5, requires_grad=True)]
    want = torch.autograd.grad(function(*inputs), (inputs[0], inputs[2]))
    for _ in range(3):
        got = torch.autograd.grad(fast(*inputs), (inputs[0], inputs[2]))
        torch.testing.assert_close(got, want)
    assert len(direct) == 3 + 1  # forward graphs, which return their arguments; the first backward


def test_an_index_out_of_range(direct: list[bool]) -> None:
    """It is an error, and later calls are right."""
    table = torch.randn(5, 3)
    fast = torch.compile(lambda i: table[i], backend="strata")
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fast(torch.tensor([4, 0])), table[[4, 0]])
            with pytest.raises(IndexError):
                fast(torch.tensor([5, 0]))


def test_threads_at_once(direct: list[bool]) -> None:
    fast, problems = torch.compile(lambda x: (x @ x.T).softmax(-1), backend="strata"), []

    def work(seed: int) -> None:
        x = torch.full((17, 9), float(seed))
        with torch.no_grad():
            for _ in range(200):
                got = fast(x)
                if not torch.allclose(got, torch.full((17, 17), 1 / 17)):
                    problems.append(seed)

    work(0)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_sizes_that_do_not_fit(direct: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer way decides what becomes of them."""
    def refuse(*_: Any) -> None:
        raise SizeError("sizes do not fit")

    monkeypatch.setattr("targets.cpu.runtime.executable.CpuExecutable.caller", lambda *_: refuse)
    check(torch.compile(lambda x: x + 1, backend="strata", dynamic=True), lambda x: x + 1,
          torch.zeros(5))


@pytest.mark.parametrize("function", [
    lambda x, y: (x + 1, y * 2), lambda x, y: (x.flatten() + 1, y.sum(0)),
    lambda x, y: (torch.cat([x, x], 1), y[None] + 1)])
def test_open_sizes_that_alternate(function: Any, direct: list[bool]) -> None:
    """Each call has the results of its own sizes; also those without elements or of one."""
    fast = torch.compile(function, backend="strata", dynamic=True)
    for rows, columns in [(3, 5), (4, 5), (3, 5), (5, 3), (2, 7), (4, 5), (700, 900), (3, 5)]:
        check(fast, function, torch.randn(rows, columns), torch.randn(columns, 4))
    direct.clear()
    check(fast, function, torch.randn(6, 7), torch.randn(7, 4))
    assert not direct


@pytest.mark.parametrize(("shape", "is_open", "serial"), [
    ((5,), False, True), ((700, 900), False, False), ((700, 900), True, False)])
def test_only_work_that_pays_starts_threads(
    shape: tuple[int, ...], is_open: bool, serial: bool, direct: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call of a small graph sets no number of threads; its plan keeps that on disk, too."""
    shared, original = list[int](), CpuExecutable._share
    monkeypatch.setattr(CpuExecutable, "_share", lambda self, state: (
        shared.append(1), original(self, state))[1])
    plans, load = list[RunPlan](), CpuExecutable.__init__

    def init(self: Any, plan: RunPlan, *others: Any) -> None:
        plans.append(plan)
        load(self, plan, *others)

    monkeypatch.setattr(CpuExecutable, "__init__", init)
    fast = torch.compile(lambda x: x.tanh() + 1, backend="strata", dynamic=is_open,
                         options={"threads": 2})
    for _ in range(3):
        check(fast, lambda x: x.tanh() + 1, torch.randn(shape))
    assert (not shared) == serial
    assert [(p.serial, RunPlan.read(json.loads(json.dumps(p.facts()))).serial) for p in plans] == [
        (serial, serial)]
