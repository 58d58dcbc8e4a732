"""Mutated model files end in code or in a message: no exception, no hang, no flood of memory.

The mutants of the first numbers always; `make test-all` has 10,000. A failure names the number:
`python -m tests.fuzz.mutants --show NUMBER` tries that one again.
"""

from __future__ import annotations

import pytest

from tests.fuzz.mutants import run

QUICK, CHUNK, ALL = 250, 250, 10_000


def check(first: int) -> None:
    outcomes = list(run(first, first + CHUNK))
    assert [o.number for o in outcomes] == list(range(first, first + CHUNK))
    assert [o for o in outcomes if o.is_fault] == []
    assert {o.kind for o in outcomes} >= {"block", "refused"}


@pytest.mark.parametrize("first", range(0, QUICK, CHUNK))
def test_some_mutants(first: int) -> None:
    check(first)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, ALL, CHUNK))
def test_many_mutants(first: int) -> None:
    check(first)
