"""Loops whose trip count is known are a part of the program's graph: one replay, without a wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.frontend import ImportedModel, ImportOptions
from compiler.frontend.onnx.importer import import_bytes
from compiler.frontend.stablehlo.importer import import_text
from dialects.strata.types import Array
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.compile import CompileOptions
from targets.cuda.planning.program import load_module
from tests.lowering import lower
from tests.targets.cuda.fakes.fake_driver import FakeDriver

STEPS, WIDTH = 5, 4
RNG = np.random.default_rng(5)
X: Any = RNG.uniform(-1, 1, (STEPS, 2, WIDTH)).astype(np.float32)
H: Any = RNG.uniform(-1, 1, (2, WIDTH)).astype(np.float32)
W: Any = RNG.uniform(-1, 1, (WIDTH, WIDTH)).astype(np.float32)


def cells(order: range) -> tuple[Any, Any]:
    """The last state, and that after each step, of h = tanh(h W + x)."""
    state, kept = H, np.zeros_like(X)
    for k in order:
        state = np.tanh(state @ W + X[k])
        kept[k] = state
    return state, kept


def jax_scan(first: str, last: str, going: str, change: str) -> ImportedModel:
    """`jax.lax.scan` as JAX lowers it: a counter, and rows that are updated in place."""
    return import_text(f"""
module @jit_scan {{
  func.func public @main(%x: tensor<5x2x4xf32>, %h: tensor<2x4xf32>, %w: tensor<4x4xf32>)
      -> (tensor<2x4xf32>, tensor<5x2x4xf32>) {{
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %rows = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<5x2x4xf32>
    %first = stablehlo.constant dense<{first}> : tensor<i32>
    %0:4 = stablehlo.while(%k = %first, %x1 = %x, %h1 = %h, %y1 = %rows) : tensor<i32>, tensor<5x2x4xf32>, tensor<2x4xf32>, tensor<5x2x4xf32>
    cond {{
      %last = stablehlo.constant dense<{last}> : tensor<i32>
      %go = stablehlo.compare {going}, %k, %last, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    }} do {{
      %zero1 = stablehlo.constant dense<0> : tensor<i32>
      %five = stablehlo.constant dense<5> : tensor<i32>
      %below = stablehlo.compare LT, %k, %zero1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %more = stablehlo.add %k, %five : tensor<i32>
      %at = stablehlo.select %below, %more, %k : tensor<i1>, tensor<i32>
      %row = stablehlo.dynamic_slice %x1, %at, %zero1, %zero1, sizes = [1, 2, 4] : (tensor<5x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x4xf32>
      %flat = stablehlo.reshape %row : (tensor<1x2x4xf32>) -> tensor<2x4xf32>
      %own = stablehlo.dot_general %h1, %w, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
      %sum = stablehlo.add %own, %flat : tensor<2x4xf32>
      %new = stablehlo.tanh %sum : tensor<2x4xf32>
      %entry = stablehlo.reshape %new : (tensor<2x4xf32>) -> tensor<1x2x4xf32>
      %y2 = stablehlo.dynamic_update_slice %y1, %entry, %at, %zero1, %zero1 : (tensor<5x2x4xf32>, tensor<1x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<5x2x4xf32>
      %one = stablehlo.constant dense<{change}> : tensor<i32>
      %next = stablehlo.add %k, %one : tensor<i32>
      stablehlo.return %next, %x1, %new, %y2 : tensor<i32>, tensor<5x2x4xf32>, tensor<2x4xf32>, tensor<5x2x4xf32>
    }}
    return %0#2, %0#3 : tensor<2x4xf32>, tensor<5x2x4xf32>
  }}
}}""", "scan", "scan.mlir", ImportOptions())  # noqa: E501


def onnx_model(nodes: Any, *initial: Any) -> ImportedModel:
    shapes = {"x": X.shape, "h": H.shape, "w": W.shape}
    graph = helper.make_graph(
        nodes, "loops", [helper.make_tensor_value_info(k, TensorProto.FLOAT, v)
                         for k, v in shapes.items()],
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, v)
                         for k, v in (("last", H.shape), ("all", X.shape))],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in initial])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return import_bytes("loops.onnx", model.SerializeToString(), ImportOptions())


def body(*names: str) -> Any:
    """h = tanh(h W + row)"""
    value, nodes = helper.make_tensor_value_info, [
        helper.make_node("MatMul", ["h0", "w"], ["p"]),
        helper.make_node("Add", ["p", "row"], ["s"]),
        helper.make_node("Tanh", ["s"], ["h1"]), helper.make_node("Identity", ["h1"], ["y1"])]
    inputs = [value("h0", TensorProto.FLOAT, H.shape)]
    outputs = [value(k, TensorProto.FLOAT, H.shape) for k in ("h1", "y1")]
    if names:
        nodes += [helper.make_node("Gather", ["x", "k"], ["row"], axis=0),
                  helper.make_node("Identity", ["c0"], ["c1"])]
        nodes = [*nodes[-2:], *nodes[:-2]]
        inputs = [value("k", TensorProto.INT64, []), value("c0", TensorProto.BOOL, []), *inputs]
        outputs = [value("c1", TensorProto.BOOL, []), *outputs]
    else:
        inputs.append(value("row", TensorProto.FLOAT, H.shape))
    return helper.make_graph(nodes, "body", inputs, outputs)


def onnx_scan() -> ImportedModel:
    return onnx_model([helper.make_node("Scan", ["h", "x"], ["last", "all"], body=body(),
                                        num_scan_inputs=1)])


def onnx_loop() -> ImportedModel:
    return onnx_model(
        [helper.make_node("Loop", ["trips", "on", "h"], ["last", "all"], body=body("k", "c"))],
        ("trips", np.int64(STEPS)), ("on", np.bool_(True)))


LOOPS: dict[str, tuple[Any, range]] = {
    "JAX's scan": (lambda: jax_scan("0", "5", "LT", "1"), range(STEPS)),
    "JAX's fori_loop from 1": (lambda: jax_scan("1", "5", "LT", "1"), range(1, STEPS)),
    "ONNX's Scan": (onnx_scan, range(STEPS)),
    "ONNX's Loop": (onnx_loop, range(STEPS)),
}


@pytest.mark.parametrize("name", LOOPS)
def test_one_replay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait for the device, no copy of rows that were written before, and no loop on the host."""
    make, order = LOOPS[name]
    imported: ImportedModel = make()
    context = TARGET.bind(TargetOptions()).context(imported.weights)
    for _ in lower(imported.module, context):
        pass
    text = str(imported.module)
    assert "strata.loop" not in text
    device = FakeDriver.of(imported.module)
    device.install(monkeypatch)
    device.install_compiler(monkeypatch)
    executable = load_module(imported.module, context.weights, CompileOptions())
    for _ in range(2):
        device.log.clear()
        results: list[Array] = list(executable.run([X, H, W]))
        for found, wanted in zip(results, cells(order), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        assert device.log.count("replay") == 1
        assert len([line for line in device.log if line.startswith("download")]) == len(results)
    assert text.count("host.launch") <= 2 * STEPS + 1
