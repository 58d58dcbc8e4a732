"""Where outputs lie in donated inputs, without a program."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from dialects.symbolic.expr import Expr
from targets.cpu.runtime.donation import homes, lender, shared
from targets.cpu.runtime.results import Result
from targets.cpu.runtime.times import Times
from targets.memory import LEAST, Home

F32 = np.dtype(np.float32)
COUNT = LEAST // 4


def planned(inputs: list[int], times: Times, checks: tuple[str, ...] = ()) -> Any:
    types = [SimpleNamespace(shape=(Expr.of(size),), dtype=F32) for size in inputs]
    return SimpleNamespace(inputs=types, times=times,
                           checks=[SimpleNamespace(kind=kind) for kind in checks])


def placed(plan: Any, outputs: list[int], donated: tuple[int, ...] = (0,)) -> dict[int, Home]:
    return homes(plan, donated, {}, [Result((size,), F32) for size in outputs])


def test_outputs_share_an_input_that_they_fill() -> None:
    plan = planned([2 * COUNT], Times((3,), (4, 5)))
    assert placed(plan, [COUNT, COUNT]) == {0: Home(0, 0), 1: Home(0, LEAST)}
    assert not placed(plan, [COUNT, COUNT // 2]), "one is small, and the other would waste half"
    assert not placed(plan, [3 * COUNT, 3 * COUNT])


def test_an_output_moves_in_after_the_last_read() -> None:
    for read, written, moves in ((3, 4, True), (4, 4, False), (5, 4, False), (-1, 4, True),
                                 (3, -1, False)):
        assert bool(placed(planned([COUNT], Times((read,), (written,))), [COUNT])) == moves


def test_only_donated_inputs_are_overwritten() -> None:
    plan = planned([COUNT, COUNT], Times((0, 0), (1, 1)))
    assert not placed(plan, [COUNT, COUNT], ())
    assert placed(plan, [COUNT, COUNT], (1,)) == {0: Home(1, 0)}


def test_programs_that_may_run_again_keep_their_inputs() -> None:
    times = Times((0,), (1,))
    for kind in ("size", "assumption"):
        assert not placed(planned([COUNT], times, (kind,)), [COUNT])
    assert placed(planned([COUNT], times, ("index",)), [COUNT])
    assert not placed(planned([COUNT], Times()), [COUNT])
    assert Times.read(times.facts()) == times


def test_an_output_keeps_its_input_alive() -> None:
    memory = np.zeros(COUNT + 16, np.float32)
    start = -memory.ctypes.data % 64 // 4
    for shift, shares in ((0, True), (1, False)):
        given = memory[start + shift: start + shift + COUNT]
        lend = lender(Result((COUNT,), F32), Home(0, 0), lambda array: array.ctypes.data)
        assert lend is not None
        made = lend([given])
        assert np.shares_memory(made, given) == shares
        made[:] = 1
        assert bool(given.all()) == shares
        memory[:] = 0


def written(times: Times, pairs: dict[int, int], *, sizes: tuple[int, ...] = (COUNT, COUNT),
            checks: tuple[str, ...] = ()) -> dict[int, int]:
    plan = planned([COUNT, COUNT], times, checks)
    plan.outputs = planned(list(sizes), times).inputs
    return shared(plan, pairs)


def test_what_is_written_to_an_input_may_begin_as_its_copy() -> None:
    copied = Times((3, 3), (3, 3), (0, -1))
    assert written(copied, {0: 0, 1: 1}) == {0: 0}, "only one begins as a copy"
    assert not written(copied, {0: 1}), "a copy of another input"
    assert written(Times((2, 4), (3, 4)), {0: 0, 1: 1}) == {0: 0}, "times without copies are old"
    assert not written(Times((4, 4), (3, 3), (0, 1)), {0: 0, 1: 1}), "read after the copy"
    assert not written(copied, {0: 0}, sizes=(COUNT // 2, COUNT))
    assert not written(copied, {0: 0}, checks=("size",))
    late = copied._replace(checked=(4,))
    assert not written(late, {0: 0}), "the program may end after the first write"
    assert written(late._replace(checked=(2,)), {0: 0}) == {0: 0}
    assert Times.read(late.facts()) == late
    assert written(Times((1, 1), (3, 3)), {0: 0, 1: 0}) == {0: 0}, "one memory for two outputs"
    assert Times.read(copied.facts()) == copied
