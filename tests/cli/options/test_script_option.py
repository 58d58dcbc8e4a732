"""`--schedule FILE` with scripts: what dumps and `tune` write is replayed; steps are refused."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run

INPUTS = ("--dim", "n=13", "--dim", "m=5")


def schedules_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if "schedule<" in line]


@pytest.mark.parametrize("words", [
    ("--target", "cpu"), ("--target", "reference"), ("--target", "cuda", "--features", "sm_90")],
    ids=lambda words: words[1])
def test_a_dump_has_the_script_of_every_kernel(
    strata: Run, small_model: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """A script replaces all that rules say, and gives the same."""
    first = strata("lower", small_model, *words, "--to", "loop", "--dump-dir", "dump")
    assert first.status == 0, first.err
    script = (tmp_path / "dump" / "schedules.txt").read_text()
    assert script.count("@") == len(schedules_of(first.out)) > 2
    again = strata("lower", small_model, *words, "--to", "loop", "--schedule", "dump/schedules.txt")
    assert again.status == 0, again.err
    assert schedules_of(again.out) == schedules_of(first.out)


SCRIPT = """\
nests(contraction, ...)      # all products
    from loops
    tile i0 by 3
    tile i1 by 16
    parallelize i0
    vectorize i1
    unroll i2 by 2
nests(reduction, ...)
    set keep = 4
@*
    from rules
"""


def test_scripts_compute_the_same(strata: Run, small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text(SCRIPT)
    words = ("--target", "cpu")
    lowered = strata("lower", small_model, *words, "--to", "loop", "--schedule", "mine.txt")
    assert "<grid i0 tile 3, loop i1 tile 16 lanes, loop i2 tile 1 unroll 2>" in lowered.out, (
        lowered.err)
    done = strata("verify", small_model, *words, "--schedule", "mine.txt")
    assert done.status == 0, done.err
    arguments = (*words, *INPUTS)
    mine = strata("run", small_model, *arguments, "--schedule", "mine.txt", "-o", "mine.npz")
    assert mine.status == 0, mine.err
    assert strata("run", small_model, *arguments, "-o", "rules.npz").status == 0
    with np.load("mine.npz") as got, np.load("rules.npz") as want:
        np.testing.assert_allclose(got["out/y"], want["out/y"], rtol=1e-5)


@pytest.mark.parametrize(("steps", "part"), [
    ("tile i9 by 4", "line 3: the step 'tile i9 by 4' of @contract_0: there is no axis i9; there "
                     "are: i0, i1, i2"),
    ("parallelize i2", "line 3: the step 'parallelize i2' of @contract_0: axis i2 is summed over, "
                       "so it cannot be a grid level"),
    ("reorder i2, i0\n    unroll i2 by 2",
     "line 3: the step 'reorder i2, i0' of @contract_0: axis i1 is inside the loop over i2"),
    ("vectorize i0\n    vectorize i1", "line 4: the step 'vectorize i1' of @contract_0: only one "
                                       "axis can lie in lanes"),
    ("whole i1 by 4", "line 3: the step 'whole i1 by 4' of @contract_0: a tile of 4 does not hold "
                      "axis i1 of 32"),
    ("pipeline 3", "line 3: the step 'pipeline 3' of @contract_0: this target does not read the "
                   "option stages"),
    ("set tial = peel", "the step 'set tial = peel' of @contract_0: a schedule has no option "
                        "'tial'; did you mean 'tails'?"),
    ("set keep = often", "the option keep of a schedule is an integer from 0 on, not often"),
    ("tile i0 by 2\n    fuse i0, i1",
     "line 4: the step 'fuse i0, i1' of @contract_0: i0 and i1 are levels of different axes; only "
     "whole axes, without numbers, can be fused, and only before all other steps"),
    ("fuse i0, i2", "line 3: the step 'fuse i0, i2' of @contract_0: a nest over i0, i1, i2 reduces "
                    "along i2, but not along the other one"),
    ("fuse i1, i0", "line 3: the step 'fuse i1, i0' of @contract_0: in a nest over i0, i1, i2, i0 "
                    "does not follow directly after i1"),
    ("fuse i0, i1\n    fuse i0, i9", "line 4: the step 'fuse i0, i9' of @contract_0: there is no "
                                     "axis i9; there are: i0, i2"),
    ("fuse i0, i1\n    tile i1 by 4", "line 4: the step 'tile i1 by 4' of @contract_0: there is no "
                                      "axis i1; there are: i0, i2"),
    ("tlie i0 by 2", "line 3: there is no step 'tlie'; did you mean 'tile'?"),
])
def test_refused_steps_name_kernel_step_and_line(
    strata: Run, small_model: Path, tmp_path: Path, steps: str, part: str
) -> None:
    (tmp_path / "mine.txt").write_text(f"nests(contraction)\n    from loops\n    {steps}\n")
    done = strata("lower", small_model, "--target", "cpu", "--to", "loop", "--schedule", "mine.txt")
    assert done.status == 1
    assert part in done.err, done.err


FUSED = """\
nests(contraction)
    from loops
    fuse i0, i1
    tile i0 by 16        # more than one row of m = 5 or 32 columns
    parallelize i0
    vectorize i0
