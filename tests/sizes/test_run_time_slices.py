"""Slices of axes of every size from 0 to 7, with bounds of every kind, on both targets.

A model has one slice for each step and each way to state it, so that few compilations cover them.
What is expected is computed in plain Python, by the rules of ONNX for bounds outside of an axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from dialects.strata.types import Array
from tests.frontend.onnx_models import make_model, run_reference, value_info

LOWEST, HIGHEST, FAR = -(2**63), 2**63 - 1, 2**31 - 1
STEPS = (1, 2, 3, 100, 2**20 + 1, 2**30, HIGHEST, -1, -2, -3, -100, -(2**25), -(2**31) + 1, LOWEST)
BOUNDS = (LOWEST, -(2**31), -100, -8, -7, -3, -2, -1, 0, 1, 2, 5, 7, 8, 100, 2**31, HIGHEST)


def places(size: int, start: int, end: int, step: int) -> range:
    """The entries that a slice takes from an axis."""
    start, end = (p + size if p < 0 else p for p in (start, end))
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first = min(max(start, 0), high)
    return range(first, min(max(end, low), high), step) if size else range(0)


def sliced(x: Array, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int],
           steps: Sequence[int]) -> Array:
    for bounds in zip(starts, ends, axes, steps, strict=True):
        start, end, axis, step = map(int, bounds)
        x = np.take(x, np.array(places(x.shape[axis], start, end, step), np.int64), axis)
    return x


def programs(model: onnx.ModelProto) -> list[compiler.Executable]:
    return [compiler.compile(model, target=target, cache="off", threads=1)
            for target in ("cpu", "reference")]


def check(model: onnx.ModelProto, cases: Sequence[Mapping[str, Array]],
          expected: Sequence[Sequence[Array]]) -> None:
    """Both targets compute what is expected, and so does onnxruntime in the last case."""
    for program in programs(model):
        for case, arrays in zip(cases, expected, strict=True):
            for got, want in zip(program(*case.values()), arrays, strict=True):
                np.testing.assert_array_equal(got, want, f"{dict(case)}")
    for got, want in zip(run_reference(model, cases[-1]), expected[-1], strict=True):
        np.testing.assert_array_equal(got, want)


def pairs(size: int, rng: np.random.Generator, count: int) -> list[tuple[int, int]]:
    """Starts and ends: every kind of bound, in a random order."""
    near = [*BOUNDS, size, -size - 1, size - 1]
    return [(near[a], near[b]) for a, b in rng.integers(0, len(near), (count, 2))]


def in_type(number: int, dtype: Any) -> int:
    limits = np.iinfo(dtype)
    return min(max(number, int(limits.min)), int(limits.max))


# ---------------------------------------------------------------------- bounds known to a run
def model_of_steps(dtype: Any, tail: Sequence[int], steps: Sequence[int],
                   stated: str) -> onnx.ModelProto:
    """Slices of the first axis; `stated`: the operands that are inputs, the others are constants.
    """
    nodes, constants = [], {"axes": np.array([0], dtype)}
    infos = [value_info("x", np.float32, ["n", *tail])]
    for name, value in (("start", -2), ("end", -(2**31))):
        if name in stated:
            infos.append(value_info(name, dtype, [1]))
        else:
            constants[name] = np.array([value], dtype)
    for k, step in enumerate(steps):
        names = f"step{k}", f"y{k}"
        nodes.append(helper.make_node("Slice", ["x", "start", "end", "axes", names[0]], [names[1]]))
        if "step" in stated:
            infos.append(value_info(names[0], dtype, [1]))
        else:
            constants[names[0]] = np.array([step], dtype)
    return make_model(nodes, infos, [f"y{k}" for k in range(len(steps))], constants, 13)


FIRST = [(np.int64, "start end"), (np.int32, "end"), (np.int64, "start end step")]
OTHERS = [(np.int32, "start end"), (np.int64, "end"), (np.int32, "start end step"),
          (np.int64, "start"), (np.int32, "start")]


@pytest.mark.parametrize(("dtype", "stated"), [
    *FIRST, *(pytest.param(*row, marks=pytest.mark.slow) for row in OTHERS)])
def test_one_axis(dtype: Any, stated: str):
    tail = [3] if dtype is np.int64 else []
    steps = [s for s in STEPS if in_type(s, dtype) == s]
    model, rng = model_of_steps(dtype, tail, steps, stated), np.random.default_rng(0)
    cases, expected = [], []
    for size in range(8):
        x = rng.standard_normal((size, *tail), np.float32)
        for start, end in pairs(size, rng, 12):
            start = in_type(start, dtype) if "start" in stated else -2
            end = in_type(end, dtype) if "end" in stated else -(2**31)
            given = {"start": [start], "end": [end]}
            given |= {f"step{k}": [s] for k, s in enumerate(steps)}
            cases.append({"x": x} | {name: np.array(v, dtype) for name, v in given.items()
                                     if name.rstrip("0123456789") in stated.split()})
            expected.append([sliced(x, [start], [end], [0], [s]) for s in steps])
    check(model, cases, expected)


def test_constants():
    """Bounds that are constants, of an axis whose size is open."""
    rng = np.random.default_rng(1)
    rows = [(start, end, step) for step in (1, 3, -1, -3, HIGHEST, LOWEST)
            for start, end in pairs(4, rng, 5)]
    nodes, constants = [], dict[str, Array]()
    for k, row in enumerate(rows):
        names = [f"{name}{k}" for name in ("start", "end", "step")]
        constants |= {name: np.array([v]) for name, v in zip(names, row, strict=True)}
        nodes.append(helper.make_node("Slice", ["x", *names[:2], "axes", names[2]], [f"y{k}"]))
    model = make_model(nodes, [value_info("x", np.float32, ["n"])],
                       [f"y{k}" for k in range(len(rows))],
                       constants | {"axes": np.array([0])}, 13)
    xs = [rng.standard_normal(size, np.float32) for size in range(8)]
    check(model, [{"x": x} for x in xs],
          [[sliced(x, [a], [b], [0], [s]) for a, b, s in rows] for x in xs])


@pytest.mark.parametrize("known", ["start", "end"])
def test_a_bound_that_is_a_constant_far_outside(known: str):
    """The other bound is an input. Two such slices in succession have the product of their steps.
    """
    far = (LOWEST, -FAR, HIGHEST - 1)
    rows = [(bound, step) for bound in far for step in (1, 2**20 + 1, FAR, HIGHEST)]
    rows += [(bound, -step) for bound, step in rows]
    nodes, constants = list[onnx.NodeProto](), {"axes": np.array([0])}
    for k, (bound, step) in enumerate(rows):
        constants |= {f"bound{k}": np.array([bound]), f"step{k}": np.array([step])}
        bounds = [f"bound{k}", "other"] if known == "start" else ["other", f"bound{k}"]
        for source, result in (("x", f"a{k}"), (f"a{k}", f"b{k}")):
            operands = [source, *bounds, "axes", f"step{k}"]
            nodes.append(helper.make_node("Slice", operands, [result]))
        nodes.append(helper.make_node("Add", [f"b{k}", f"b{k}"], [f"y{k}"]))
    infos = [value_info("x", np.float32, ["n"]), value_info("other", np.int64, [1])]
    model = make_model(nodes, infos, [f"y{k}" for k in range(len(rows))], constants, 13)
    both, rng = programs(model), np.random.default_rng(3)  # onnxruntime's bounds overflow
    for size, other in itertools.product((0, 1, 5), (LOWEST, -2, 0, 3, HIGHEST)):
        x = rng.standard_normal(size, np.float32)
        found = [program(x, np.array([other])) for program in both]
        for k, (bound, step) in enumerate(rows):
            start, end = (bound, other) if known == "start" else (other, bound)
            once = sliced(x, [start], [end], [0], [step])
            want = 2 * sliced(once, [start], [end], [0], [step])
            for got in found:
                np.testing.assert_array_equal(got[k], want, f"{size}, {start}:{end}:{step}")


# ---------------------------------------------------------------------- several axes
@pytest.mark.parametrize("steps", [(1, -1, 2), (-2, 3, -1), (-1, -2, -3)], ids=str)
@pytest.mark.parametrize("axes", ["constant", "input"])
def test_several_axes(axes: str, steps: tuple[int, ...]):
    rng = np.random.default_rng(2)
    infos = [value_info("x", np.float32, ["a", "b", "c"]), value_info("starts", np.int64, [3]),
             value_info("ends", np.int64, [3])]
    constants = {"steps": np.array(steps), "axes": np.array([1, -1, 0])}
    if axes == "input":
        infos.append(value_info("axes", np.int64, [3]))
    node = helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])
    model = make_model([node], infos, ["y"],
                       {k: v for k, v in constants.items() if k not in [i.name for i in infos]}, 13)
    cases, expected = [], []
    for _ in range(40):
        x = rng.standard_normal(rng.choice([0, 1, 2, 3, 5, 7], 3), np.float32)
        starts, ends = np.array(pairs(4, rng, 3), np.int64).T
        order = rng.permutation(3) - [0, 3, 0] if axes == "input" else constants["axes"]
        cases.append({"x": x, "starts": starts, "ends": ends} | (
            {"axes": order} if axes == "input" else {}))
        expected.append([sliced(x, starts, ends, order, steps)])
    check(model, cases, expected)


def test_a_step_of_0_is_an_error_of_the_run():
    model = model_of_steps(np.int64, [3], [1], "step")
    for program in programs(model):
        with pytest.raises(IndexError, match="Slice"):
            program(np.ones((4, 3), np.float32), np.array([0]))


# ---------------------------------------------------------------------- counts from data
COUNTED = """builtin.module {
  strata.func @main(%x: i64[n], %k: i64[]) -> (i64[_k]) inputs ["x", "k"] outputs ["y"] {
    strata.size _k = %k
    %y = graph.slice %x {starts = [n - 1], sizes = [_k], steps = [-STEP]} : i64[_k]
    strata.return %y
  }
}
"""


@pytest.mark.parametrize("step", [1, 3, 100])
def test_a_count_is_refused_if_and_only_if_it_leaves_the_axis(step: int, tmp_path: Path):
    path = tmp_path / "model.mlir"
    path.write_text(COUNTED.replace("STEP", str(step)))
    program = compiler.compile(path, cache="off", threads=1)
    for size, count in itertools.product((0, 1, 2, 5, 9, 201, 300), range(6)):
        x, places = np.arange(size), size - 1 - step * np.arange(count)
        if count and places[-1] < 0:
            with pytest.raises(ValueError, match="needs"):
                program(x, np.array(count))
        else:
            np.testing.assert_array_equal(program(x, np.array(count))[0], x[places])
