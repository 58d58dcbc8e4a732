"""Long sums on the CPU are as exact as sums of short sums, by levels of their schedules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import compiler
from compiler.pipeline.text import parse_module
from dialects.context import make_context
from dialects.loop import KernelOp
from dialects.strata.schedule import parse_schedule
from targets.cpu.scheduling.partial_sums import add_partial_levels
from tests.models.onnx_graph import Array, OnnxGraph

EPSILON = float(np.finfo(np.float32).eps)
LENGTHS = {
    "mean of columns": (20_011, 32), "mean of rows": (7, 20_011), "product": (5, 4_099),
    "convolution": (1, 300, 9, 9), "few rows": (1, 8_209),
}


def model(name: str, shape: tuple[int, ...], *, is_open: bool) -> onnx.ModelProto:
    g = OnnxGraph({})
    x = g.input("x", np.float32, [f"n{d}" for d in range(len(shape))] if is_open else shape)
    if name == "mean of columns":
        return g.model({"y": g.node("ReduceMean", x, axes=[0])})
    if name == "mean of rows":
        return g.model({"y": g.node("ReduceMean", x, axes=[1])})
    weight = g.constant(g.random.random((48, 300, 3, 3) if name == "convolution" else (
        shape[1], 40)))
    return g.model({"y": g.node("Conv" if name == "convolution" else "MatMul", x, weight)})


def exact(made: onnx.ModelProto, name: str, x: Array) -> Array:
    wide = x.astype(np.float64)
    if name.startswith("mean"):
        return wide.mean(int(name == "mean of rows"), keepdims=True)
    weight = onnx.numpy_helper.to_array(made.graph.initializer[0]).astype(np.float64)
    if name != "convolution":
        return wide @ weight
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("name", LENGTHS)
def test_long_sums_lose_few_digits(tmp_path: Path, name: str, is_open: bool) -> None:
    """Positive numbers: one register for 20,000 of them would be off by some 70 units."""
    shape = LENGTHS[name]
    made = model(name, shape, is_open=is_open and name != "convolution")
    onnx.save(made, tmp_path / "m.onnx")
    x = np.random.default_rng(1).random(shape, np.float32)
    [got] = compiler.compile(tmp_path / "m.onnx", target="cpu", threads=1, cache="off")(x)
    want = exact(made, name, x)
    assert got.shape == want.shape
    assert (np.abs(got - want) / np.abs(want)).max() < 12 * EPSILON


KERNEL = """
loop.kernel @k(%x: f32[{0}, 64], %w: f32[{0}, 32]) -> (f32[64, 32]) sizes({2}) {{
  %y = loop.nest (i0: 64, i1: 32, reduce i2: {0}) ins(%x[i2, i0], %w[i2, i1])
      outs(add f32[64, 32][i0, i1]) {1} {{
  ^bb0(%p: f32, %q: f32):
    %r = arith.mulf %p, %q : f32
    loop.yield %r
  }}
  loop.yield %y
}}
"""


@pytest.mark.parametrize(("size", "parts", "expected"), [
    (96, "", "loop i2 tile 1"),
    (192, "", "loop i2 tile 64 partial, loop i2 tile 1"),
    (1000, "", "loop i2 tile 50 partial, loop i2 tile 1"),
    (1009, "", "loop i2 tile 64 partial, loop i2 tile 1"),
    (1 << 15, "", "loop i2 tile 4096 partial, loop i2 tile 64 partial, loop i2 tile 1"),
    (256, "parts 32", "loop i2 tile 32 partial, loop i2 tile 1"),
    ("n", "", "loop i2 tile 64 partial, loop i2 tile 1"),
])
def test_levels(size: int | str, parts: str, expected: str) -> None:
    text = KERNEL.format(size, parts, "n" if size == "n" else "")
    module = parse_module(text, make_context(), Path("k.mlir"))
    [kernel] = [op for op in module.walk() if isinstance(op, KernelOp)]
    schedule = parse_schedule("<grid i0 tile 8, grid i1 tile 32 lanes, loop i2 tile 1>")
    found = add_partial_levels(kernel, schedule)
    assert str(found) == f"<grid i0 tile 8, grid i1 tile 32 lanes, {expected}>"
