"""Which of several copies of a library is loaded."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from targets.cuda.build import packages


@pytest.mark.parametrize(("there", "wanted"), [
    ({"libx.so.2": os.RTLD_NOLOAD, "/p/libx.so.2": 0, "libx.so.1": 0}, "libx.so.2"),
    ({"/p/libx.so.2": 0, "libx.so.2": 0}, "/p/libx.so.2"),
    ({"libx.so.1": 0}, "libx.so.1"),
    ({}, None)])
def test_what_the_process_has_then_the_package_then_the_system(
    monkeypatch: pytest.MonkeyPatch, there: dict[str, int], wanted: str | None
) -> None:
    def cdll(path: str, mode: int) -> str:
        if path not in there or (mode & os.RTLD_NOLOAD) != there[path]:
            raise OSError(path)
        return path

    class File:
        name = "libx.so.2"

        def locate(self) -> Path:
            return Path("/p/libx.so.2")

    monkeypatch.setattr(ctypes, "CDLL", cdll)
    monkeypatch.setattr(packages, "files", lambda package: [File()])
    assert packages.load(("libx.so.2", "libx.so.1"), ("nvidia-x",)) == wanted


def test_a_library_that_is_nowhere() -> None:
    assert packages.load(("libnone.so.0",), ("nvidia-none",)) is None
