"""Programs for sizes that break a choice of the compiler: when they are compiled, kept, found."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import compiler
from compiler import variants
from compiler.__main__ import main
from compiler.recompilation import Decisions, Recompiler
from compiler.variants import Variants
from dialects.strata.assumptions import ChoiceError, Outcome, SizeError
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from tests.frontend.onnx_models import run_reference

ROOT = Path(__file__).parents[2]
HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
SUM = """g (float[n, 4] x, float[m, 4] z) => (y) <float[4, 4] w = {NUMBERS}> {
    p = MatMul(x, w) y = Add(p, z) }""".replace(
        "NUMBERS", ", ".join(f"{k % 5 - 2}.0" for k in range(16)))
HALVES = """g (float[n] x) => (y) <float[3] c = {1, 2, 3}, int64[1] zero = {0}, int64[1] end = {99},
    int64[1] two = {2}> { h = Slice(x, zero, end, zero, two) y = Add(h, c) }"""
FOUND = """g (float[n] x) => (y, z) <int64[1, 3] c = {1, 2, 3}> {
    i = NonZero(x) y = Add(i, c) z = Squeeze(i) }"""
TRIPLED = """g (float[n, 4] x) => (y) { c = Concat <axis = 0> (x, x, x) y = Add(c, x) }"""
GROWN = """g (float[b, 5] x, float[1, 5] start, int64 trips) => (y) <bool go = {1}> {
    y = Loop(trips, go, start) <body = turn (int64 i, bool c, float[u, w] v) => (d, r) {
        d = Identity(c) r = Add(v, x) }> }"""


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


def compiled(text: str, **options: Any) -> compiler.Executable:
    chosen = {"target": "reference", "cache": "off", "tuned": "off", "threads": 1, **options}
    return compiler.compile(parsed(text), **chosen)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(shape).integers(-9, 9, shape).astype(np.float32)


def expected(x: Array, z: Array) -> Array:
    return x @ np.array([k % 5 - 2 for k in range(16)], np.float32).reshape(4, 4) + z


def check_sum(exe: compiler.Executable, n: int, m: int) -> None:
    x, z = numbers(n, 4), numbers(m, 4)
    [y] = exe(x, z)
    assert y.shape == expected(x, z).shape
    np.testing.assert_array_equal(y, expected(x, z))


def made(exe: compiler.Executable) -> list[dict[str, int]]:
    return [dict(s.sizes) for s in exe.specializations if s.state == "ready"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sum.onnx"
    path.write_bytes(parsed(SUM).SerializeToString())
    return path


# ---------------------------------------------------------------------- when they are compiled
def test_a_program_is_compiled_once_for_all_other_sizes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "strata")
    exe = compiled(SUM)
    check_sum(exe, 3, 3)
    assert not exe.specializations and not caplog.messages
    for m in (5, 2, 5, 0):
        check_sum(exe, 1, m)
    check_sum(exe, 3, 3)
    assert made(exe) == [{"n": 1}]
    [said] = caplog.messages
    assert "for n = 1" in said and "'Add#1' was compiled for n == m" in said
    check_sum(exe, 4, 1)
    assert made(exe) == [{"n": 1}, {"m": 1}]
    assert [s.calls for s in exe.specializations] == [4, 1]


def test_sizes_that_fit_nothing_compile_nothing() -> None:
    exe = compiled(SUM)
    for n, m in ((3, 2), (0, 3), (2, 0)):
        with pytest.raises(ValueError, match=r"Add#1.*n == m"):
            exe(numbers(n, 4), numbers(m, 4))
    assert not exe.specializations


def test_an_expression_of_sizes_is_not_fixed() -> None:
    """One program answers all sizes whose half is 1."""
    exe = compiled(HALVES, target="cpu")
    for n in (5, 1, 6, 2):
        x = numbers(n)
        np.testing.assert_array_equal(exe(x)[0], x[::2] + np.array([1, 2, 3], np.float32))
    assert made(exe) == [{}]


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_sizes_that_agree_only_where_they_are_0(target: str) -> None:
    exe = compiled(TRIPLED, target=target)
    for n in (1, 0, 1):
        x = numbers(n, 4)
        np.testing.assert_array_equal(exe(x)[0], np.concatenate([x, x, x]) + x)
    with pytest.raises(SizeError, match=r"^sizes do not fit each other at node 'Add#1'"):
        exe(numbers(2, 4))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_sizes_that_data_decide(target: str) -> None:
    exe, model = compiled(FOUND, target=target), parsed(FOUND)
    for values in ([1, 1, 1], [0, 1, 0], [1, 0, 0, 1, 1], [0, 0, 2], [1, 1, 1]):
        x = np.array(values, np.float32)
        for got, want in zip(exe(x), run_reference(model, {"x": x}), strict=True):
            assert got.shape == want.shape
            np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match=r"Add#1"):
        exe(np.array([1, 1], np.float32))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_several_outcomes_in_one_run(target: str) -> None:
    """The row of the first iteration is stretched; the rows after it are not."""
    exe, model = compiled(GROWN, target=target), parsed(GROWN)
    for b, trips in ((3, 1), (3, 3), (1, 2), (3, 0), (0, 2), (4, 4)):
        feeds = {"x": numbers(b, 5), "start": numbers(1, 5), "trips": np.array(trips)}
        [got], [want] = exe(**feeds), run_reference(model, feeds)
        assert got.shape == want.shape
        np.testing.assert_array_equal(got, want)


def test_a_size_that_cannot_be_compiled_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    exe, calls = compiled(SUM), list[Decisions]()

    def fail(self: object, decisions: Decisions, inputs: Sequence[Array]) -> Any:
        calls.append(decisions)
        raise compiler.StrataError("no")

    monkeypatch.setattr(Recompiler, "compile", fail)
    for _ in range(2):
        with pytest.raises(compiler.SizeError, match=r"needs other code for m = 3, n = 1.*: no"):
            exe(numbers(1, 4), numbers(3, 4))
    assert calls == [Decisions((("n", 1),))]
    assert [s.state for s in exe.specializations] == ["failed"]
    check_sum(exe, 3, 3)


def test_a_text_of_a_level_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sum.mlir"
    exe = compiled(SUM)
    path.write_text(exe.text("graph"))
    main(["lower", str(path), "--to", "loop", "-o", str(tmp_path / "loop.mlir")])
    assert 'chosen equal at "Add#1:0" else left n == 1, right m == 1' in path.read_text()
    again = compiler.compile(path, target="reference", cache="off")
    check_sum(again, 2, 2)
    with pytest.raises(compiler.SizeError, match=r"--dim n=1.*text of a level"):
        again(numbers(1, 4), numbers(3, 4))


# ---------------------------------------------------------------------- how many are kept
def test_the_least_recently_used_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "MOST", 2)
    names = "abcd"
    inputs = ", ".join(f"float[{c}] x{c}" for c in names)
    nodes = " ".join(f"y{c} = Add(x{c}, w)" for c in names)
    exe = compiled(f"g ({inputs}) => ({', '.join(f'y{c}' for c in names)}) "
                   f"<float[3] w = {{1, 2, 3}}> {{ {nodes} }}")

    def call(single: str) -> None:
        given = [numbers(1 if c in single else 3) for c in names]
        for got, x in zip(exe(*given), given, strict=True):
            np.testing.assert_array_equal(got, x + np.array([1, 2, 3], np.float32))

    for single in ("a", "b", "a", "c"):
        call(single)
    assert made(exe) == [{"a": 1}, {"c": 1}]
    call("b")
    assert made(exe) == [{"c": 1}, {"b": 1}]
    call("abcd")
    assert made(exe)[-1] == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_constants_are_shared() -> None:
    exe = compiled(SUM, target="cpu")
    check_sum(exe, 3, 1)
    assert isinstance(exe.loaded, Variants)
    general: Any = exe.loaded.general
    other: Any = exe.loaded.needed[0].program
    shared = {id(a) for a in general.constants} & {id(a) for a in other.constants}
    assert shared


def test_threads_compile_a_program_once() -> None:
    exe, errors = compiled(SUM), list[BaseException]()
    start = threading.Barrier(6)

    def call(k: int) -> None:
        try:
            start.wait()
            for m in (3, 1, 5):
                check_sum(exe, 1 if k % 2 else m, m)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=[k]) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and made(exe) == [{"n": 1}]


# ---------------------------------------------------------------------- on disk
CALLS = """
import sys, numpy
known = set(sys.modules)
import compiler
exe = compiler.compile(sys.argv[1], cache=sys.argv[2], threads=1, tuned="off")
print([exe(numpy.ones((n, 4), "f"), numpy.ones((m, 4), "f"))[0].shape
       for n, m in ((3, 3), (1, 2), (1, 5))], len(exe.specializations))
