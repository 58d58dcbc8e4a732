"""ONNX's own node tests, through the backend interface, on the CPU and the reference target.

Every test of the list passes within its own tolerances, but for those that are expected to fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.cases import cases, expected_failures, names, run_case

FAILURES = expected_failures()


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of compiled code, for kernels that tests share."""
    return tmp_path_factory.mktemp("objects")


def marked(name: str) -> object:
    failure = pytest.mark.xfail(reason=FAILURES.get(name, ""), strict=True)
    return pytest.param(name, marks=[failure] if name in FAILURES else [])


def test_expected_failures_are_listed_tests() -> None:
    assert FAILURES.keys() <= set(names())


@pytest.mark.parametrize("name", [marked(name) for name in names()])
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_node(name: str, target: str, objects: Path) -> None:
    run_case(cases()[name], target, objects)
