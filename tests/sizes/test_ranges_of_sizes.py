"""Kernels of open sizes have schedules for ranges of sizes: at any size, one is launched."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import compiler
from compiler.frontend import MemoryModel
from dialects.host import LaunchOp, host_functions
from dialects.host.interpret import interpret_host
from dialects.strata.types import ExprAttr
from dialects.symbolic.expr import Expr
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


def _single() -> Subject:
    g = OnnxGraph({})
    y = g.node("MatMul", g.input("x", np.float32, ["n", 48]), g.random_weight(48, 24))
    return Subject("single", g.model({"y": g.node("Relu", y)}))


def _convolved(kind: type[np.generic]) -> Subject:
    """Channels of which tiles are no divisors."""
    g = OnnxGraph({})
    x = g.input("x", kind, ["n", 5, 9, 11])
    w = g.constant(g.random.standard_normal((40, 5, 3, 3)) * 0.1, kind)
    y = g.node("Relu", g.node("Conv", x, w, pads=[1] * 4, strides=[2, 1]))
    return Subject("convolved", g.model({"y": g.node("Cast", y, to=1)}))


MODELS = {
    "halves": (_halves(["n", 64], [64, 48]), [(64,), (64, 48)]), "single": (_single(), [(48,)]),
    "convolved": (_convolved(np.float16), [(5, 9, 11)]),
    "convolved single": (_convolved(np.float32), [(5, 9, 11)])}


@pytest.mark.parametrize("name", MODELS)
def test_each_schedule_computes_the_same_at_any_size(name: str) -> None:
    """Not only at the sizes for which it is meant."""
    subject, shapes = MODELS[name]
    _, state, _ = lowered(subject, SM_90)
    want = compiler.compile(subject.model, target="reference", cache="off")
    kinds = [t.dtype for t in want.signature.input_types]
    chosen = [op for f in host_functions(state.module) for op in f.walk()
              if isinstance(op, LaunchOp) and op.when is not None]
    assert len(chosen) > 1
    for only in chosen:
        for op in chosen:
            op.properties["when"] = ExprAttr(Expr.of(op is only))
        for n in (0, 1, 37):
            rng = np.random.default_rng(n)
            inputs = [rng.standard_normal((n, *shape) if k == 0 else shape).astype(kind)
                      for k, (shape, kind) in enumerate(zip(shapes, kinds, strict=True))]
            [y] = interpret_host(state.module, inputs, state.context.weights)
            np.testing.assert_allclose(y, want(*inputs)[0], rtol=2e-3, atol=2e-2)


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
