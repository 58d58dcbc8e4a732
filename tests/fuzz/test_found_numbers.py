"""Numbers that were wrong when fuzzing found them, as small as the models become."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.frontend import MemoryModel
from dialects.types import Array
from tests.frontend.onnx_models import make_model, value_info
from tests.fuzz.seed_models import node


def run(model: onnx.ModelProto, inputs: list[Array], target: str = "cpu") -> list[Array]:
    program = compiler.compile(MemoryModel("model.onnx", model.SerializeToString()),
                               target=target, cache="off", threads=1)
    return list(program.run(inputs))


# ---------------------------------------------------------------------- integers
BYTES = (np.uint8, np.int8)


def random_bytes(dtype: type, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(0).integers(limits.min, limits.max, shape, endpoint=True).astype(
        dtype)


@pytest.mark.parametrize("size", [8, 16, 17, 32, 64])
def test_sums_of_products_of_bytes(size: int) -> None:
    """Of a row with a column: LLVM made `vpdpbusd` of it, and added up part of its lanes."""
    pairs = list(product(BYTES, repeat=2))
    rows = [random_bytes(p[0], 1, size) for p in pairs]
    columns = [random_bytes(p[1], size, 1)[::-1].copy() for p in pairs]
    infos = [value_info(f"{n}{k}", a.dtype, a.shape)
             for n, arrays in (("a", rows), ("b", columns)) for k, a in enumerate(arrays)]
    nodes = [node("MatMulInteger", f"a{k} b{k}", f"y{k}") for k in range(len(pairs))]
    model = make_model(nodes, infos, [f"y{k}" for k in range(len(pairs))])
    for found, a, b in zip(run(model, rows + columns), rows, columns, strict=True):
        np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("size", [8, 16, 32, 64])
@pytest.mark.parametrize("dtype", BYTES)
def test_sums_of_differences_of_bytes(dtype: type, size: int) -> None:
    """The same with `psadbw`."""
    a, b = random_bytes(dtype, size), random_bytes(dtype, size)[::-1].copy()
    int32 = helper.np_dtype_to_tensor_dtype(np.dtype(np.int32))
    nodes = [helper.make_node("Cast", ["a"], ["p"], to=int32),
             helper.make_node("Cast", ["b"], ["q"], to=int32), node("Sub", "p q", "d"),
             node("Abs", "d", "m"), helper.make_node("ReduceSum", ["m"], ["y"], keepdims=0)]
    model = make_model(nodes, [value_info("a", dtype, [size]), value_info("b", dtype, [size])],
                       ["y"])
    [found] = run(model, [a, b])
    assert found == np.abs(a.astype(np.int32) - b.astype(np.int32)).sum()
