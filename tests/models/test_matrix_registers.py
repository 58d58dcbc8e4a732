"""Whole models whose products lie in matrix registers (AMX), by the processor or by NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import compiler
from dialects.strata.types import Array
from targets.cpu import stated, target
from targets.cpu.build.jit import compile_texts
from targets.cpu.machine import machine_of
from tests.models.onnx_graph import OnnxGraph
from tests.targets.cpu.matrix_registers import Registers, has_matrices, with_matrices

pytestmark = pytest.mark.skipif(machine_of().vector_bytes < 64,
                                reason="this processor has no AVX-512")


@pytest.fixture(name="registers")
def _registers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registers]:
    """A machine with matrix registers, of NumPy where it has none."""
    registers = Registers()
    if not has_matrices():
        machine = with_matrices(machine_of())
        for module in (stated, target):
            monkeypatch.setattr(module, "machine_of", lambda *_: machine)
        monkeypatch.setattr(target, "compile_texts", lambda texts, _, cache, report: compile_texts(
            [registers.redirected(text) for text in texts], machine_of(), cache, report))
    yield registers
    registers.check()


def save(folder: Path, graph: OnnxGraph, *outputs: str) -> Path:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    made = helper.make_graph(graph.nodes, "matrices", graph.inputs, values, graph.weights)
    path = folder / "model.onnx"
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=8), path)
    return path


def randoms(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def check(path: Path, arrays: Mapping[str, Array], *, checked: bool | None = None) -> str:
    """Compare with f32; the code. `checked`: with checked accesses."""
    executable = compiler.compile(path, precision="bf16", cache="off", threads=1, check=checked)
    exact = compiler.compile(path, cache="off", features="avx2")(**arrays)
    for found, wanted in zip(executable(**arrays), exact, strict=True):
        assert np.abs(found - wanted).max() < 1e-2 * max(1, np.abs(wanted).max())
    return executable.text("llvm")


@pytest.mark.parametrize("rows", [7, 33, 100])
@pytest.mark.parametrize(("columns", "depth"), [(70, 50), (16, 32), (48, 130)])
def test_products_of_rows(
    registers: Registers, tmp_path: Path, rows: int, columns: int, depth: int
) -> None:
    """A weight, a bias and an activation; the same rows once more without those."""
    g = OnnxGraph({})
    x = g.input("x", np.float32, [rows, depth])
    y = g.node("Relu", g.node("Add", g.node("MatMul", x, g.random_weight(depth, columns)),
                              g.random_weight(columns)))
    z = g.node("MatMul", x, g.random_weight(depth, columns))
    assert "tdpbf16ps" in check(save(tmp_path, g, y, z), {"x": randoms(rows, depth)})


@pytest.mark.parametrize("rows", ["n", 33])
def test_checked_accesses(registers: Registers, tmp_path: Path, rows: int | str) -> None:
    """Sums go to memory row by row, without masks, also where all accesses are checked."""
    g = OnnxGraph({})
    x = g.input("x", np.float32, [rows, 50])
    y = g.node("Relu", g.node("MatMul", x, g.random_weight(50, 70)))
    assert "tdpbf16ps" in check(save(tmp_path, g, y), {"x": randoms(33, 50)}, checked=True)


@pytest.mark.parametrize("rows", [1, 4, 31, 32, 65])
def test_rows_known_when_run(registers: Registers, tmp_path: Path, rows: int) -> None:
    g = OnnxGraph({})
    x = g.input("x", np.float32, ["n", 64])
    y = g.node("MatMul", x, g.random_weight(64, 40))
    assert "tdpbf16ps" in check(save(tmp_path, g, y), {"x": randoms(rows, 64)})


@pytest.mark.parametrize("size", [7, 14, 20])
def test_convolutions(registers: Registers, tmp_path: Path, size: int) -> None:
    """Windows over channels that lie last: a row of pixels, or two short ones, are the rows."""
    g = OnnxGraph({})
    x = g.input("x", np.float32, [2, 40, size, size])
    y = g.node("Conv", x, g.random_weight(33, 40, 3, 3), g.random_weight(33), pads=[1, 1, 1, 1])
    z = g.node("Conv", x, g.random_weight(64, 40, 1, 1), strides=[2, 2])
    assert "tdpbf16ps" in check(save(tmp_path, g, y, z), {"x": randoms(2, 40, size, size)})


def test_attention(registers: Registers, tmp_path: Path) -> None:
    """Stacks of products, of which neither factor is a weight."""
    g = OnnxGraph({})
    a = g.input("a", np.float32, [2, 3, 40, 64])
    b = g.input("b", np.float32, [2, 3, 64, 50])
    y = g.node("MatMul", a, b)
    arrays = {"a": randoms(2, 3, 40, 64), "b": randoms(2, 3, 64, 50)}
    assert "tdpbf16ps" in check(save(tmp_path, g, y), arrays)


def test_attention_stays_apart(registers: Registers, tmp_path: Path) -> None:
    """A kernel that holds a block of rows would compute its products in vectors."""
    g = OnnxGraph({})
    q, k = g.input("q", np.float32, [1, 2, 40, 64]), g.input("k", np.float32, [1, 2, 64, 48])
    v = g.input("v", np.float32, [1, 2, 48, 64])
    scores = g.node("Mul", g.node("MatMul", q, k), g.constant(0.125))
    y = g.node("MatMul", g.node("Softmax", scores, axis=-1), v)
    path = save(tmp_path, g, y)
    arrays = {"q": randoms(1, 2, 40, 64), "k": randoms(1, 2, 64, 48), "v": randoms(1, 2, 48, 64)}
    assert "tdpbf16ps" in check(path, arrays)
    joined = {p: "@rows_" in compiler.compile(path, precision=p, cache="off").text("loop")
              for p in ("f32", "bf16")}
    assert joined == {"f32": True, "bf16": False}


@pytest.mark.parametrize(("rows", "depth"), [(40, 64), (9, 100), (33, 67)])
def test_bytes(registers: Registers, tmp_path: Path, rows: int, depth: int) -> None:
    """Exact, whatever the zero points."""
    g = OnnxGraph({})
    x = g.input("x", np.uint8, [rows, depth])
    random = np.random.default_rng(1)
    w = g.constant(random.integers(-128, 128, (depth, 37)), np.int8)
    y = g.node("MatMulInteger", x, w, g.constant(3, np.uint8))
    made = helper.make_graph(g.nodes, "bytes", g.inputs, [
        helper.make_tensor_value_info(y, TensorProto.INT32, None)], g.weights)
    path = tmp_path / "bytes.onnx"
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=8), path)
    executable = compiler.compile(path, cache="off", threads=1)
    values: Any = random.integers(0, 256, (rows, depth)).astype(np.uint8)
    weights = onnx.numpy_helper.to_array(g.weights[0]).astype(np.int64)
    [found] = executable(x=values)
    np.testing.assert_array_equal(found, (values.astype(np.int64) - 3) @ weights)
    assert "tdpbusd" in executable.text("llvm")
