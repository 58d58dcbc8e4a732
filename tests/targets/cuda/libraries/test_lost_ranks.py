"""Runs of graphs that wait for a lost rank end the process with the name of an exchange."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

import pytest

from dialects.ranks.collectives import ALL_REDUCE, Collective, Group
from targets.communication import Exchange
from targets.cuda.errors import CudaError
from targets.cuda.libraries import lost_ranks, symmetric
from targets.cuda.libraries.lost_ranks import Watch

SUM = Exchange(Collective(ALL_REDUCE, Group("tp", ((0, 1),)), "sum"), "float32", "layer/down")


class Step:
    """A point in the work of a device that may stand still, or fail."""

    def __init__(self) -> None:
        self.done, self.failed = False, False

    def record(self, stream: int) -> None:
        assert stream == 7

    def is_done(self) -> bool:
        if self.failed:
            raise CudaError("a kernel failed on the device")
        return self.done


def eventually(holds: Callable[[], object]) -> bool:
    ends = time.monotonic() + 20
    while not holds() and time.monotonic() < ends:
        time.sleep(0.01)
    return bool(holds())


def test_a_step_that_stands_still_ends_the_process_and_names_the_exchange() -> None:
    told = list[str]()
    watch = Watch([SUM], Step(), 0.05, told.append, interval=0.01)
    time.sleep(0.1)
    assert told == []  # nothing was enqueued
    watch.enqueued(7)
    assert eventually(lambda: told)
    assert "all_reduce in group 'tp' at node 'layer/down' was not done after 0.05 s" in told[0]


def test_steps_that_are_done_may_be_followed_by_nothing() -> None:
    told, step = list[str](), Step()
    watch = Watch([SUM], step, 0.05, told.append, interval=0.01)
    step.done = True
    watch.enqueued(7)
    assert eventually(lambda: watch._since == 0.0)
    step.done = False
    time.sleep(0.2)
    assert told == []


def test_each_step_has_its_own_time() -> None:
    told, step = list[str](), Step()
    watch = Watch([SUM], step, 2.0, told.append, interval=0.01)
    for _ in range(5):
        watch.enqueued(7)
        time.sleep(0.01)
    first = watch._since
    watch.enqueued(7)
    assert watch._since >= first and told == []


def test_a_watch_ends_with_its_program() -> None:
    before = {*threading.enumerate()}
    watch = Watch([SUM], Step(), 1.0, lambda _: None, interval=0.01)
    [thread] = {*threading.enumerate()} - before
    del watch
    gc.collect()
    assert eventually(lambda: not thread.is_alive())


def test_a_device_that_failed_is_left_to_those_who_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    """Only they can raise the error; the cause is said."""
    monkeypatch.setattr(lost_ranks, "given_up", lambda exchanges: f"{exchanges[0].how}: in vain")
    told, step = list[str](), Step()
    step.failed = True
    watch = Watch([SUM], step, 0.05, told.append, interval=0.01)
    watch.enqueued(7)
    assert eventually(lambda: watch._since == 0.0)
    time.sleep(0.1)
    assert told == [] and capsys.readouterr().err.count("all_reduce in group 'tp': in vain") == 1


def test_a_program_of_one_rank_has_no_watch() -> None:
    alone = SUM._replace(how=Collective(ALL_REDUCE, Group("tp", ((0,),)), "sum"))
    assert lost_ranks.watch([alone], Step) is None and lost_ranks.watch([], Step) is None


def test_a_fault_before_memory_is_shared_asks_no_other_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ranks that are well would never answer."""
    monkeypatch.setattr(symmetric, "process_group", lambda _: pytest.fail("asked for a group"))
    tiles = SUM._replace(programs=4, tile=16)
    assert symmetric.given_up([tiles]) == ""
    monkeypatch.setitem(symmetric._FAULTS, SUM.how.group, symmetric.Fault(1, [0]))
    assert symmetric.given_up([tiles]) == ""
    monkeypatch.setitem(symmetric._FAULTS, SUM.how.group, symmetric.Fault(1, [1]))
    assert "all_reduce in group 'tp': rank 1 waited in vain" in symmetric.given_up([tiles])
