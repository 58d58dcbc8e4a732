"""`--schedule FILE`: a user's schedules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

MINE = """\
# rows in pairs
@contract_* <grid i0 tile 2, loop i1 tile 4, loop i2 tile 1 unroll 2>
"""


def test_schedules_come_from_a_file(strata: Run, small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text(MINE)
    words = ("--target", "reference", "--schedule", "mine.txt")
    done = strata("lower", small_model, *words, "--to", "loop")
    assert done.status == 0, done.err
    assert "schedule<grid i0 tile 2, loop i1 tile 4, loop i2 tile 1 unroll 2>" in done.out
    assert strata("verify", small_model, *words).status == 0


def test_a_whole_schedule_can_fuse_axes(strata: Run, small_model: Path, tmp_path: Path) -> None:
    text = "<fused i0 i1, loop i0 tile 16, loop i2 tile 1>"
    (tmp_path / "mine.txt").write_text(f"@contract_0 {text}\n")
    words = ("--target", "reference", "--schedule", "mine.txt")
    done = strata("lower", small_model, *words, "--to", "loop")
    assert done.status == 0 and f"schedule{text}" in done.out, done.err
    assert strata("verify", small_model, *words).status == 0


@pytest.mark.parametrize(("text", "part"), [
    ("@contract_*", "line 1: expected a kernel and its schedule"),
    ("\n@a <grid i0 tile x>", "line 2, column 18: "),
    ("@contract_* <grid i0 tile 1 | tial = peel>",
     "line 1, column 31: a schedule has no option 'tial'; did you mean 'tails'?"),
    ("@contract_* <grid i0 tile 1 | warps = 0>",
     "line 1, column 31: the option warps of a schedule is an integer from 1 to 64, not 0"),
    ("@none <grid i0 tile 1>", "no kernel is left for @none; there are: @contract_0"),
    ("@contract_0 <grid i0 tile 1>",
     "line 1, column 13: the schedule of @contract_0: it has no level for axis i1, i2"),
    ("@map_* <grid i9 tile 1>",
     "line 1, column 9: the schedule of @map_3: the kernel has no axis i9"),
    ("@contract_0 <fused i0 i2, loop i0 tile 16, loop i1 tile 1>",
     "line 1: @contract_0: a nest over i0, i1, i2 reduces along i2, but not along the other one"),
    ("@contract_0 <grid i0 tile 0 unroll 4, loop i1 tile 1, loop i2 tile 1>",
     "line 1, column 14: the schedule of @contract_0: tiles and unroll factors must be at least 1"),
    ("# rows\n@contract_0  <loop i0 tile 1, loop i1 tile 1, grid i2 tile 4>",
     "line 2, column 47: the schedule of @contract_0: grid levels must come before all others"),
    ("@contract_0 <grid i0 tile 1, loop i2 tile 1, loop i1 tile 4 | tails = peel>",
     "line 1, column 46: the schedule of @contract_0: axis i1 is inside the loop over i2"),
])
def test_faults_of_the_file(
    strata: Run, small_model: Path, tmp_path: Path, text: str, part: str
) -> None:
    (tmp_path / "mine.txt").write_text(text)
    done = strata("lower", small_model, "--target", "reference", "--schedule", "mine.txt",
                  "--to", "loop")
    assert done.status == 1
    assert part in done.err


def test_a_file_without_effect_is_told(strata: Run, small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text(MINE)
    done = strata("lower", small_model, "--target", "reference", "--schedule", "mine.txt",
                  "--to", "graph")
    assert done.status == 1
    assert "--schedule has no effect" in done.err
    assert strata("lower", small_model, "--target", "reference", "--schedule",
                  "nothing.txt").status == 1
