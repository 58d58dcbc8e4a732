"""TopK along axes whose size only a run knows: its numbers at all kinds of sizes, and its code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from dialects.block import KernelOp
from dialects.semantics.numerics import widen
from dialects.strata.types import Array
from tests.counts.count import AVX2, SM_90, Setting, Subject, lowered

Shape = Sequence[int | str]
DTYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int64, np.int32, np.uint8,
          np.int8, np.uint64)
MOST_KERNELS = 16
"""A tenth of what a kernel for each value of each digit would be."""


def model(k: int, dtype: Any, axis: int, shape: Shape, largest: bool) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    first = [k if dim == axis else size for dim, size in enumerate(shape)]
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=axis, largest=int(largest),
                            sorted=int(largest))
    graph = helper.make_graph(
        [node], "top_k", [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("v", kind, first),
         helper.make_tensor_value_info("i", onnx.TensorProto.INT64, first)],
        [helper.make_tensor("k", onnx.TensorProto.INT64, [1], [k])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])


def numbers(dtype: Any, shape: Sequence[int]) -> Array:
    """All bit patterns alike, and many ties, signed zeros, infinities and NaN."""
    rng = np.random.default_rng(11)
    size = int(np.prod(shape))
    bits = rng.integers(0, 256, (size, np.dtype(dtype).itemsize), np.uint8)
    found = bits.view(dtype)[:, 0]
    floats = not np.issubdtype(dtype, np.integer)
    ties = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0] if floats else [0, 1, 2]
    is_tie = rng.random(size) < 0.4
    found[is_tie] = rng.choice(np.array(ties).astype(dtype), int(is_tie.sum()))
    return found.reshape(shape)


def first(x: Array, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    """NaN is greater than all numbers; equal elements keep their order."""
    keys = np.moveaxis(widen(x), axis, -1)
    order = np.argsort(keys, -1, kind="stable")
    if largest:
        order = keys.shape[-1] - 1 - np.argsort(keys[..., ::-1], -1, kind="stable")[..., ::-1]
    indices = np.moveaxis(order[..., :k], -1, axis)
    return np.take_along_axis(x, indices, axis), indices


@pytest.mark.parametrize(("dtype", "k", "axis", "shape"), [
    *((dtype, 45, 1, ["b", "n"]) for dtype in DTYPES),
    *((dtype, *case) for dtype in (np.float32, np.int64) for case in [
        (45, 0, ["n"]), (45, 1, [2, "n", 3]), (0, 0, ["n"]), (1, 0, ["n", 3]), (17, 0, ["n"]),
        (300, 1, ["b", "n"])])])
def test_at_each_size(dtype: Any, k: int, axis: int, shape: Shape) -> None:
    """As many elements as are wanted, one more, and many; without rows; fewer are an error."""
    largest = k % 2 == 0 or dtype in (np.float32, np.uint8, np.uint64)
    run = compiler.compile(model(k, dtype, axis, shape, largest), cache="off", threads=1)
    for n in sorted({k, k + 1, 2 * k + 1, 1031}):
        for b in (0, 1, 3) if "b" in shape else (1,):
            x = numbers(dtype, [{"n": n, "b": b}.get(str(s), s) for s in shape])
            for found, expected in zip(run(x), first(x, k, axis, largest), strict=True):
                np.testing.assert_array_equal(widen(found), widen(expected))
    for n in {0, k - 1} if k else ():
        with pytest.raises(compiler.SizeError, match=f"TopK.*{k}"):
            run(numbers(dtype, [{"n": n, "b": 2}.get(str(s), s) for s in shape]))


@pytest.mark.parametrize("setting", [AVX2, SM_90], ids=lambda s: s.target)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("shape", [["n"], ["b", "n"]])
def test_has_a_handful_of_kernels(shape: Shape, dtype: Any, setting: Setting) -> None:
    """All rounds run the same kernels, also where there are no rows that could share one."""
    subject = Subject("top_k", model(45, dtype, len(shape) - 1, shape, largest=True))
    module = lowered(subject, setting)[1].module
    assert 0 < sum(isinstance(op, KernelOp) for op in module.walk()) <= MOST_KERNELS
