"""Loops and branches inside of kernels: against NumPy in Triton's interpreter, and their code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.__main__ import main
from compiler.diagnostics import StrataError
from dialects.strata.types import Array

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
RANDOM = np.random.default_rng(5)


@dataclass(frozen=True)
class Program:
    """A text, its meaning in NumPy, inputs, and the kernels that have control flow."""

    text: str
    meaning: Callable[..., Sequence[Any]]
    inputs: Sequence[Sequence[Any]]
    kernels: Sequence[str]


def _roots(x: Array) -> Sequence[Any]:
    v, count = np.ones_like(x), 0
    while count < 50 and (abs(v * v - x) > 1e-3).any():
        v, count = np.float32(0.5) * (v + x / v), count + 1
    return v, count


ROOTS = Program("""
strata.func @main(%x: f32[3001]) -> (f32[3001], i64[]) inputs ["x"] outputs ["v", "count"] {
  %one = graph.constant {value = literal[1.0]} : f32[]
  %v = graph.broadcast %one {shape = [3001]} : f32[3001]
  %n = graph.constant {value = literal[0]} : i64[]
  FAR(%v)
  %r, %k = strata.loop @turn at step trip 50 while %far carried(%v, %n) with(%x) : f32[3001], i64[]
  strata.return %r, %k
}
strata.func @turn(%v: f32[3001], %n: i64[], %x: f32[3001]) -> (i1[], f32[3001], i64[]) sizes(step)
    inputs ["v", "n", "x"] outputs ["far", "r", "k"] {
  %h = graph.constant {value = literal[0.5]} : f32[]
  %q = graph.div %x, %v : f32[3001]
  %t = graph.add %v, %q : f32[3001]
  %r = graph.mul %h, %t : f32[3001]
  %k = graph.sizes {values = [step + 1], shape = [], to = i64} : i64[]
  FAR(%r)
  strata.return %far, %r, %k
}
""", _roots, [(RANDOM.uniform(1, 9, 3001).astype(np.float32),), (np.ones(3001, np.float32),),
              (np.full(3001, 16, np.float32),)], ["loop_0"])


def _chosen(x: Array, b: Array, given: Array) -> Sequence[Any]:
    if not given:
        return b, x
    return (x, b) if x.astype(np.float64).max() > 1 else (x * 2, ~b)


BRANCHES = Program("""
strata.func @main(%x: f64[5, 7], %b: i1[3], %given: i1[]) -> (f64[5, 7], i1[3])
    inputs ["x", "b", "given"] outputs ["y", "c"] {
  %y, %c = strata.if %given then @yes else @no (%x, %b) : f64[5, 7], i1[3]
  strata.return %y, %c
}
strata.func @no(%x: f64[5, 7], %b: i1[3]) -> (f64[5, 7], i1[3]) inputs ["x", "b"]
    outputs ["y", "c"] {
  strata.return %x, %b
}
strata.func @yes(%x: f64[5, 7], %b: i1[3]) -> (f64[5, 7], i1[3]) inputs ["x", "b"]
    outputs ["y", "c"] {
  %m = graph.reduce_max %x {axes = [0, 1], keepdims = false} : f64[]
  %e = graph.constant {value = literal[1.0]} : f64[]
  %large = graph.greater %m, %e : i1[]
  %y, %c = strata.if %large then @no else @twice (%x, %b) : f64[5, 7], i1[3]
  strata.return %y, %c
}
strata.func @twice(%x: f64[5, 7], %b: i1[3]) -> (f64[5, 7], i1[3]) inputs ["x", "b"]
    outputs ["y", "c"] {
  %y = graph.add %x, %x : f64[5, 7]
  %c = graph.not %b : i1[3]
  strata.return %y, %c
}
""", lambda x, b, given: _chosen(x, b, given)[:: 1 if given else -1],
    [(RANDOM.uniform(-1, high, (5, 7)), RANDOM.uniform(size=3) < 0.5, np.array(given))
     for high in (0.9, 30.0) for given in (True, False)], ["branch_1"])


def _nested(x: Array, n: Array) -> Sequence[Any]:
    while x.sum() < 100 and n < 1000:
        k = 0
        while k < 3 and abs(x).max() < 50:
            x, k = (x + abs(x) + 1).astype(x.dtype), k + 1
        x, n = (x + 1).astype(x.dtype), n + 7
    return x, n


NESTED = Program("""
strata.func @main(%x: f32[2, 3], %n: i8[]) -> (f32[2, 3], i8[]) inputs ["x", "n"]
    outputs ["y", "m"] {
  SMALL(%x)
  %y, %m = strata.loop @turn at step while %small carried(%x, %n) with() : f32[2, 3], i8[]
  strata.return %y, %m
}
strata.func @turn(%x: f32[2, 3], %n: i8[]) -> (i1[], f32[2, 3], i8[]) sizes(step)
    inputs ["x", "n"] outputs ["small", "y", "m"] {
  NEAR(%x)
  %r = strata.loop @inner at k trip 3 while %near carried(%x) with() : f32[2, 3]
  %one = graph.constant {value = literal[1.0]} : f32[]
  %y = graph.add %r, %one : f32[2, 3]
  %seven = graph.constant {value = literal[7]} : i8[]
  %m = graph.add %n, %seven : i8[]
  SMALL(%y)
  strata.return %small, %y, %m
}
strata.func @inner(%x: f32[2, 3]) -> (i1[], f32[2, 3]) sizes(k) inputs ["x"]
    outputs ["near", "y"] {
  %one = graph.constant {value = literal[1.0]} : f32[]
  %a = graph.abs %x : f32[2, 3]
  %b = graph.add %x, %a : f32[2, 3]
  %y = graph.add %b, %one : f32[2, 3]
  NEAR(%y)
  strata.return %near, %y
}
""", _nested, [(RANDOM.standard_normal((2, 3)).astype(np.float32), np.int8(0)),
               (np.full((2, 3), 17, np.float32), np.int8(3)),
               (np.full((2, 3), np.nan, np.float32), np.int8(3))], ["loop_1"])

def _lowered(path: Path, level: str) -> str:
    """The text of a program at a level of the CUDA target."""
    out = path.with_suffix(f".{level}")
    assert main(["lower", str(path), "--target", "cuda", "--features", "sm_90", "--to", level,
                 "-o", str(out)]) == 0
    return out.read_text()


PROGRAMS = {"roots": ROOTS, "branches": BRANCHES, "nested": NESTED}
each_program = pytest.mark.parametrize("name", PROGRAMS)


TESTS = {
    "FAR": """%s = graph.mul VALUE, VALUE : f32[3001]
  %d = graph.sub %s, %x : f32[3001]
  %a = graph.abs %d : f32[3001]
  %w = graph.reduce_max %a {axes = [0], keepdims = false} : f32[]
  %e = graph.constant {value = literal[0.001]} : f32[]
  %far = graph.greater %w, %e : i1[]""",
    "SMALL": """%s = graph.reduce_sum VALUE {axes = [0, 1], keepdims = false} : f32[]
  %limit = graph.constant {value = literal[100.0]} : f32[]
  %small = graph.less %s, %limit : i1[]""",
    "NEAR": """%size = graph.abs VALUE : f32[2, 3]
  %most = graph.reduce_max %size {axes = [0, 1], keepdims = false} : f32[]
  %e = graph.constant {value = literal[50.0]} : f32[]
  %near = graph.less %most, %e : i1[]"""}
"""What the texts compute of a value, by its short name."""


def _file(program: Program, folder: Path) -> Path:
    text = re.sub(r"([A-Z]+)\((%\w+)\)", lambda m: TESTS[m[1]].replace("VALUE", m[2]), program.text)
    path = folder / "program.mlir"
    path.write_text(f"builtin.module {{{text}}}")
    return path


@needs_triton
@each_program
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_numbers(name: str, target: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    executable = compiler.compile(_file(program, tmp_path), target=target,
                                  interpret=target == "cuda")
    for given in program.inputs:
        with np.errstate(all="ignore"):
            expected = program.meaning(*given)
        for found, own in zip(executable(*given), expected, strict=True):
            np.testing.assert_allclose(found, own, rtol=2e-6)


@needs_triton
@each_program
def test_control_flow_is_in_kernels(name: str, tmp_path: Path) -> None:
    """The host is left with launches. Whatever a part has stored, all threads see in the next."""
    program = PROGRAMS[name]
    lowered = _lowered(_file(program, tmp_path), "block")
    assert "strata.loop" not in lowered and "strata.if" not in lowered
    kernels = [k for k in lowered.split("block.kernel ")[1:] if " while (" in k]
    assert [k.partition("(")[0] for k in kernels] == [f"@{n}" for n in program.kernels]
    ptx = _lowered(_file(program, tmp_path), "ptx")
    assert ptx.count("bar.sync") >= sum(k.count("block.barrier") for k in kernels)


@each_program
def test_their_work_is_explained(name: str, tmp_path: Path) -> None:
    """That of one iteration, or of both branches."""
    program = PROGRAMS[name]
    path = str(_file(program, tmp_path))
    facts = tmp_path / "facts.json"
    assert main(["explain", path, "--target", "cuda", "--features", "sm_90", "--json",
                 str(facts)]) == 0
    found = {k["name"]: k for k in json.loads(facts.read_text())["kernels"]}
    for kernel in program.kernels:
        assert found[kernel]["launches"] == 1
        assert found[kernel]["bytes"] > 0 and found[kernel]["flops"] > 0


def test_large_loops_stay_with_the_host(tmp_path: Path) -> None:
    path = _file(ROOTS, tmp_path)
    path.write_text(path.read_text().replace("3001", "300001"))
    lowered = _lowered(path, "block")
    assert "strata.loop" in lowered and " while (" not in lowered


def test_other_targets_refuse_such_kernels(tmp_path: Path) -> None:
    lowered = _lowered(_file(BRANCHES, tmp_path), "block")
    path = tmp_path / "block.mlir"
    path.write_text(lowered)
    with pytest.raises(StrataError, match="a loop that data end"):
        compiler.compile(path, target="cpu")
