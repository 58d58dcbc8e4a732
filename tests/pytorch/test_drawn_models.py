"""Modules of PyTorch that Z3 made sizes for compute what eager PyTorch and the reference compute.

`python -m tests.fuzz.solver --torch --show NUMBER` shows one of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("z3")

from tests.fuzz.solver.torch_models import work

QUICK, CHUNK, ALL = 6, 50, 2000


def check(numbers: range) -> None:
    outcomes = [work(number, 0) for number in numbers]
    found = {o.number: f"{o.kind}: {o.text}" for o in outcomes if o.fails}
    assert found == {}
    assert sum(o.kind == "" for o in outcomes) >= 0.8 * len(numbers)


def test_some_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where reproducers go
    check(range(QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, ALL, CHUNK))
def test_many_modules(first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(range(first, first + CHUNK))
