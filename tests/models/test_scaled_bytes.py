"""Products of quantized floats of a byte, as ONNX writes them: of bytes on CUDA, scaled behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.frontend import load_model
from dialects.block import KernelOp
from dialects.host.interpret import interpret_host
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.lowering import lower
from tests.models.onnx_graph import OnnxGraph

FLOAT8: Any = ml_dtypes.float8_e4m3fn
ROWS, DEPTH, COLUMNS = 20, 40, 24


class Model(OnnxGraph):
    """x, quantized with one scale, times weights of one scale for each column, plus a bias."""

    def dequantized_weight(self, product: str) -> str:
        shape = (COLUMNS, DEPTH) if product == "Gemm" else (DEPTH, COLUMNS)
        codes = self.constant(self.random.standard_normal(shape), FLOAT8)
        scales = self.constant(self.random.random(COLUMNS) + 0.5)
        zeros = self.constant(np.zeros(COLUMNS), FLOAT8)
        return self.node("DequantizeLinear", codes, scales, zeros, axis=shape.index(COLUMNS))

    def product(self, kind: str) -> onnx.ModelProto:
        x, scale = self.input("x", np.float32, (ROWS, DEPTH)), self.constant(0.01)
        zero = self.constant(0, FLOAT8)
        codes = self.node("QuantizeLinear", x, scale, zero)
        factors = self.node("DequantizeLinear", codes, scale, zero), self.dequantized_weight(kind)
        bias = self.constant(self.random.standard_normal(COLUMNS))
        if kind == "Gemm":
            y = self.node("Gemm", *factors, bias, transB=1)
        else:
            y = self.node("Add", self.node("MatMul", *factors), bias)
        result = helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, (ROWS, COLUMNS))
        graph = helper.make_graph(self.nodes, "scaled", self.inputs, [result], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize("kind", ["MatMul", "Gemm"])
def test_weights_stay_bytes(kind: str, tmp_path: Path) -> None:
    proto, path = Model({}).product(kind), tmp_path / "scaled.onnx"
    onnx.save(proto, path)
    imported = load_model(str(path))
    context = TARGET.bind(TargetOptions("sm_90")).context(imported.weights)
    for _ in lower(imported.module, context):
        pass
    kernels = [op for op in imported.module.body.block.ops if isinstance(op, KernelOp)]
    types = [str(b.type) for b in kernels[-1].buffers]
    assert len(kernels) == 2, "x is quantized; the rest is one kernel"
    assert sum("f8E4M3FN" in t for t in types) == 2, types
    x = np.random.default_rng(1).standard_normal((ROWS, DEPTH)).astype(np.float32)
    [found] = interpret_host(imported.module, [x], imported.weights)
    np.testing.assert_allclose(found, expected(proto, x), rtol=0, atol=1e-3)


def expected(proto: onnx.ModelProto, x: Any) -> Any:
    from onnx.reference import ReferenceEvaluator

    evaluator: Any = ReferenceEvaluator(proto)
    return evaluator.run(None, {"x": x})[0]
