"""What a GPU cannot decide runs on the host; the commands say so."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.conftest import Run

NOTE = "on the host: 1 strata.loop, 1 size"

MODEL = """
strata.func @half(%h: f32[n], %w: f32[]) -> (f32[n]) inputs ["h", "w"] outputs ["h"] {
  %y = graph.mul %h, %w : f32[n]
  strata.return %y
}
strata.func @main(%x: f32[n], %trips: i64[]) -> (f32[n]) inputs ["x", "trips"] outputs ["h"] {
  strata.size t = %trips
  %w = graph.constant {value = literal[0.5]} : f32[]
  %h = strata.loop @half at k trip t carried(%x) with(%w) : f32[n]
  strata.return %h
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "halves.mlir"
    path.write_text(MODEL)
    return path


def test_code_for_a_gpu_lists_it(strata: Run, model: Path) -> None:
    done = strata("lower", model, "--target", "cuda")
    assert done.status == 0, done.err
    assert f"\n# {NOTE}\n# How the kernels are launched:" in done.out


def test_a_target_that_decides_in_its_own_code_says_nothing(strata: Run, model: Path) -> None:
    done = strata("run", model, "--target", "cpu")
    assert (done.status, "on the host" in done.out + done.err) == (0, False)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("command", ["run", "verify"])
def test_running_tells_it(strata: Run, model: Path, command: str) -> None:
    done = strata(command, model, "--target", "cuda", "--interpret")
    assert done.status == 0, done.err
    assert f"note: {NOTE}\n" in done.err
