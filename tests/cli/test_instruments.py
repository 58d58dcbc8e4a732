"""What watches the pipeline: times, provenance, progress, and the contracts of the levels."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from compiler.diagnostics import Problem, StrataError
from compiler.executable import compile_with
from compiler.instrument import Instrument
from compiler.instrument.progress import Progress
from compiler.instrument.provenance import without_node
from compiler.instrument.remarks import counted
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.levels import LEVELS, detect_level, strangers
from compiler.pipeline.steps import PIPELINE
from tests.cli.conftest import Run

LEVEL_NAMES = list(dict.fromkeys(step.level for step in PIPELINE))


def lowered(model: Path, level: str) -> ModuleOp:
    return Compiler(str(model), CompileOptions("reference")).lower(level).module


@pytest.mark.parametrize("name", LEVEL_NAMES)
def test_contracts_tell_levels_apart(small_model: Path, name: str) -> None:
    module = lowered(small_model, name)
    level = detect_level(module)
    assert level is not None
    assert level.name == name
    assert all(strangers(module, other) for other in LEVELS if other.name != name)


@pytest.mark.parametrize("name", LEVEL_NAMES)
def test_every_operation_names_its_node(small_model: Path, name: str) -> None:
    assert not without_node(lowered(small_model, name))


def test_pass_times_are_told(strata: Run, small_model: Path) -> None:
    done = strata("lower", small_model, "--target", "reference", "--to", "graph", "--timing")
    rows = done.err.splitlines()
    assert rows[-1].endswith(f"in {sum(s.level == 'graph' for s in PIPELINE)} passes")
    assert any("graph-decompose" in row for row in rows)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO) -> str:
    """Without the codes by which a terminal rewrites a line."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.instrument.progress.PATIENCE", 0.05)


def test_short_work_is_silent() -> None:
    for stream in (io.StringIO(), Terminal()):
        with Progress(True, stream) as progress:
            progress.report("something short")
            progress.count(1, 2)
        assert stream.getvalue() == ""


def test_long_work_is_told(impatient: None) -> None:
    stream = io.StringIO()
    with Progress(True, stream) as progress:
        progress.report("something long")
        time.sleep(0.3)
        progress.count(3, 4)
        progress.report("the end of it")
    first, second = stream.getvalue().splitlines()
    assert first.startswith("something long (")
    assert second.startswith("the end of it (3 of 4, ")


def test_a_long_count_is_told_from_time_to_time(
    impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.instrument.progress.SILENCE", 0.1)
    stream = io.StringIO()
    with Progress(True, stream) as progress:
        progress.report("making code")
        time.sleep(0.3)
        for done in range(1, 21):
            progress.count(done, 20)
            time.sleep(0.02)
        progress.count(0, 0)
        progress.report("writing")
    first, *counted, last = stream.getvalue().splitlines()
    assert first.startswith("making code (") and 2 <= len(counted) <= 5
    assert all(line.startswith("making code (") and " of 20, " in line for line in counted)
    assert last.startswith("writing (") and " of " not in last


def test_a_terminal_gets_one_line(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream = Terminal()
    with Progress(None, stream) as progress:
        progress.report("tuning [bold]a kernel")  # rich's own marks are text here
        progress.count(10, 40, 75)
        time.sleep(1.2)
    assert re.search(r"tuning \[bold\]a kernel .* 10 of 40, \d s so far, about 7\d s left",
                     shown(stream)), shown(stream)
    assert "\n" not in shown(stream).rstrip()


def test_what_is_printed_stands_above_the_line(
    impatient: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with Progress(None, Terminal()) as progress:
        progress.report("something long")
        time.sleep(0.5)
        progress.print("a row")
    assert capsys.readouterr().out == "a row\n"


@pytest.mark.parametrize(("done", "total", "told"), [
    (0, 10, ""), (5, 10, "about 50 s left"), (9, 10, "about 6 s left"), (1, 10, "about 8 min left"),
    (1, 1000, ""), (0, 0, ""), (10, 10, ""),
])
def test_the_time_that_is_left(done: int, total: int, told: str) -> None:
    with Progress(False, io.StringIO()) as progress:
        progress.count(0, total)
        progress.counting_since -= 50.0
        progress.count(done, total)
        assert progress.left() == told


def test_passes_and_kernels_are_counted(small_model: Path) -> None:
    class Counts(Instrument):
        def __init__(self) -> None:
            self.found: list[tuple[int, int]] = []

        def count(self, done: int, total: int, seconds: float | None = None) -> None:
            self.found.append((done, total))

    counts = Counts()
    compile_with(str(small_model), CompileOptions("cpu", cache="off"), [counts])
    at = counts.found.index((0, 0))  # from here on kernels are compiled
    passes, kernels = counts.found[:at], counts.found[at + 1:]
    assert [done for done, _ in passes] == list(range(passes[0][1]))
    assert kernels[-1][0] == kernels[-1][1] > 0
    assert sorted(kernels) == kernels


def test_nothing_is_told_unasked_where_no_one_looks(impatient: None) -> None:
    stream = io.StringIO()
    with Progress(None, stream) as progress:
        progress.report("something long")
        time.sleep(0.3)
    assert stream.getvalue() == ""


def test_remarks_are_counted() -> None:
    texts = [*["not fused: other domain"] * 31, "not fused: a contraction", "arena of 3 MB",
             "graph.neg not folded: too large", "arena of 3 MB"]
    assert counted(texts) == ["not fused: 31 x other domain, a contraction", "2 x arena of 3 MB",
                              "graph.neg not folded: too large"]


@pytest.mark.parametrize("command", ["lower", "verify"])
def test_what_was_not_done_is_told_in_short(
    strata: Run, small_model: Path, command: str
) -> None:
    short = strata(command, small_model, "--target", "reference")
    long = strata(command, small_model, "--target", "reference", "-v")
    assert short.status == long.status == 0
    notes = [line for line in short.err.splitlines() if line.startswith("note: not ")]
    kinds = [line.partition(": ")[2].partition(": ")[0] for line in notes]
    assert len(kinds) == len(set(kinds))
    assert len(long.err.splitlines()) >= len(short.err.splitlines())


def test_equal_problems_of_many_nodes_are_one() -> None:
    problems = [Problem("no buffers", f"n{k}", "host", hint="lower it") for k in range(40)]
    told = str(StrataError("it failed", [*problems, Problem("else")]))
    assert "- no buffers (40 times)" in told
    assert "nodes 'n0', 'n1', 'n2', 'n3', 'n4' and 35 more, at host level" in told
    assert len(told.splitlines()) == 5
    many = str(StrataError("it failed", [Problem(f"problem {k}") for k in range(100)]))
    assert "and 70 more problems" in many