"""


@pytest.mark.parametrize("words", [
    ("--target", "cpu"), pytest.param(
        ("--target", "cuda", "--features", "sm_90", "--interpret"), marks=pytest.mark.skipif(
            find_spec("triton") is None, reason="needs Triton"))], ids=["cpu", "cuda"])
def test_fused_axes_compute_the_same_and_a_dump_replays_them(
    strata: Run, small_model: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "mine.txt").write_text(FUSED)
    first = strata("lower", small_model, *words[:4], "--to", "loop", "--schedule", "mine.txt",
                   "--dump-dir", "dump")
    assert first.status == 0, first.err
    assert "<fused i0 i1, grid i0 tile 16 lanes, loop i2 tile 1>" in first.out
    script = (tmp_path / "dump" / "schedules.txt").read_text()
    assert "    from loops\n    fuse i0, i1\n" in script
    again = strata("lower", small_model, *words[:4], "--to", "loop", "--schedule",
                   "dump/schedules.txt")
    assert again.status == 0 and again.out == first.out
    for name, more in (("mine", ("--schedule", "dump/schedules.txt")), ("rules", ())):
        done = strata("run", small_model, *words, *INPUTS, *more, "-o", f"{name}.npz")
        assert done.status == 0, done.err
    with np.load("mine.npz") as got, np.load("rules.npz") as want:
        np.testing.assert_allclose(got["out/y"], want["out/y"], rtol=1e-5)


def test_steps_for_no_kernel_are_told(strata: Run, small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("nests(scan)\n    tile i0 by 2\n")
    done = strata("lower", small_model, "--target", "cpu", "--to", "loop", "--schedule", "mine.txt")
    assert done.status == 1 and "line 1: no kernel is left for nests(scan); there are:" in done.err


PACKED = """\
builtin.module {
  strata.func @main(%x: f32[24, 64], %w: f32[64, 64]) -> (f32[24, 64])
      inputs ["x", "w"] outputs ["y"] {
    %y = graph.matmul %x, %w : f32[24, 64]
    strata.return %y
  }
}
"""


def test_pack_holds_before_operands_are_packed(strata: Run, tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text(PACKED)
    (tmp_path / "mine.txt").write_text("@contract_0\n    pack\n")
    words = ("--target", "cpu", "--to", "loop", "--features", "avx2")
    plain = strata("lower", "model.mlir", *words)
    packed = strata("lower", "model.mlir", *words, "--schedule", "mine.txt")
    assert packed.status == 0, packed.err
    assert "pack = 1" in packed.out and "pack = 1" not in plain.out
    assert packed.out.count("loop.kernel") == plain.out.count("loop.kernel") + 1  # the copy
    for name, more in (("mine", ("--schedule", "mine.txt")), ("rules", ())):
        done = strata("run", "model.mlir", "--target", "cpu", *more, "-o", f"{name}.npz")
        assert done.status == 0, done.err
    with np.load("mine.npz") as got, np.load("rules.npz") as want:
        np.testing.assert_allclose(got["y"], want["y"], rtol=1e-5, atol=1e-5)
