"""The command that verifies in the ring, for all tests of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compiler.__main__ import main

Verify = Callable[..., tuple[int, str]]


@pytest.fixture
def verify(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Verify:
    """`verify WORDS`, in a folder of its own: the status, and all that was written."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        status = main(["verify", *words])
        return status, "".join(capsys.readouterr())

    return run
