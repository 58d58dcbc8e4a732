"""The same input and options give byte-identical output, whatever the hash seed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler.pipeline.steps import PIPELINE
from tests import processes

ROOT = Path(__file__).parents[2]
TARGETS = ("reference", "cpu", "cuda")


def dumps(model: Path, folder: Path, seed: int, target: str) -> dict[str, bytes]:
    """Everything that a fresh process with this hash seed writes, but for the measured times."""
    environment = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    words = ["lower", model, "--target", target, "--to", PIPELINE[-1].level, "--dump-dir", folder]
    processes.run([sys.executable, "-m", "compiler", *map(str, words)], env=environment,
                  cwd=folder.parent, check=True, capture_output=True)
    return {p.name: p.read_bytes() for p in folder.iterdir()
            if p.name not in ("index.md", ".strata-dump.json")}


@pytest.mark.parametrize("target", TARGETS)
def test_dumps_are_identical(small_model: Path, tmp_path: Path, target: str) -> None:
    first = dumps(small_model, tmp_path / "a", 0, target)
    second = dumps(small_model, tmp_path / "b", 4711, target)
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppocr_v2_cls", "silero_v6_no_if"])
def test_dumps_of_real_models_are_identical(
    zoo_model: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    first = dumps(zoo_model(name), tmp_path / "a", 0, "cpu")
    second = dumps(zoo_model(name), tmp_path / "b", 4711, "cpu")
    assert first == second
