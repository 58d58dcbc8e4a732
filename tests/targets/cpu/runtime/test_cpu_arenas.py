"""Arenas: programs that run in turn share one, calls at once have their own, and none outlives its
use."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

import compiler
from targets.cpu.runtime.arenas import LARGE, Arena, Arenas, Need
from targets.cpu.runtime.executable import CpuExecutable
from tests import processes


def program(folder: Path, rows: int) -> CpuExecutable:
    """(x w)^2 w for x of [rows, 256]: the first product does not stay in registers."""
    path = folder / f"rows_{rows}.mlir"
    path.write_text(f"""
      strata.func @main(%x: f32[{rows}, 256], %w: f32[256, 256]) -> (f32[{rows}, 256])
          inputs ["x", "w"] outputs ["y"] {{
        %a = graph.matmul %x, %w : f32[{rows}, 256]
        %b = graph.mul %a, %a : f32[{rows}, 256]
        %y = graph.matmul %b, %w : f32[{rows}, 256]
        strata.return %y
      }}""")
    loaded = compiler.compile(path, threads=1, cache="off", target="cpu").loaded
    assert isinstance(loaded, CpuExecutable)
    assert int(loaded.plan.arena_bytes.evaluate({})) >= LARGE
    return loaded


def check(exe: CpuExecutable, rows: int, seed: int = 0) -> None:
    values = np.random.default_rng(seed)
    x = values.standard_normal((rows, 256)).astype(np.float32)
    w = values.standard_normal((256, 256)).astype(np.float32) / 16
    wide = x.astype(np.float64) @ w
    np.testing.assert_allclose(exe.run([x, w])[0], wide * wide @ w, rtol=1e-3, atol=1e-3)


def place(exe: CpuExecutable) -> int:
    """The address of the arena of the last call."""
    return exe.calls.idle[-1].call[0] or 0


def test_programs_that_run_in_turn_share_an_arena(tmp_path: Path) -> None:
    small, large = program(tmp_path, 1100), program(tmp_path, 2200)
    for _ in range(2):
        check(small, 1100)
        check(large, 2200)
        assert small.calls.idle[-1].borrowed is None
    check(small, 1100)
    assert place(small) == place(large) != 0


def test_calls_at_once_have_arenas_of_their_own(tmp_path: Path) -> None:
    programs = [(program(tmp_path, rows), rows) for rows in (1100, 2200)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for k in range(8):
                check(*programs[(number + k) % 2], seed=10 * number + k)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_failed_call_gives_its_arena_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(address: object) -> int:
        raise InterruptedError

    exe = program(tmp_path, 1100)
    check(exe, 1100)
    with monkeypatch.context() as changed:
        changed.setattr(exe, "_entry", fail)
        with pytest.raises(InterruptedError):
            check(exe, 1100)
    assert exe.calls.idle[-1].borrowed is None
    check(exe, 1100)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_has_arenas_of_its_own(tmp_path: Path) -> None:
    exe = program(tmp_path, 1100)
    check(exe, 1100)
    child = processes.fork()
    if child == 0:
        check(exe, 1100, seed=1)
        os._exit(0)
    check(exe, 1100)
    assert os.waitpid(child, 0)[1] == 0


# ---------------------------------------------------------------------- the pool by itself
def test_one_that_is_too_small_is_replaced() -> None:
    arenas = Arenas()
    needs = [Need(size, arenas) for size in (10, 30)]
    for need in (needs[0], needs[1], needs[0]):
        arena = need.take()
        assert arena.size >= need.size
        arenas.give(arena)
    assert arenas.idle == [30]


def test_there_are_as_many_as_were_taken_at_once() -> None:
    arenas = Arenas()
    need = Need(20, arenas)
    taken: list[Arena] = [need.take() for _ in range(3)]
    assert len({arena.address for arena in taken}) == 3
    for arena in taken:
        arenas.give(arena)
    arenas.give(need.take())
    assert arenas.idle == [20, 20, 20]


def test_an_arena_is_freed_with_the_last_need_of_its_size() -> None:
    arenas = Arenas()
    small, large, equal = Need(10, arenas), Need(30, arenas), Need(30, arenas)
    first, second = large.take(), small.take()
    arenas.give(first)
    arenas.give(second)
    del equal
    assert arenas.idle == [30, 10]
    taken = small.take()
    assert taken.size == 10
    del large
    assert not arenas.idle
    arenas.give(taken)
    assert arenas.idle == [10]
    del small
    assert not arenas.idle


def test_an_arena_that_is_in_use_is_freed_at_the_end_of_its_call() -> None:
    arenas = Arenas()
    small, large = Need(10, arenas), Need(30, arenas)
    taken = large.take()
    del large
    arenas.give(taken)
    assert not arenas.idle
    arenas.give(small.take())
    assert arenas.idle == [10]
