"""Random ONNX models compute on the CPU target what the reference and onnxruntime compute.

The models of the first numbers always; `make test-all` has 2,000. A failure names the number:
`python -m tests.fuzz.differential --show NUMBER` shows that model.
"""

from __future__ import annotations

import pytest

from tests.fuzz.differential import difference

pytest.importorskip("onnxruntime")
QUICK, CHUNK, ALL = 60, 20, 2000


def check(first: int, check_accesses: bool = False) -> None:
    found = {number: difference(number, check_accesses)
             for number in range(first, first + CHUNK)}
    assert {number: text for number, text in found.items() if text} == {}


@pytest.mark.parametrize("first", range(0, QUICK, CHUNK))
def test_some_models(first: int) -> None:
    check(first)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, ALL, CHUNK))
def test_many_models(first: int) -> None:
    check(first)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, ALL // 4, CHUNK))
def test_accesses_of_models_stay_inside(first: int) -> None:
    check(first, check_accesses=True)
