"""`diff` and `lower --print-changes`: what passes changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.instrument.changes import MOST, compare, lines_of, shown
from tests.cli.conftest import Run
from tests.filecheck import filecheck

REFERENCE = ("--target", "reference", "--to", "loop", "-o", "out.mlir")


@pytest.fixture
def dumps(strata: Run, small_model: Path) -> Path:
    done = strata("lower", small_model, *REFERENCE, "--dump-dir", "dumps")
    assert done.status == 0, done.err
    return Path("dumps")


def test_each_pass_is_one_line(strata: Run, dumps: Path) -> None:
    done = strata("diff", dumps)
    lines = done.out.splitlines()
    assert len(lines) == len(list(dumps.glob("*.mlir"))) - 1
    filecheck("""// CHECK: -graph-decompose: 1 removed, {{[0-9]+}} added
                 // CHECK: -1 graph.softmax
                 // CHECK: -graph-to-loop:
                 // CHECK: -loop-outline:""", done.out.replace(" (", "\n("))


def test_a_pass_shows_its_operations(strata: Run, dumps: Path) -> None:
    done = strata("diff", dumps, "graph-decompose")
    filecheck("""// CHECK: -graph-decompose: 1 removed
                 // CHECK: @main
                 // CHECK: - %shares = graph.softmax %scores
                 // CHECK: [normalize]
                 // CHECK: + %{{.*}} = graph.exp""", done.out.replace("  [", "\n["))
    assert "\x1b[" not in done.out


def test_unknown_passes_and_folders_are_told(strata: Run, dumps: Path, tmp_path: Path) -> None:
    done = strata("diff", dumps, "graph-decomposes")
    assert done.status == 1 and "did you mean graph-decompose" in done.err
    done = strata("diff", tmp_path / "nowhere")
    assert done.status == 1 and "there is no such folder" in done.err


@pytest.mark.parametrize("level", ["loop", "llvm"])
def test_changes_take_the_place_of_the_text(strata: Run, small_model: Path, level: str) -> None:
    """Only -o writes the text, too; where it goes to standard output, changes do not."""
    words = ("lower", small_model, "--target", "cpu", "--to", level, "--print-changes")
    done = strata(*words)
    assert done.status == 0 and "graph-decompose: 1 removed" in done.out
    assert "define " not in done.out and "builtin.module" not in done.out
    both = strata(*words, "-o", "out.txt")
    assert both.out == done.out and Path("out.txt").stat().st_size
    piped = strata(*words, "-o", "-")
    assert piped.out == Path("out.txt").read_text() and done.out in piped.err


def test_changes_are_printed_as_passes_run(strata: Run, small_model: Path) -> None:
    done = strata("lower", small_model, *REFERENCE, "--print-changes")
    assert done.status == 0
    filecheck("""// CHECK: graph-decompose: 1 removed
                 // CHECK: - %shares = graph.softmax
                 // CHECK: loop-outline:
                 // CHECK: > {{.*}} from @main""", done.out)


def test_numbers_of_values_are_no_change() -> None:
    """An operation before others changes their numbers, and nothing else."""
    before = "strata.func @main() {\n  %0 = graph.exp %x loc(#loc0)\n  %1 = graph.neg %0\n}\n"
    after = ("strata.func @main() {\n  %0 = graph.abs %x\n  %1 = graph.exp %x loc(#loc1)\n"
             "  %2 = graph.neg %1\n}\n#loc0 = loc(\"a\")\n#loc1 = loc(fused[#loc0, \"b c\"])\n")
    changes = compare(lines_of(before), lines_of(after))
    assert not changes.removed and not changes.moved
    assert [line.name for line in changes.added] == ["graph.abs"]
    assert lines_of(after)[2].nodes == ("a", "b c")


def test_a_changed_operation_shows_what_differs() -> None:
    """The part that a pass adds at the end of a long line is not cut off, and numbers of values
    that have no names are no part."""
    long = ", ".join(f"%input{k}: f32[n, 40]" for k in range(20))
    before = (f"loop.kernel @a({long}) sizes(n) {{\n  %1 = loop.nest (i0: n) ins(%0[i0, 0])\n"
              "  %2 = loop.yield %x\n}\n")
    after = (f"loop.kernel @a({long}) sizes(n) schedule<grid i0 tile 1 | keep = 8> {{\n"
             "  %4 = loop.nest (i0: n) ins(%3[i0])\n  %y = loop.yield %z\n}\n")
    changes = compare(lines_of(before), lines_of(after))
    assert changes.counts == "1 removed, 1 added, 2 changed"
    assert [line.text for line in changes.added] == ["%y = loop.yield %z"]
    filecheck("""// CHECK: @a
                 // CHECK: ~ loop.kernel @a(%input0: f32[n...: + schedule<grid i0 tile 1 | keep
                 // CHECK: ~ %4 = loop.nest (i0: n): ins(%0[i0, 0]) -> ins(%3[i0])""",
              "\n".join(shown("p", changes)))


def test_many_kernels_are_counted() -> None:
    kernels = "".join(f"loop.kernel @k{k}() {{\n  loop.nest x\n}}\n" for k in range(50))
    changes = compare([], lines_of(kernels))
    lines = [*shown("p", changes)]
    assert len(lines) < 50 and lines[-1] == f"  ... {50 - MOST} more functions and kernels"
    assert len([*shown("p", changes, None)]) == 1 + 3 * 50


def test_operations_move_between_functions() -> None:
    before = "loop.kernel @a() {\n  loop.nest x\n}\nloop.kernel @b() {\n}\n"
    after = "loop.kernel @a() {\n}\nloop.kernel @b() {\n  loop.nest x\n}\n"
    [(line, source)] = compare(lines_of(before), lines_of(after)).moved
    assert (line.symbol, source) == ("b", "a")