print(*{m.partition(".")[0] for m in set(sys.modules) - known})
"""


def test_a_later_process_finds_all_programs_without_the_compiler(file: Path) -> None:
    words = [sys.executable, "-c", CALLS, str(file), str(file.parent / "cache")]
    for first in (True, False):
        done = subprocess.run(words, cwd=ROOT, text=True, capture_output=True, check=True,
                              timeout=120, env={**os.environ, "STRATA_CACHE_SIZE": "1G"})
        answers, modules = done.stdout.splitlines()
        assert answers == "[(3, 4), (2, 4), (5, 4)] 1"
        assert first or not {"xdsl", "llvmlite", "onnx"} & {*modules.split()}


def test_a_file_that_has_changed_is_not_read_again(file: Path) -> None:
    exe = compiler.compile(file, target="reference", cache="off")
    file.write_bytes(parsed(SUM.replace("1.0", "7.0")).SerializeToString())
    check_sum(exe, 3, 3)
    with pytest.raises(compiler.SizeError, match=r"--dim n=1.*sum.onnx has changed"):
        exe(numbers(1, 4), numbers(3, 4))
    file.unlink()
    with pytest.raises(compiler.SizeError, match=r"sum.onnx has changed"):
        exe(numbers(1, 4), numbers(3, 4))


def test_a_saved_program_holds_what_was_compiled(tmp_path: Path) -> None:
    exe = compiled(SUM, target="cpu")
    exe.save(tmp_path / "general")
    check_sum(exe, 1, 3)
    exe.save(tmp_path / "both")
    general, both = (compiler.load(tmp_path / name) for name in ("general", "both"))
    for loaded in (general, both):
        check_sum(loaded, 3, 3)
    check_sum(both, 1, 5)
    assert made(both) == [{"n": 1}] and not general.specializations
    for loaded, (n, m) in ((general, (1, 3)), (both, (3, 1))):
        with pytest.raises(compiler.SizeError, match=r"needs other code.*without its model"):
            loaded(numbers(n, 4), numbers(m, 4))
    both.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "both").read_bytes()
    sizes = [(tmp_path / name).stat().st_size for name in ("general", "both")]
    assert sizes[1] < 2 * sizes[0]


# ---------------------------------------------------------------------- beside other parts
def test_frequent_sizes_and_needed_ones() -> None:
    exe = compiled(SUM, specialize=compiler.Specialize(after=2, background=False))
    for n, m in ((3, 3), (1, 3), (3, 3), (1, 3), (3, 3), (1, 3)):
        check_sum(exe, n, m)
    assert made(exe) == [{"n": 1}, {"n": 3, "m": 3}, {"n": 1, "m": 3}]
    assert [s.calls for s in exe.specializations] == [2, 1, 1]


@pytest.mark.parametrize("command", [["run"], ["verify"], ["bench", "--rounds", "1"]],
                         ids=lambda c: c[0])
def test_commands(command: list[str], file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--input", "x=1x4xf32=random", "--input", "z=3x4xf32=random", "--threads", "1"]
    assert main([command[0], str(file), *command[1:], *given]) == 0
    said = capsys.readouterr().out
    assert {"run": "y  float32[3, 4]", "verify": "executions agree", "bench": "strata"}[
        command[0]] in said


def test_other_runs_take_the_interpreter_of_cuda() -> None:
    pytest.importorskip("triton")
    exe = compiled(SUM, target="cuda", interpret=True)
    for n, m in ((2, 2), (1, 3)):
        check_sum(exe, n, m)


def test_decisions_that_follow_each_other() -> None:
    n = Symbol.size("n")

    def broken(site: str, outcome: Outcome) -> ChoiceError:
        return ChoiceError("", "", site, outcome)

    single = Outcome("left", Expr.symbol(n), "==", Expr.of(1))
    other = Outcome("equal", Expr.symbol(n), "==", Expr.of(3))
    [fixed] = Decisions().after(broken("s", single), {n})
    assert fixed == Decisions((("n", 1),))
    [chosen] = Decisions().after(broken("s", single), set())
    assert chosen == Decisions((), (("s", ("left",)),))
    assert [d.outcomes[0][1] for d in chosen.after(broken("s", other), set())] == [
        ("equal", "left"), ("equal",)]
    assert Decisions.read([[["n", 1]], [["s", ["left"]]]]) == Decisions(
        (("n", 1),), (("s", ("left",)),))
