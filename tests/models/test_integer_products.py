"""Products of bytes on the CPU, exactly: all pairs of signs, extreme values, odd sizes, borders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from dialects.strata.types import Array
from targets.cpu.machine import features_here
from tests.byte_products import convolve, matmul

U8, I8 = np.uint8, np.int8
PAIRS = [(U8, I8), (U8, U8), (I8, I8), (I8, U8)]
RANDOM = np.random.default_rng(11)


def named(features: str | None, dtypes: tuple[Any, Any]) -> Any:
    return pytest.param(features, dtypes, id="-".join((
        features or "host", *(dtype.__name__ for dtype in dtypes))))


each_pair = pytest.mark.parametrize(("features", "dtypes"), [
    *(named(None, pair) for pair in PAIRS),
    *(named(name, PAIRS[-1]) for name in features_here()),
])
"""All pairs on this processor, and one where no instruction helps."""


def extremes(shape: tuple[int, ...], dtype: Any) -> Array:
    """Mostly the largest and smallest numbers there are."""
    limits = np.iinfo(dtype)
    return RANDOM.choice([limits.min, limits.max, 0, 1, limits.max // 3], shape).astype(dtype)


@dataclass
class Products:
    """A model of products that have nothing to do with each other, and what they should be."""

    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list[onnx.ValueInfoProto])
    weights: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    arrays: dict[str, Array] = field(default_factory=dict[str, Array])
    wanted: list[Array] = field(default_factory=list[Array])

    def add(
        self, operator: str, operands: Sequence[Array], open_sizes: Sequence[Sequence[int]],
        wanted: Array, **attributes: Any,
    ) -> None:
        """One operator. The first operands are inputs, whose sizes at `open_sizes` are open."""
        number, names = len(self.nodes), list[str]()
        for k, array in enumerate(operands):
            names.append(f"v{number}_{k}")
            if k >= len(open_sizes):
                self.weights.append(numpy_helper.from_array(array, names[-1]))
                continue
            sizes = [f"s{number}_{d}" if d in open_sizes[k] else n
                     for d, n in enumerate(array.shape)]
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            self.inputs.append(helper.make_tensor_value_info(names[-1], kind, sizes))
            self.arrays[names[-1]] = array
        self.nodes.append(helper.make_node(operator, names, [f"y{number}"], **attributes))
        self.wanted.append(wanted)

    def check(self, folder: Path, features: str | None) -> None:
        outputs = [helper.make_tensor_value_info(f"y{k}", TensorProto.INT32, None)
                   for k in range(len(self.nodes))]
        graph = helper.make_graph(self.nodes, "products", self.inputs, outputs, self.weights)
        opset = [helper.make_opsetid("", 19)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), folder / "p.onnx")
        found = compiler.compile(folder / "p.onnx", features=features, cache="off")(**self.arrays)
        for y, wanted in zip(found, self.wanted, strict=True):
            np.testing.assert_array_equal(y, (wanted + 2**31) % 2**32 - 2**31)


def zeros_of(dtypes: tuple[Any, Any], columns: int | None) -> tuple[Array, Array]:
    """Zero points; of weights one per column, if there are such."""
    left = np.array(113 if dtypes[0] is U8 else -7, dtypes[0])
    return left, extremes((columns,) if columns else (), dtypes[1])


# ---------------------------------------------------------------------- matrices
@each_pair
def test_matrices(features: str | None, dtypes: tuple[Any, Any], tmp_path: Path) -> None:
    products = Products()
    for m, k, n in ((7, 33, 19), (1, 64, 80), (13, 3, 1), (6, 260, 130)):
        x, w = extremes((m, k), dtypes[0]), extremes((k, n), dtypes[1])
        zx, zw = zeros_of(dtypes, n)
        products.add("MatMulInteger", (x, w, zx, zw), [[0]], matmul(x, w, zx, zw))
    x, w = extremes((2, 9, 21), dtypes[0]), extremes((2, 21, 37), dtypes[1])
    zx, zw = zeros_of(dtypes, None)
    products.add("MatMulInteger", (x, w, zx, zw), [[1], [2]], matmul(x, w, zx, zw))
    products.check(tmp_path, features)


def test_sums_wrap_around(tmp_path: Path) -> None:
    """255 * 127 is added more often than an i32 can hold it."""
    x, w = np.full((2, 70_001), 255, U8), np.full((70_001, 16), 127, I8)
    products = Products()
    products.add("MatMulInteger", (x, w), [[]], np.full((2, 16), 255 * 127 * 70_001))
    products.check(tmp_path, None)


# ---------------------------------------------------------------------- convolutions
CONVOLUTIONS: list[dict[str, Any]] = [
    {"x": (1, 8, 9, 11), "w": (20, 8, 3, 3), "pads": [1, 1, 1, 1]},
    {"x": (2, 3, 12, 7), "w": (17, 3, 5, 2), "pads": [2, 0, 1, 1], "strides": [2, 3]},
    {"x": (1, 12, 9, 9), "w": (10, 6, 3, 3), "pads": [2, 2, 2, 2], "dilations": [2, 2], "group": 2},
    {"x": (1, 6, 7, 8), "w": (6, 1, 3, 3), "pads": [1, 1, 1, 1], "group": 6},
    {"x": (1, 70, 1, 5), "w": (65, 70, 1, 1)},
]


@each_pair
def test_convolutions(features: str | None, dtypes: tuple[Any, Any], tmp_path: Path) -> None:
    products = Products()
    for case in CONVOLUTIONS:
        x, w = extremes(case["x"], dtypes[0]), extremes(case["w"], dtypes[1])
        zx, zw = zeros_of(dtypes, len(w))
        attributes = {k: v for k, v in case.items() if k not in ("x", "w")}
        products.add("ConvInteger", (x, w, zx, zw), [[0, 2, 3]],
                     convolve(x, w, zx, zw, **attributes), **attributes)
    products.check(tmp_path, features)
