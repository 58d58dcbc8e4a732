"""Offsets of 2^31 elements and more on the CPU, in memory of which a few pages are touched.

A model reads the last rows of a large matrix, and must compute what it does for these rows alone.
The matrix is a file of holes, which takes no room.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper

import compiler
from compiler.frontend import MemoryModel
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.base import TargetOptions
from targets.cpu import TARGET
from tests.frontend.onnx_models import make_model, value_info
from tests.targets.cpu.cpu_kernels import each_machine, parse_module

ROWS, COLUMNS, LAST = 2**19 + 9, 4096, 7
"""The first elements of the last rows are just before and just after the element 2^31."""
END = np.array([2**63 - 1])
CONSTANTS = {"start": np.array([-LAST]), "end": END, "axis": np.array([0]),
             "k": np.array([3]), "image": np.array([1, LAST, 64, 64]),
             "filter": np.full((1, LAST, 3, 3), 0.5, np.float32)}


def node(op: str, inputs: str, output: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


FAMILIES: dict[str, list[NodeProto]] = {
    "elementwise": [node("Mul", "s s")],
    "transpose": [node("Transpose", "s", perm=[1, 0])],
    "concat": [node("Concat", "s s", axis=0)],
    "reduce": [node("ReduceMax", "s", axes=[1], keepdims=0)],
    "gather": [node("Gather", "x rows")],
    "elements": [node("GatherElements", "x places", axis=0)],
    "sort": [helper.make_node("TopK", ["s", "k"], ["y", "z"])],
    "product": [node("Transpose", "s", "t", perm=[1, 0]), node("MatMul", "s t")],
    "softmax": [node("Softmax", "s")],
    "attention": [node("Transpose", "s", "t", perm=[1, 0]), node("MatMul", "s t", "u"),
                  node("Softmax", "u", "v"), node("MatMul", "v s")],
    "convolution": [node("Reshape", "s image", "q"), node("Conv", "q filter")],
}
ON_BYTES = ("elementwise", "transpose", "concat", "reduce", "gather", "elements", "sort")


def holes(folder: Path, dtype: type[np.generic]) -> Array:
    """A matrix of zeros, in a file without blocks, whose last rows have numbers."""
    size = ROWS * COLUMNS * np.dtype(dtype).itemsize
    with (folder / "matrix").open("w+b") as file:
        file.truncate(size)
        matrix: Array = np.frombuffer(mmap.mmap(file.fileno(), size), dtype)
    matrix = matrix.reshape(ROWS, COLUMNS)
    matrix[-LAST:] = np.random.default_rng(0).integers(-9, 9, (LAST, COLUMNS))
    return matrix


def program(family: str, dtype: type[np.generic]) -> compiler.Executable:
    nodes = [node("Slice", "x start end axis", "s"), *FAMILIES[family]]
    used = {name for n in nodes for name in n.input}
    model = make_model(nodes, [
        value_info("x", dtype, ["n", COLUMNS]), value_info("rows", np.int64, [3]),
        value_info("places", np.int64, [2, COLUMNS])], ["y"],
        {name: array for name, array in CONSTANTS.items() if name in used})
    return compiler.compile(MemoryModel("far.onnx", model.SerializeToString()), cache="off",
                            threads=1)


@pytest.mark.parametrize(("family", "dtype"), [
    *((family, np.float32) for family in FAMILIES), *((family, np.int8) for family in ON_BYTES)])
def test_the_last_rows_of_a_large_matrix(
    family: str, dtype: type[np.generic], tmp_path: Path
) -> None:
    matrix = holes(tmp_path, dtype)
    rows, places = np.array([-1, -3, -6]), np.full((2, COLUMNS), -2)
    run = program(family, dtype)
    count = len(matrix)
    [actual] = run.run([matrix, rows + count, places + count])
    [expected] = run.run([matrix[-LAST:].copy(), rows + LAST, places + LAST])
    assert np.any(expected != 0)
    np.testing.assert_array_equal(actual, expected)


@each_machine
def test_stores_beyond_the_border(features: str, tmp_path: Path) -> None:
    """Only what is stored of the result takes memory."""
    module = parse_module(f"""
    block.kernel @far(%x: i8[n, {COLUMNS}], %y: i8[n, {COLUMNS}]) grid(%p: {LAST}) sizes(n) {{
      block.for %k = 0 to {COLUMNS} step 64 parallel {{
        %v = block.load %x[n - {LAST} + %p, %k + t0] : tile<[64]xi8>
        block.store %v, %y[n - {LAST} + %p, %k + t0]
        block.yield
      }}
      block.yield
    }}
    host.func @main(%x: i8[n, {COLUMNS}], %y: i8[n, {COLUMNS}]) inputs ["x"] outputs ["y"]
        sizes(n) {{
      host.launch @far(%x, %y) sizes(n)
      host.return
    }}""")
    running = TARGET.bind(TargetOptions(features=features, threads=1)).running
    matrix = holes(tmp_path, np.int8)
    [actual] = running.load(module, WeightStore()).run([matrix])
    np.testing.assert_array_equal(actual[-LAST:], matrix[-LAST:])
