"""Whose a crash of a worker is: the compiler's, or onnxruntime's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("z3")
pytest.importorskip("onnxruntime")

from tests.fuzz.solver import judge as judging
from tests.fuzz.solver.pool import Outcome, whose
from tests.fuzz.solver.work import run_peer_alone, work


def dies(number: int) -> Outcome:
    del number
    os._exit(139)


def is_right(number: int) -> Outcome:
    return Outcome(number)


def is_wrong(number: int) -> Outcome:
    return Outcome(number, "wrong", "a number")


Work = Callable[[int], Outcome]


@pytest.mark.parametrize("peer, ours, kind, fails", [
    (dies, is_right, "peer-crash", False), (is_right, is_right, "crash", True),
    (dies, is_wrong, "wrong", True), (dies, dies, "crash", True)])
def test_whose_a_crash_is(peer: Work, ours: Work, kind: str, fails: bool, tmp_path: Path) -> None:
    found = whose(Outcome(7, "crash", "it ended"), peer, ours, 60, str(tmp_path))
    assert (found.number, found.kind, found.fails) == (7, kind, fails)


def test_both_halves_of_a_judgement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """onnxruntime alone, and everything but onnxruntime."""
    monkeypatch.chdir(tmp_path)
    assert run_peer_alone(3, 0) == Outcome(3)
    monkeypatch.setattr(judging, "peer_of", None)
    assert work(3, 0, peer=False).kind == ""
    assert work(3, 0).kind == "harness"
