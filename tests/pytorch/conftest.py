"""Tests of the PyTorch frontend need PyTorch: `make test TORCH=1` installs it."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest


class WithoutTorch(pytest.Module):
    """A file of tests that is skipped before it is imported."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        pytest.skip("needs PyTorch: make test TORCH=1", allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    if importlib.util.find_spec("torch") is not None:
        return None
    return WithoutTorch.from_parent(parent, path=module_path)


@pytest.fixture
def whole(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing runs eagerly: the backend warns of nothing."""
    with caplog.at_level(logging.WARNING, "strata"):
        yield
    assert not [r for r in caplog.records if r.name == "strata"], caplog.text
