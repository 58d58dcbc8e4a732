"""Calls of one executable at once, without a GPU: each has all that it writes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.cuda.build.compile import CompileOptions
from targets.cuda.errors import CudaError, DeviceMemoryError
from targets.cuda.planning.program import load_module
from targets.cuda.runtime import driver, run_state
from targets.cuda.runtime.control_runner import ControlProgram
from targets.cuda.runtime.executable import CudaExecutable
from targets.cuda.runtime.run_state import MOST_STATES, RunState
from tests.control.programs import PROGRAMS, Program
from tests.targets.cpu.runtime.test_cpu_calls import at_once
from tests.targets.cuda.fakes.fake_driver import FakeDriver, FakeGraph
from tests.targets.cuda.fakes.fake_streams import FakeEvent
from tests.targets.cuda.fakes.fake_torch import FakeTorch
from tests.targets.cuda.runtime.control_programs import compare, lowered
from tests.targets.cuda.runtime.test_cuda_launch import expected, model

Fake = tuple[FakeDriver, CudaExecutable]
SECONDS = 60


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A model of two launches and copies; its bias is 0, 1, 2 ..."""
    weights = WeightStore()
    return loaded(monkeypatch, (model(weights, np.arange(80, dtype=np.float32)), weights))


def loaded(patch: pytest.MonkeyPatch, program: tuple[Any, WeightStore], **options: Any) -> Fake:
    module, weights = program
    device = FakeDriver.of(module, **options)
    device.install(patch)
    device.install_compiler(patch)
    return device, load_module(module, weights, CompileOptions())


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def array(rows: int, seed: int = 0) -> Array:
    return np.random.default_rng([rows, seed]).standard_normal((rows, 80)).astype(np.float32)


