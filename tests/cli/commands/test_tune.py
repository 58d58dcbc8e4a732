"""`tune`: what it finds is used by other commands; what it cannot do, it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.diagnostics import StrataError
from compiler.tuning import work
from compiler.tuning.laboratory import Machinery
from compiler.tuning.search import Prepared
from compiler.tuning.tasks import Task
from dialects.strata.schedule import Level, Schedule
from targets.base import find_target
from tests.cli.conftest import Run


class StubLaboratory:
    """Schedules without a loop that is unrolled more than twice take half the time."""

    seconds = 0.001

    def __init__(self, shared: Machinery, task: Task):
        self.task = task

    def close(self) -> None:
        pass

    def start(self) -> Prepared:
        *outer, last = self.task.kernel.axes
        levels = [*(Level("grid", a) for a in outer), Level("loop", last, 1, unroll=4)]
        return Prepared(Schedule(tuple(levels)), "rules")

    def prepare(self, schedules: Sequence[Schedule], seconds: float) -> list[Prepared]:
        return [Prepared(s, str(s)) for s in schedules]

    def renew(self) -> None:
        pass

    def measure(
        self, candidate: Prepared, best: float, turns: int, seconds: float
    ) -> float | None:
        return 0.5 if all(x.unroll <= 2 for x in candidate.schedule.levels) else 1.0


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "TaskLaboratory", StubLaboratory)


def test_winners_are_kept_and_used(
    strata: Run, small_model: Path, tmp_path: Path, stub: None
) -> None:
    words = ("tune", small_model, "-o", "found.sqlite", "--kernels", "contract_*", "--jobs", "1")
    done = strata(*words)
    assert done.status == 0, done.err
    assert "1 of 1 kernels have tuned schedules" in done.out and "(2.000x)" in done.out
    assert "whole model, one thread" in done.out
    lowered = strata("lower", small_model, "--tuned", "found.sqlite", "--to", "loop")
    assert "loop i2 tile 1 unroll 2>" in lowered.out
    assert "unroll 2>" not in strata("lower", small_model, "--to", "loop").out
    inputs = ("--dim", "n=5", "--dim", "m=3", "--tuned")
    for tuned in ("found.sqlite", "off"):
        assert strata("run", small_model, *inputs, tuned, "-o", f"{tuned}.npz").status == 0
    with np.load("found.sqlite.npz") as got, np.load("off.npz") as want:
        np.testing.assert_allclose(got["out/y"], want["out/y"], rtol=1e-5)
    assert "(from before)" in strata(*words).out
    assert "others tried" in strata(*words, "--again").out


def test_winners_are_written_as_a_script(
    strata: Run, small_model: Path, tmp_path: Path, stub: None
) -> None:
    """The script does what the file of winners does; nothing else is on the way."""
    done = strata("tune", small_model, "-o", "found.sqlite", "--kernels", "contract_*", "--jobs",
                  "1", "--script", "found.txt")
    assert done.status == 0, done.err
    assert (tmp_path / "found.txt").read_text().startswith(
        "@contract_0\n    from loops\n    before packing\n")
    texts = [strata("lower", small_model, *words, "--to", "loop").out for words in (
        ("--tuned", "found.sqlite"), ("--tuned", "off", "--schedule", "found.txt"))]
    schedules = [[line for line in text.splitlines() if "schedule<" in line] for text in texts]
    assert schedules[0] == schedules[1]
    assert any("loop i2 tile 1 unroll 2>" in line for line in schedules[0])


def test_several_kernels_at_a_time_where_times_are_not_disturbed(
    strata: Run, small_model: Path, stub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_target("cpu").running, "measures_apart", True)
    report = compiler.tune(small_model, output="found.sqlite", jobs=8)
    assert len(report.rows) > 1 and all(row.tried for row in report.rows)
    assert report.rows == sorted(report.rows, key=lambda row: -row.total)


def test_max_autotune_tunes_and_then_compiles(
    strata: Run, small_model: Path, tmp_path: Path, stub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = compiler.compile(small_model, mode="max-autotune", tuned=tmp_path / "found.sqlite")
    assert "unroll 2>" in exe.text("loop")
    monkeypatch.setattr(StubLaboratory, "start", None)  # what was tuned is not tuned again
    compiler.compile(small_model, mode="max-autotune", tuned=tmp_path / "found.sqlite")
    plain = compiler.compile(small_model, mode="reduce-overhead", tuned=None)
    assert "unroll 2>" not in plain.text("loop")


@pytest.mark.parametrize(("mode", "tuned", "message"), [
    ("fastest", "auto", "no mode 'fastest'; there are: default, reduce-overhead, max-autotune"),
    ("max-autotune", "off", "tuned schedules are not used"),
])
def test_modes_that_cannot_be(small_model: Path, mode: str, tuned: str, message: str) -> None:
    with pytest.raises(StrataError, match=message):
        compiler.compile(small_model, mode=mode, tuned=tuned)


def test_a_dump_tells_of_tuned_schedules(
    strata: Run, small_model: Path, tmp_path: Path, stub: None
) -> None:
    strata("tune", small_model, "-o", "found.sqlite", "--jobs", "1")
    strata("lower", small_model, "--tuned", "found.sqlite", "--dump-dir", "dumps", "-o", "t.ll")
    assert "has a tuned schedule, 2.00x" in (tmp_path / "dumps" / "index.md").read_text()
    assert list((tmp_path / "dumps").glob("*-loop-apply-tuned.mlir"))


def test_from_python(small_model: Path, tmp_path: Path, stub: None) -> None:
    found = tmp_path / "found.sqlite"
    report = compiler.tune(small_model, output=found, jobs=1, kernels=["contract_*"])
    assert [row.gain for row in report.rows] == [2.0] and report.gain == 2.0
    exe = compiler.compile(small_model, tuned=found)
    assert "unroll 2>" in exe.text("loop")
    with pytest.raises(StrataError, match="no mode"):
        compiler.tune(small_model, output=found, mode="fastest")


def test_kernels_that_no_library_has_are_not_tuned_for_it(
    small_model: Path, tmp_path: Path, stub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = find_target("cpu").tuning
    monkeypatch.setattr(kind, "library_keys", lambda self: ["blas 1"] * self.options.library)
    monkeypatch.setattr(kind, "library_of", lambda self, kernel: "blas 1" if self.options.library
                        and kernel.sym_name.data.startswith("contract") else None)
    for library, searched in (("never", True), ("auto", False)):
        report = compiler.tune(small_model, output=tmp_path / "found.sqlite", jobs=1,
                               library=library)
        for row in report.rows:
            assert bool(row.tried) == (searched or row.name.startswith("contract")), row


@pytest.mark.parametrize(("words", "part"), [
    (("--library", "auto"), "target cpu has no library to call on this machine"),
    (("--target", "reference"), "target reference cannot be tuned: it offers no schedules"),
    (("--cache", "off"), "name one with -o FILE"),
    (("--kernels", "nothing_*"), "--kernels names no kernel of the model"),
    (("-o", "damaged.sqlite"), "cannot use the tuned schedules in"),
    (("--features", "avx1024"), "no feature set"),
])
def test_what_is_at_fault(
    strata: Run, small_model: Path, tmp_path: Path, stub: None, words: tuple[str, ...], part: str
) -> None:
    (tmp_path / "damaged.sqlite").write_bytes(b"something else" * 99)
    done = strata("tune", small_model, "--jobs", "1", *words)
    assert done.status == 1
    assert part in done.err and "Traceback" not in done.err


def test_a_text_behind_scheduling_cannot_be_tuned(
    strata: Run, small_model: Path, tmp_path: Path, stub: None
) -> None:
    strata("lower", small_model, "--dump-dir", "dumps", "-o", "t.ll")
    dump = next((tmp_path / "dumps").glob("*-loop-schedule.mlir"))
    done = strata("tune", dump, "-o", "found.sqlite")
    assert done.status == 1 and "before they are packed" in done.err


def test_open_sizes_are_told(
    strata: Run, small_model: Path, tmp_path: Path, stub: None
) -> None:
    done = strata("tune", small_model, "-o", "found.sqlite", "--jobs", "1", "--open",
                  "--dim", "n=9")
    assert done.status == 0, done.err
    assert "note: sizes set for measuring: m=2" in done.out


@pytest.mark.slow
def test_a_kernel_is_tuned_in_truth(strata: Run, small_model: Path, tmp_path: Path) -> None:
    done = strata("tune", small_model, "-o", "found.sqlite", "--seconds", "30", "--jobs", "2",
                  "--kernels", "contract_*", "--dim", "n=256", "--dim", "m=4")
    assert done.status == 0, done.err
    assert "others tried" in done.out and "failed" not in done.out
    words = ("--dim", "n=256", "--dim", "m=4", "--tuned", "found.sqlite")
    assert strata("verify", small_model, *words).status == 0
