"""Products of one or two rows read weights as integer codes, with scales of rows or of blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import compiler
from compiler.frontend import model_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text
from dialects.strata.types import Array

COLUMNS, DEPTH, BLOCK = 513, 1056, 32
"""The weights have more bytes as floats than what is folded in any case."""


def model(path: Path, rows: int | str, parts: str) -> tuple[Path, Array]:
    """x @ ((codes - 8) * scales) with scales of `parts`: rows, blocks, or blocks of codes of four
    bits; and the weights."""
    source = np.random.default_rng(0)
    one = {"rows": DEPTH, "blocks": BLOCK, "four bits": BLOCK}[parts]
    count = DEPTH // one
    codes = source.integers(0, 16 if parts == "four bits" else 256, (COLUMNS, count, one))
    scales = source.random((COLUMNS, count, 1)).astype(np.float32) / 64
    weights = ((codes - 8) * scales).reshape(COLUMNS, DEPTH)
    constants: dict[str, Any] = {"s": scales}
    if parts == "four bits":
        constants["w"] = (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8)
        constants["s"] = scales.reshape(-1)
        nodes = [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft",
                                  K=DEPTH, N=COLUMNS, bits=4, block_size=BLOCK)]
    else:
        constants |= {"w": codes.astype(np.uint8), "z": np.float32(8),
                      "shape": np.array([COLUMNS, DEPTH])}
        nodes = [helper.make_node("Cast", ["w"], ["c"], to=onnx.TensorProto.FLOAT),
                 helper.make_node("Sub", ["c", "z"], ["d"]),
                 helper.make_node("Mul", ["d", "s"], ["e"]),
                 helper.make_node("Reshape", ["e", "shape"], ["f"]),
                 helper.make_node("Transpose", ["f"], ["t"], perm=[1, 0]),
                 helper.make_node("MatMul", ["x", "t"], ["y"])]
    graph = helper.make_graph(
        nodes, "codes", [helper.make_tensor_value_info("x", 1, [rows, DEPTH])],
        [helper.make_tensor_value_info("y", 1, [rows, COLUMNS])],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()])
    proto = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    path.write_bytes(proto.SerializeToString())
    return path, weights


@pytest.mark.parametrize("parts", ["rows", "blocks", "four bits"])
@pytest.mark.parametrize(("rows", "stay"), [(1, True), (2, True), (3, False), ("n", False)])
def test_few_rows_read_codes(tmp_path: Path, parts: str, rows: int | str, stay: bool) -> None:
    path, weights = model(tmp_path / "codes.onnx", rows, parts)
    text = lower_to_text(
        Compiler(model_of(str(path)), CompileOptions(target="cpu", cache="off")), "host")
    assert ("ui8[" in text) == stay
    exe = compiler.compile(str(path), target="cpu", cache="off")
    count = rows if isinstance(rows, int) else 5
    x = np.random.default_rng(1).standard_normal((count, DEPTH)).astype(np.float32)
    [made] = exe.run([x])
    np.testing.assert_allclose(made, x.astype(float) @ weights.T, atol=1e-3)
    assert made.shape[1] == COLUMNS