def check(executable: CudaExecutable, x: Array) -> None:
    for found, wanted in zip(executable.run([x]), expected(x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def states(executable: CudaExecutable) -> Any:
    return executable._states  # pyright: ignore[reportPrivateUsage]


def overlap(executable: CudaExecutable, arrays: Sequence[Array]) -> None:
    """Calls, each of which ends when all are under way: so many states are idle afterwards."""
    barrier, run = threading.Barrier(len(arrays), timeout=SECONDS), RunState.run
    here = threading.local()

    def together(self: RunState, *arguments: Any) -> Any:
        if not hasattr(here, "began"):  # else it is another try
            here.began = barrier.wait()
        return run(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunState, "run", together)
        at_once(*[lambda x=x: check(executable, x) for x in arrays])


# ---------------------------------------------------------------------- one by one
@pytest.mark.parametrize("rows", [(5,), (1, 5, 7, 5)])
def test_launches_one_by_one_compute_the_same_without_a_graph(
    rows: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = WeightStore()
    module = model(weights, np.arange(80, dtype=np.float32))
    device = FakeDriver.of(module)
    device.install(monkeypatch)
    device.install_compiler(monkeypatch)
    executable = load_module(module, weights, CompileOptions(), one_launch=False)
    for count in rows:
        check(executable, array(count))
    again = executable.with_weights(weights)
    check(again, array(3))
    assert all(isinstance(e._program, ControlProgram)  # pyright: ignore[reportPrivateUsage]
               for e in (executable, again))
    with pytest.raises(CudaError, match="launches its kernels one by one"):
        executable.replay(1)
    assert not device.given


# ---------------------------------------------------------------------- at once
def test_calls_are_under_way_at_once_each_on_a_stream(fake: Fake) -> None:
    """All are in the middle: arrays are sent, and nobody has waited for a result."""
    device, executable = fake
    barrier, seen = threading.Barrier(MOST_STATES, timeout=SECONDS), set[int]()

    def wait(stream: int) -> None:
        seen.add(stream)
        barrier.wait()
        device.synchronize(stream)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "synchronize", wait)
        at_once(*[lambda k=k: check(executable, array(5, k)) for k in range(MOST_STATES)])
    assert len(seen) == MOST_STATES == len(states(executable).idle)


def test_one_caller_has_one_state(fake: Fake) -> None:
    device, executable = fake
    check(executable, array(5))
    before = set(device.memory), device.streams.make()
    for seed in range(20):
        check(executable, array(5, seed))
    assert (set(device.memory), device.streams.make() - 1) == before
    assert len(states(executable).idle) == 1


@pytest.mark.usefixtures("hurried")
def test_many_threads_with_many_sizes(fake: Fake) -> None:
    _, executable = fake

    def work(thread: int) -> None:
        rng = np.random.default_rng(thread)
        for call in range(20):
            check(executable, array(int(rng.integers(0, 6)), 100 * thread + call))

    at_once(*[lambda k=k: work(k) for k in range(8)])
    assert 1 < len(states(executable).idle) <= MOST_STATES and not states(executable).busy


@pytest.mark.usefixtures("hurried")
def test_many_threads_with_tensors_on_many_streams(fake: Fake) -> None:
    """Other tensors in each call, so that graphs are pointed at them; two threads share a stream.
    """
    device, executable = fake
    torch, streams = FakeTorch(device), threading.local()

    def work(thread: int) -> None:
        streams.current = 100 + thread // 2
        for call in range(15):
            x = array(1 + call % 3, 100 * thread + call)
            outputs = executable.run([torch.tensor(x)])
            device.synchronize(streams.current)
            for found, wanted in zip(outputs, expected(x), strict=True):
                np.testing.assert_array_equal(found.numpy(), wanted)

    torch._C._cuda_getCurrentRawStream = lambda device: streams.current
    with pytest.MonkeyPatch.context() as patch:
        torch.install(patch)
        at_once(*[lambda k=k: work(k) for k in range(6)])
    assert not states(executable).busy


def test_streams_keep_to_their_states(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls on two streams by turns: no stream waits for the other."""
    device, executable = fake
    overlap(executable, [array(5, 1), array(5, 2)])
    torch, first = FakeTorch(device), set[Any]()
    torch.install(monkeypatch)
    for call in range(8):
        torch._C._cuda_getCurrentRawStream = lambda device, call=call: 100 + call % 2
        executable.run([torch.tensor(array(5, call))])
        if call < 2:
            first.add(states(executable).idle[-1])
            if call == 1:
                monkeypatch.setattr(FakeEvent, "wait", lambda *_: pytest.fail("a wait"))
    assert {*states(executable).idle} == first and len(first) == 2


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("has_pools", [True, False], ids=["pool", "kept blocks"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_programs_that_decide(
    program: Program, has_pools: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launches that stay packed have the addresses of one call."""
    device, executable = loaded(monkeypatch, lowered(program.text), has_pools=has_pools)

    def work() -> None:
        for inputs in (*program.inputs, *program.inputs):
            compare(executable.run(inputs), program, inputs)

    at_once(*[work] * 4)
    assert not device.given and not states(executable).busy


def test_a_program_that_decides_in_the_middle_of_another_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between pointing a launch at buffers and launching it, another call does both."""
    program = next(p for p in PROGRAMS if p.name == "counted")
    device, executable = loaded(monkeypatch, lowered(program.text))
    launch, depth = device.launch, 0

    def nested(*arguments: Any) -> None:
        nonlocal depth
        if depth == 0:
            depth = 1
            other = [np.asarray(v) for v in program.inputs[-1]]
            compare(executable.run(other), program, other)
        launch(*arguments)

    for inputs in program.inputs:
        compare(executable.run(inputs), program, inputs)
    monkeypatch.setattr(driver, "launch", nested)
    for inputs in program.inputs:
        depth = 0
        compare(executable.run(inputs), program, inputs)
    assert depth == 1


# ---------------------------------------------------------------------- the bound
def test_a_full_pool_lets_others_wait(fake: Fake) -> None:
    _, executable = fake
    under_way, most, lock, run = 0, 0, threading.Lock(), RunState.run

    def counted(self: RunState, *arguments: Any) -> Any:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.002)
        with lock:
            under_way -= 1
        return run(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunState, "run", counted)
        at_once(*[lambda k=k: [check(executable, array(3, k)) for _ in range(4)]
                  for k in range(12)])
    assert 2 <= most <= MOST_STATES
    assert len(states(executable).idle) <= MOST_STATES and not states(executable).busy


@pytest.mark.parametrize("most", [1, MOST_STATES])
def test_a_signal_handler_calls_the_model_that_it_interrupts(fake: Fake, most: int) -> None:
    """In the middle: what is sent is in the stream, and nothing has been waited for."""
    device, executable = fake
    states(executable).most, done = most, 0

    def handle(*_: object) -> None:
        nonlocal done
        done += 1
        check(executable, array(2))

    def interrupted(stream: int) -> None:
        if not done:
            signal.raise_signal(signal.SIGUSR1)
        device.synchronize(stream)

    check(executable, array(4))
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(driver, "synchronize", interrupted)
            check(executable, array(5))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert done == 1


# ---------------------------------------------------------------------- errors
def test_a_failed_call_gives_its_state_back(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    _, executable = fake
    check(executable, array(5))

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for name in ("__init__", "launch"):
        with monkeypatch.context() as patch:
            patch.setattr(FakeGraph, name, fail)
            for _ in range(6):
                with pytest.raises(KeyboardInterrupt):
                    executable.run([array(5 if name == "launch" else 7)])
        check(executable, array(5, 1))
        check(executable, array(7, 1))
    assert len(states(executable).idle) == 1 and not states(executable).busy


def test_a_graph_that_was_pointed_elsewhere_in_part_is_pointed_anew(
    fake: Fake, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error while the nodes of a graph change, in each of them; then the same tensors again."""
    device, executable = fake
    torch = FakeTorch(device)
    torch.install(monkeypatch)
    update, left = FakeGraph.update, 0

    def fail(self: FakeGraph, number: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise DeviceMemoryError("full") if left == -1 else CudaError("broken")
        update(self, number)

    executable.run([torch.tensor(array(5))])
    for successes in range(3):
        x = array(5, 1 + successes)
        given = torch.tensor(x)
        with monkeypatch.context() as patch:
            left = successes
            patch.setattr(FakeGraph, "update", fail)
            with pytest.raises(CudaError):
                executable.run([given])
        for found, wanted in zip(executable.run([given]), expected(x), strict=True):
            np.testing.assert_array_equal(found.numpy(), wanted)


def test_another_process_cannot_continue(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    _, executable = fake
    check(executable, array(5))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for call in (lambda: executable.run([array(5)]), lambda: executable.replay(1)):
        with pytest.raises(CudaError, match="start processes with multiprocessing's 'spawn'"):
            call()


# ---------------------------------------------------------------------- a full device
def used(device: FakeDriver) -> int:
    return sum(a.size for a in device.memory.values())


def test_a_full_device_gives_idle_states_up_first(fake: Fake) -> None:
    device, executable = fake
    overlap(executable, [array(50, k) for k in range(MOST_STATES)])
    assert len(states(executable).idle) == MOST_STATES
    device.limit = used(device) + 1000
    check(executable, array(49))
    assert len(states(executable).idle) == MOST_STATES - 1
    assert device.log.count("close") == 1
    assert states(executable).most == MOST_STATES
    check(executable, array(50, 9))


def test_calls_for_which_a_device_has_no_room_at_once_follow_each_other(fake: Fake) -> None:
    """Both are under way when memory runs out; each gets all of it in the end."""
    device, executable = fake
    check(executable, array(100))
    device.limit = used(device) + 1000
    overlap(executable, [array(100, 1), array(99, 2)])
    assert states(executable).most == 1 and len(states(executable).idle) == 1
    at_once(*[lambda k=k: [check(executable, array(90 + k, n)) for n in range(5)]
              for k in range(6)])
    assert states(executable).made == 1
    with pytest.raises(DeviceMemoryError, match="out of memory"):
        executable.run([array(300)])
    assert states(executable).most == MOST_STATES, "it was not their number"
    check(executable, array(100))


def test_a_device_that_has_no_room_for_another_stream(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, executable = fake
    check(executable, array(5))
    release, held, run = threading.Event(), threading.Event(), RunState.run

    def hold(self: RunState, *arguments: Any) -> Any:
        held.set()
        assert release.wait(SECONDS)
        return run(self, *arguments)

    def full() -> None:
        release.set()
        raise DeviceMemoryError("out of memory")

    def second() -> None:
        assert held.wait(SECONDS)
        check(executable, array(7))

    monkeypatch.setattr(RunState, "run", hold)
    monkeypatch.setattr(run_state, "RunOrder", full)
    at_once(lambda: check(executable, array(6)), second)
    assert states(executable).made == states(executable).most == 1


# ---------------------------------------------------------------------- the end
def test_a_program_is_given_up_while_threads_call_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls end well, and everything goes behind the last one."""
    weights = WeightStore()
    device, executable = loaded(
        monkeypatch, (model(weights, np.arange(80, dtype=np.float32)), weights))
    barrier, results = threading.Barrier(4, timeout=SECONDS), list[tuple[Array, list[Array]]]()

    def calls(run: Callable[[Sequence[Array]], list[Array]], x: Array) -> Callable[[], None]:
        def work() -> None:
            barrier.wait()
            results.extend((x, run([x])) for _ in range(5))
        return work

    threads = [threading.Thread(target=calls(executable.run, array(5, k))) for k in range(3)]
    for thread in threads:
        thread.start()
    del executable
    barrier.wait()
    for thread in threads:
        thread.join()
    assert len(results) == 15
    for x, found in results:
        np.testing.assert_array_equal(found[0], expected(x)[0])
    del thread, threads
    assert not device.memory
