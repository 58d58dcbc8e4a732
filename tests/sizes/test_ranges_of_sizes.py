"""Kernels of open sizes have schedules for ranges of sizes: at any size, one is launched."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import compiler
from compiler.frontend import MemoryModel
from dialects.host import LaunchOp, host_functions
from dialects.host.interpret import interpret_host
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from tests.counts.count import SM_90, Subject, lowered
from tests.models.onnx_graph import OnnxGraph

N = Symbol.size("n")
EDGES = (0, 1, 16, 17, 95, 96, 383, 384, 385, 1535, 1536, 4095, 4096, 70000)


def _halves(x: list[int | str], w: list[int | str]) -> Subject:
    g = OnnxGraph({})
    y = g.node("MatMul", g.input("x", np.float16, x), g.input("w", np.float16, w))
    return Subject("product", g.model({"y": g.node("Cast", y, to=1)}))


@pytest.mark.parametrize(("x", "w"), [
    (["n", 256], [256, 512]), ([300, 256], [256, "n"]), (["n", 64, 128], ["n", 128, 64]),
], ids=["rows", "columns", "matrices"])
def test_one_launch_happens_at_each_size(x: list[int | str], w: list[int | str]) -> None:
    module = lowered(_halves(x, w), SM_90)[1].module
    launches = [op for f in host_functions(module) for op in f.walk() if isinstance(op, LaunchOp)]
    assert any(op.when is not None for op in launches)
    written = {op.buffers[-1] for op in launches}
    for n in EDGES:
        happen = Counter(op.buffers[-1] for op in launches if op.happens({N: n}))
        assert happen == dict.fromkeys(written, 1), n


@pytest.mark.parametrize("n", [0, 1, 383, 384])
def test_each_range_computes_the_product(n: int) -> None:
    module = lowered(_halves(["n", 64], [64, 48]), SM_90)[1].module
    rng = np.random.default_rng(n)
    x, w = (rng.standard_normal(s).astype(np.float16) for s in ((n, 64), (64, 48)))
    [y] = interpret_host(module, [x, w], WeightStore())
    np.testing.assert_allclose(y, (x.astype(np.float64) @ w), rtol=2e-3, atol=2e-2)


TEXT = """\
builtin.module {
  host.func @main(%x: f32[n], %y: f32[n]) inputs ["x"] outputs ["y"] sizes(n) arena(0) {
    host.launch @plus(%x, %y) sizes(n) when min(1, n floordiv 8)
    host.launch @minus(%x, %y) sizes(n) when -min(1, n floordiv 8) + 1
    host.return
  }
"""
KERNEL = """\
  loop.kernel @{name}(%x: f32[n]) -> (f32[n]) sizes(n) schedule<grid i0 tile 4> {{
    %y = loop.nest (i0: n) ins(%x[i0]) outs(f32[n][i0]) {{
    ^bb0(%p: f32):
      %q = arith.{op} %p, %p : f32
      loop.yield %q
    }}
    loop.yield %y
  }}
"""


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_launch_happens_at_its_sizes_only(target: str) -> None:
    """The two kernels differ here, to show which of them was launched."""
    kernels = KERNEL.format(name="plus", op="addf") + KERNEL.format(name="minus", op="subf")
    model = MemoryModel("chosen.mlir", (TEXT + kernels + "}\n").encode())
    executable = compiler.compile(model, target=target, cache="off", threads=1)
    for n in (0, 1, 7, 8, 20):
        x = np.arange(1, n + 1, dtype=np.float32)
        np.testing.assert_array_equal(executable(x)[0], 2 * x if n >= 8 else 0 * x)
