"""ONNX's own test suites, through the backend interface, on the CPU and the reference target.

Every test passes within its own tolerances, but for those that are expected to fail. One of these
that passes is an error, too: `python -m tests.conformance.report --prune` takes it off the list.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler.diagnostics import StrataError
from compiler.onnx_backend import StrataBackend
from tests.conformance.cases import SUITES, Case, node_tests, run_case, suite
from tests.conformance.expectations import (
    Failure,
    expected_failure,
    expected_failures,
    without,
)

FAILURES = expected_failures()
SLOW = ("other", "light")


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of compiled code, for kernels that tests share."""
    return tmp_path_factory.mktemp("objects")


def marked() -> Iterator[object]:
    """Every case on every target, slow ones and those that must fail marked."""
    for target in StrataBackend.targets:
        for case in (c for name in SUITES for c in suite(name)):
            marks = [pytest.mark.slow] if case.suite in SLOW else []
            failure = expected_failure(FAILURES, case, target)
            if failure is not None:
                marks.append(pytest.mark.xfail(reason=failure.reason, strict=True,
                                               raises=(StrataError, AssertionError)))
            yield pytest.param(target, case, marks=marks, id=f"{target}-{case.key}")


@pytest.mark.parametrize(("target", "case"), list(marked()))
def test_case(target: str, case: Case, objects: Path) -> None:
    run_case(case, target, objects)


def test_expected_failures_are_cases() -> None:
    assert FAILURES.keys() <= {c.key for name in SUITES for c in suite(name)}


def test_every_node_test_is_in_one_list() -> None:
    listed = [c.name for name in ("core", "newest", "other") for c in suite(name)]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(node_tests())


def test_what_passes_leaves_the_list() -> None:
    text = "# Comment.\n\n[strings]\nnode/a\nnode/b cpu\n\n[Loop]\nnode/c\n"
    assert expected_failures(text)["node/b"] == Failure("strings", ("cpu",))
    assert without(text, {"node/a", "node/c"}) == "# Comment.\n\n[strings]\nnode/b cpu\n"
    assert without(text, set()) == text
