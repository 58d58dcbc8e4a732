"""What goes wrong while a program for some sizes is made or runs, and calls that are wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from xdsl.parser import Parser

import compiler
from compiler.diagnostics import StrataError
from compiler.options import Specialize
from compiler.specialization import FAILURES, Specializer
from dialects.context import make_context
from dialects.symbolic.symbol import Symbol
from passes.base import PassError, StrataContext
from passes.graph.fix_sizes import GraphFixSizes
from targets.base import Executable as Program
from tests.models.onnx_graph import Array
from tests.programs.specialized import (
    AT_ONCE,
    Make,
    check_rows,
    states,
)


def test_a_failure_is_remembered_and_breaks_no_call(
    rows: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []

    def fail(self: Specializer, sizes: Mapping[Symbol, int]) -> Program:
        tried.append(sizes[Symbol.size("rows.n")])
        raise MemoryError("no room")

    monkeypatch.setattr(Specializer, "compile", fail)
    exe = rows(Specialize(after=1, background=False))
    for n in [1, *range(FAILURES + 3)] * 2:
        check_rows(exe, n)
    assert tried == [1, 0, 2]  # each once, and after FAILURES no more
    assert len(exe.specializations) == FAILURES
    assert {(s.state, s.calls, s.remark) for s in exe.specializations} == {("failed", 0, "no room")}
    assert "the sizes {'rows.n': 1}: no room" in caplog.text


def broken(self: Specializer, sizes: Mapping[Symbol, int]) -> Program:
    return Broken()


class Broken(Program):
    """A program that fails at every call."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        raise RuntimeError("the arena is gone")


def test_the_general_program_answers_for_one_that_fails(
    rows: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Specializer, "compile", broken)
    exe = rows(Specialize(after=1, background=False))
    for _ in range(3):
        check_rows(exe, 5)
    (made,) = exe.specializations
    assert made.state == "failed"
    assert "the arena is gone" in made.remark


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_bad_calls_are_named_errors_and_change_nothing(rows: Make, target: str) -> None:
    exe = rows(Specialize(after=2, background=False), target)
    check_rows(exe, 5)
    bad = [(np.ones((5, 3), np.float32), "dim 1 of input 'x' is 3 but must be 4"),
           (np.ones(5, np.float32), "input 'x' must have 2 dims"),
           (np.ones((5, 4)), "input 'x' must be float32, not float64")]
    for _ in range(3):
        for x, message in bad:
            with pytest.raises(ValueError, match=message):
                exe(x)
    assert exe.specializations == []
    check_rows(exe, 5)
    for x, message in bad:
        with pytest.raises(ValueError, match=message):
            exe(x)
    check_rows(exe, 5)
    assert states(exe) == [(5, "ready", 1)]


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("choice", [None, AT_ONCE], ids=["general", "specialized"])
def test_sizes_that_contradict(target: str, choice: Specialize | None, tmp_path: Path) -> None:
    """Sizes of two inputs that a node wants equal: an error that names the node, then an answer."""
    path = tmp_path / "product.mlir"
    path.write_text("""
      strata.func @main(%a: f32[n, k], %b: f32[m, 3], %c: f32[2*n]) -> (f32[n, 3])
          inputs ["a", "b", "c"] outputs ["y"] {
        %y = graph.matmul %a, %b : f32[n, 3] loc("product")
        strata.return %y
      }""")
    exe = compiler.compile(path, target=target, cache="off", threads=1, specialize=choice)
    a, b, c = np.ones((2, 5), np.float32), np.ones((5, 3), np.float32), np.ones(4, np.float32)
    for _ in range(2):
        with pytest.raises(ValueError, match="'product'"):
            exe(a, b[:4], c)
        with pytest.raises(ValueError, match="dim 0 of input 'c' is 3 but must be 4"):
            exe(a, b, c[:3])
        np.testing.assert_array_equal(exe(a, b, c)[0], np.full((2, 3), 5))
    assert [s.sizes for s in exe.specializations] == (
        [] if choice is None else [{"n": 2, "k": 5, "m": 5}])


def test_a_text_beyond_graph_level_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.mlir").write_text("""
      host.func @main(%a: f32[n]) inputs ["a"] outputs [] sizes(n) {
        host.return
      }""")
    with pytest.raises(StrataError, match="is at host level; sizes can be fixed at graph level"):
        compiler.compile(tmp_path / "empty.mlir", specialize=AT_ONCE)


def test_a_size_that_means_two_things_is_not_fixed() -> None:
    """@late's `n`, which it gives to @inner, is not that of @main."""
    inner = """strata.func @inner(%x: f32[1]) -> (f32[n]) sizes(n) inputs ["x"] outputs ["y"] {
        %y = graph.broadcast %x {shape = [n]} : f32[n]
        strata.return %y
      }"""
    text = f"""builtin.module {{ {inner}
      strata.func @late(%x: f32[1], %c: i64[], %go: i1[]) -> (f32[n]) inputs ["x", "c", "go"]
          outputs ["y"] {{
        strata.size n = %c
        %y = strata.if %go then @inner else @inner (%x) : f32[n]
        strata.return %y
      }}
      strata.func @main(%x: f32[1], %s: f32[n], %c: i64[], %go: i1[]) -> (f32[k]) inputs
          ["x", "s", "c", "go"] outputs ["y"] {{
        %y = strata.if %go then @late else @late (%x, %c, %go) defines(k) : f32[k]
        strata.return %y
      }} }}"""
    module = Parser(make_context(), text).parse_module()
    with pytest.raises(PassError, match=r"the size n .* names a different size in @late"):
        GraphFixSizes(("n",), (3,)).apply(StrataContext.with_dialects(), module)
