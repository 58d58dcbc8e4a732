"""`verify` finds lost digits and wrong small numbers, and grants what rounding explains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import compiler
from compiler.frontend import load_model
from compiler.instrument.explained import Explained, explain
from compiler.instrument.rounding import Rounding
from targets.reference.interpret import interpret
from tests.models.onnx_graph import Array, OnnxGraph


def explained(path: Path, x: Array) -> Explained | None:
    model = load_model(path)
    expected = interpret(model.module, model.weights, [x])
    return explain(Rounding(model.module, model.weights, [x], expected))


def mean_of_columns(folder: Path) -> tuple[Path, Array]:
    g = OnnxGraph({})
    mean = g.node("ReduceMean", g.input("x", np.float32, [20_000, 64]), axes=[0])
    onnx.save(g.model({"y": mean}), folder / "mean.onnx")
    return folder / "mean.onnx", np.random.default_rng(0).random((20_000, 64), np.float32)


def test_digits_lost_in_a_long_sum_are_found(tmp_path: Path) -> None:
    path, x = mean_of_columns(tmp_path)
    found = explained(path, x)
    assert found is not None
    in_one_register = np.add.accumulate(x, axis=0)[-1:] / np.float32(len(x))
    assert found.first_beyond([in_one_register]) == 0
    assert found.first_beyond([compiler.compile(path, target="cpu", cache="off")(x)[0]]) is None


def products(folder: Path) -> tuple[Path, Array]:
    """Columns of very different magnitudes."""
    g = OnnxGraph({})
    weight = g.constant(g.random.standard_normal((64, 48)) * 10.0 ** -np.arange(48.0).clip(0, 12))
    y = g.node("Tanh", g.node("MatMul", g.input("x", np.float32, ["n", 64]), weight))
    onnx.save(g.model({"y": y}), folder / "products.onnx")
    return folder / "products.onnx", np.random.default_rng(1).standard_normal(
        (200, 64)).astype(np.float32)


def test_a_small_number_may_not_be_wrong(tmp_path: Path) -> None:
    path, x = products(tmp_path)
    found = explained(path, x)
    assert found is not None
    [y] = compiler.compile(path, target="cpu", cache="off")(x)
    assert found.first_beyond([y]) is None
    wrong = y.copy()
    wrong[17, 8] *= np.float32(1.01)
    assert np.abs(wrong - y).max() < 1e-8 * np.abs(y).max()
    assert found.first_beyond([wrong]) == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_must_be_so_in_both(tmp_path: Path, value: float) -> None:
    path, x = products(tmp_path)
    found = explained(path, x)
    assert found is not None
    [y] = compiler.compile(path, target="cpu", cache="off")(x)
    y[3, 3] = value
    assert found.first_beyond([y]) == 0


def test_what_decides_by_floats_is_left_to_the_largest_magnitude(tmp_path: Path) -> None:
    g = OnnxGraph({})
    x = g.input("x", np.float32, ["n", 64])
    onnx.save(g.model({"y": g.node("Mul", x, g.node("Floor", x))}), tmp_path / "m.onnx")
    assert explained(tmp_path / "m.onnx", np.ones((3, 64), np.float32)) is None


@pytest.mark.parametrize("op, shapes, attributes", [
    ("MatMul", ([24, 64], [64, 64]), {}), ("Conv", ([1, 8, 9, 7], [4, 8, 3, 3]), {}),
    ("ReduceSum", ([5, 300],), {}), ("Add", ([40, 7], [7]), {}),
    ("Einsum", ([3, 65, 5], [5, 65]), {"equation": "abc,cb->a"})])
def test_sums_of_inputs_that_cancel(
    tmp_path: Path, op: str, shapes: tuple[list[int], ...], attributes: dict[str, str]
) -> None:
    """The terms of a sum round by more than a result near 0 does, though nothing comes before."""
    g = OnnxGraph({})
    y = g.node(op, *(g.input(f"x{k}", np.float32, s) for k, s in enumerate(shapes)), **attributes)
    onnx.save(g.model({"y": y}), tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx")
    for seed in range(5):
        random = np.random.default_rng(seed)
        inputs = [random.standard_normal(s).astype(np.float32) for s in shapes]
        expected = interpret(model.module, model.weights, inputs)
        found = explain(Rounding(model.module, model.weights, inputs, expected))
        assert found is not None and found.first_beyond(expected) is None
        [y] = compiler.compile(tmp_path / "model.onnx", cache="off")(*inputs)
        assert found.first_beyond([y]) is None
        wrong = y.copy()
        wrong.flat[-1] += np.float32(0.01) * np.abs(y).max()
        assert found.first_beyond([wrong]) == 0
