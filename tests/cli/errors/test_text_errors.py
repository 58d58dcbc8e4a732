"""Errors in texts point at line and column, and show the line."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from compiler.excerpts import Place
from dialects.strata import types as t
from dialects.strata.tile_type import tile
from dialects.symbolic.expr_syntax import expr_of
from tests.cli.conftest import Run

TEXT = """\
strata.func @main(%x: f32[n]) -> (f32[n]) inputs ["x"] outputs ["y"] {
  %y = graph.exp %x : f32[n]
  %z = graph.neg %y : f32[n]
  strata.return %z
}
"""


def told(strata: Run, text: str) -> str:
    Path("bad.mlir").write_text(text)
    done = strata("run", "bad.mlir", "--target", "reference")
    assert done.status == 1, done.err
    assert "Traceback" not in done.err and "!strata." not in done.err
    assert not list(Path.cwd().glob("reproducer*"))
    return done.err


def pointed(err: str) -> list[str]:
    """What the carets of a message stand under."""
    lines, found = err.splitlines(), list[str]()
    for above, line in pairwise(lines):
        bar = line.partition("|")[2]
        if bar.strip() and not bar.strip(" ^\t"):
            first = line.index("^")
            found.append(above[first:line.rindex("^") + 1])
    return found


@pytest.mark.parametrize(("old", "new", "where", "what", "part"), [
    ("graph.exp", "graph.exq", "line 2, column 8", "graph.exq", "did you mean graph.exp"),
    ("graph.exp", "grap.exp", "line 2, column 8", "grap.exp", "did you mean graph"),
    ("exp %x : f32", "exp %x : f33", "line 2, column 23", "f33", "type expected"),
    ("neg %y", "neg %q", "line 3, column 18", "%q", "used before it is defined"),
    ("exp %x : f32[n]", "exp %x : f32[m]", "line 2, column 8", "graph.exp",
     "result is f32[m], not f32[n]"),
    ('inputs ["x"]', "inputs []", "line 1, column 1", "strata.func", "C1"),
    ("  strata.return %z\n", "", "line 3, column 8", "graph.neg", "not a terminator"),
    ("neg %y : f32[n]", "neg %y : f32[n + ]", "line 3, column 31", "]", "cannot read"),
])
def test_the_place_is_shown(
    strata: Run, old: str, new: str, where: str, what: str, part: str
) -> None:
    err = told(strata, TEXT.replace(old, new, 1))
    assert f"in bad.mlir, {where}" in err, err
    assert what in pointed(err), err
    assert part in err


def test_all_operations_that_do_not_verify_are_told(strata: Run) -> None:
    err = told(strata, TEXT.replace("%y : f32[n]", "%y : f64[n]").replace("%x : f32[n]",
                                                                          "%x : f32[m]"))
    assert {"graph.exp", "graph.neg"} <= set(pointed(err))


def test_a_text_that_ends_too_early(strata: Run) -> None:
    assert "ends too early" in told(strata, TEXT[:TEXT.rindex("}")])


def test_a_text_that_is_nested_too_deeply(strata: Run) -> None:
    err = told(strata, TEXT.replace("f32[n]", f"f32[{'(' * 5000}n{')' * 5000}]", 1))
    assert "nested too deeply" in err
    assert max(map(len, err.splitlines())) < 120


@pytest.mark.parametrize(("text", "at", "shown", "caret"), [
    ("one\ntwo three\n", 8, "two three", "    ^"),
    ("\tx = 1", 1, "\tx = 1", "\t^"),
    ("", 0, "", "^"),
])
def test_excerpts(text: str, at: int, shown: str, caret: str) -> None:
    first, second = Place(text, at, at + 1).excerpt().split("\n")
    assert first.partition(" | ")[2] == shown
    assert second.partition(" | ")[2] == caret


def test_excerpts_of_long_lines_show_the_place() -> None:
    text = "".join(f"{k:05}" for k in range(1000))
    at = text.index("00700")
    first, second = Place(text, at, at + 5).excerpt().split("\n")
    assert first[second.index("^"):second.rindex("^") + 1] == "00700"
    assert len(first) < 120


def test_types_are_printed_as_they_are_written() -> None:
    assert str(t.tensor(t.f32, (expr_of("n"), 3))) == "f32[n, 3]"
    assert str(t.buffer_of(t.tensor(t.i8, (2,)))) == "i8[2]"
    assert str(tile(t.f32, (4, 16))).startswith("tile<")
