"""`--precision bf16` on the CPU: factors rounded once, sums in f32, and the error told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from ml_dtypes import bfloat16
from onnx import TensorProto, helper
from xdsl.parser import Parser

import compiler
from compiler.__main__ import main
from dialects.graph import CastOp, ConstantOp, MatmulOp, TransposeOp
from dialects.strata.types import Array, bf16
from passes.graph.narrow_products import GraphNarrowProducts
from targets.base import TargetOptions, find_target
from targets.cpu import stated
from targets.cpu.machine import AVX512, machine_of
from tests.models.onnx_graph import OnnxGraph
from tests.targets.cpu.matrix_registers import with_matrices

pytestmark = pytest.mark.skipif(not machine_of().multiplies_groups(bf16),
                                reason="this processor does not multiply bf16")


def save(folder: Path) -> Path:
    """A strided convolution with a bias, a depthwise one, and products with and without weights."""
    g = OnnxGraph({})
    x = g.input("x", np.float32, ["n", 40, 9, 7])
    y = g.node("Conv", x, g.random_weight(33, 40, 3, 3), g.random_weight(33), pads=[1, 1, 1, 1])
    z = g.node("Conv", x, g.random_weight(40, 1, 3, 3), group=40)
    a = g.input("a", np.float32, ["n", 13, 31])
    p = g.node("MatMul", a, g.random_weight(31, 40))
    q = g.node("MatMul", a, g.node("Transpose", a, perm=[0, 2, 1]))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
               for name in (y, z, p, q)]
    graph = helper.make_graph(g.nodes, "narrow", g.inputs, outputs, g.weights)
    path = folder / "narrow.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=8), path)
    return path


def inputs() -> Mapping[str, Array]:
    random = np.random.default_rng(3)
    return {"x": random.standard_normal((2, 40, 9, 7)).astype(np.float32),
            "a": random.standard_normal((2, 13, 31)).astype(np.float32)}


def test_factors_are_rounded_and_sums_are_not(tmp_path: Path) -> None:
    path, arrays = save(tmp_path), inputs()
    exe = compiler.compile(path, precision="bf16", cache="off")
    exact = compiler.compile(path, cache="off")(**arrays)
    narrow = exe(**arrays)
    a = arrays["a"].astype(bfloat16).astype(np.float64)
    np.testing.assert_allclose(narrow[3], a @ a.transpose(0, 2, 1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(narrow[1], exact[1])  # depthwise: as it was
    for y, wanted in zip(narrow, exact, strict=True):
        assert np.abs(y - wanted).max() < 1e-2 * np.abs(wanted).max()
    assert "dpbf16ps" in exe.text("llvm")


def test_a_transposed_weight_is_rounded_as_it_lies() -> None:
    """An embedding that gives the scores of words, too, is not transposed by folding. So what is
    rounded must be the constant: nothing is then rounded in a call."""
    context = find_target("cpu").bind(TargetOptions(precision="bf16")).context()
    module = Parser(context, """
    strata.func @main(%x: f32[5, 64]) -> (f32[5, 60]) inputs ["x"] outputs ["y"] {
      %r = graph.constant {value = literal[0.5]} : f32[60, 64]
      %t = graph.transpose %r {perm = [1, 0]} : f32[64, 60]
      %y = graph.matmul %x, %t : f32[5, 60]
      strata.return %y
    }""").parse_module()
    GraphNarrowProducts().apply(context, module)
    [matmul] = [op for op in module.walk() if isinstance(op, MatmulOp) and op.to is not None]
    turned = matmul.b.owner
    assert isinstance(turned, TransposeOp)
    cast = turned.operands[0].owner
    assert isinstance(cast, CastOp) and isinstance(cast.operands[0].owner, ConstantOp)


def test_sums_over_few_channels_stay(tmp_path: Path) -> None:
    """As a picture's three: groups of these would be mostly empty."""
    g = OnnxGraph({})
    y = g.node("Conv", g.input("x", np.float32, [1, 3, 9, 7]), g.random_weight(33, 3, 3, 3))
    output = helper.make_tensor_value_info(y, TensorProto.FLOAT, None)
    graph = helper.make_graph(g.nodes, "few", g.inputs, [output], g.weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=8), tmp_path / "few.onnx")
    exe = compiler.compile(tmp_path / "few.onnx", precision="bf16", cache="off")
    assert "bf16" not in exe.text("graph")


def test_fast_rounds_only_where_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = replace(machine_of(), features=AVX512 | {"avx512bf16"}, cpu="sapphirerapids")
    for machine, factors in ((vectors, None), (with_matrices(vectors), bf16),
                             (replace(vectors, cpu="znver4"), bf16)):
        monkeypatch.setattr(stated, "machine_of", lambda *_, machine=machine: machine)
        cpu = find_target("cpu")
        assert cpu.bind(TargetOptions(precision="fast")).facts.narrow_factors == factors
        assert cpu.bind(TargetOptions(precision="bf16")).facts.narrow_factors == bf16
        assert cpu.bind(TargetOptions()).facts.narrow_factors is None


def test_verify_tells_the_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path)
    assert main(["verify", str(path), "--dim", "n=2", "--precision", "bf16", "--levels-only"]) == 0
    [line] = [x for x in capsys.readouterr().out.splitlines() if "rounds" in x]
    assert line.split()[0] == "graph-narrow-products"
    assert 1e-4 < float(line.split()[3]) < 2e-2
