"""Operators that the other fuzzers do not draw, between drawn neighbours (`neighbours.py`)."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.fuzz.neighbours import SAMPLES, differences, drawn

FOLDER = Path(__file__).parent


@cache
def words() -> frozenset[str]:
    """All words in the other fuzzers, among them the names of the operators that they draw."""
    others = [p for p in FOLDER.rglob("*.py") if "neighbours" not in p.name]
    return frozenset(re.findall(r"\w+", "\n".join(p.read_text("utf-8") for p in others)))


FIRST = {s.op_type: k for k, s in reversed([*enumerate(SAMPLES)]) if s.op_type not in words()}
"""The first sample of each operator that no other fuzzer names."""


def test_most_importers_are_drawn_by_some_fuzzer():
    assert len(FIRST) > 60 and {"QLinearWhere", "RoiAlign", "SVMClassifier"} <= FIRST.keys()
    models = [drawn(number, 1)[0] for number in FIRST.values()]
    assert sum(len(model.graph.node) > 1 for model in models) > len(models) // 2


@pytest.mark.parametrize("number", FIRST.values(), ids=FIRST.keys())
def test_operators_between_neighbours(number: int):
    assert not list(differences(number, 1))
