"""LabelEncoder with many keys, in a table or searched, against a dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import compiler
from compiler.frontend import MemoryModel, load_model
from dialects.graph import ConstantOp, DescendOp
from dialects.graph.base import GraphOp
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr
from tests.frontend.onnx_models import run_imported

DOMAIN = "ai.onnx.ml"
INTEGERS, FLOATS = (np.int16, np.int32, np.int64), (np.float32, np.float64)


def encoder(keys: Array, values: Array) -> onnx.ModelProto:
    tensors = {"keys_tensor": keys, "values_tensor": values,
               "default_tensor": np.array([-7], values.dtype)}
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain=DOMAIN, **{
        name: numpy_helper.from_array(array, name) for name, array in tensors.items()})
    x, y = (helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), ["a", 2])
            for name, dtype in (("x", keys.dtype), ("y", values.dtype)))
    return helper.make_model(
        helper.make_graph([node], "encoder", [x], [y]), ir_version=10,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 4)])


def expected(x: Array, keys: Array, values: Array) -> Array:
    """The value of the first key that is equal; NaN equals NaN."""
    known = dict[Any, Any]()
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        known.setdefault("nan" if key != key else key, value)
    found = [known.get("nan" if e != e else e, -7) for e in x.reshape(-1).tolist()]
    return np.array(found, values.dtype).reshape(x.shape)


def drawn(dtype: Any, count: int, spread: int) -> tuple[Array, Array]:
    """Keys, some of them twice, and elements: keys, their neighbours, and special values."""
    rng = np.random.default_rng([count, spread])
    most = np.iinfo(np.int16).max if dtype == np.int16 else 1 << 24
    keys = (rng.permutation(min(max(count * spread, 2), most))[:count] - spread).astype(dtype)
    special = np.array([0], dtype)
    if dtype in FLOATS:
        special = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf, 0.5], dtype)
    elif count > 4 and spread > 1:
        special = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    keys[:len(special) // 2] = special[:count][:len(special) // 2]
    x = np.concatenate([rng.choice(keys, 60), rng.choice(keys, 20) + dtype(1), special])
    return keys, x[:len(x) // 2 * 2].reshape(-1, 2)


@pytest.mark.parametrize("spread", [1, 5, 3000])
@pytest.mark.parametrize("count", [1, 5, 16, 17, 33, 700])
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_lookups(dtype: Any, count: int, spread: int):
    keys, x = drawn(dtype, count, spread)
    for kind in (np.int64, np.float32):
        values = np.arange(count).astype(kind)
        imported = load_model(MemoryModel("e.onnx", encoder(keys, values).SerializeToString()))
        [got] = run_imported(imported, {"x": x})
        np.testing.assert_array_equal(got, expected(x, keys, values))


@pytest.mark.parametrize(("dtype", "spread"), [
    (np.int64, 1), (np.int64, 3000), (np.float32, 1), (np.float32, 3000)])
def test_compiled_lookups(dtype: Any, spread: int):
    keys, x = drawn(dtype, 700, spread)
    values = np.arange(700)
    run = compiler.compile(encoder(keys, values), threads=1, cache="off")
    for rows in (len(x), 1, 0):
        np.testing.assert_array_equal(run(x[:rows])[0], expected(x[:rows], keys, values))


@pytest.mark.parametrize(("spread", "searches"), [(1, 0), (5, 0), (3000, 1)])
def test_far_keys_are_searched(spread: int, searches: int):
    """The work per element must not grow with the number of keys."""
    for dtype in (np.int64, np.float32):
        keys = (np.arange(700) * spread).astype(dtype)
        model = MemoryModel("e.onnx", encoder(keys, np.arange(700)).SerializeToString())
        ops: Sequence[Any] = list(load_model(model).module.walk())
        assert sum(isinstance(op, DescendOp) for op in ops) == searches
        assert not any(r.type.rank > 2 or r.type.shape[-1:] == (Expr.of(700),) for op in ops
                       if isinstance(op, GraphOp) and not isinstance(op, ConstantOp)
                       for r in op.results)
