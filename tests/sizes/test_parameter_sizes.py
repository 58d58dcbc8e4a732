"""Parameters of open sizes that are 1 at run time: scales, biases and zero points.

They belong to one number along an axis each, or to all numbers; the sizes of a call decide which.
NumPy decides what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import compiler
from compiler.frontend import MemoryModel

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]
Meaning = Callable[..., Array]
TARGETS = ("cpu", "reference")
EPSILON = 1e-5
X: Shape = (2, 3, 4)
AXES = ((0, 2), (1, 3), (-1, 4))
"""The axes of X, and their sizes."""


def numbers(shape: Shape, dtype: Any, seed: int) -> Array:
    found = np.random.default_rng(seed).integers(1, 9, shape)
    return (found / 4 if np.dtype(dtype).kind == "f" else found).astype(dtype)


def compiled(
    name: str, inputs: Mapping[str, Array], target: str, open_: bool, **attributes: Any
) -> compiler.Executable:
    """One operator, all of whose dims are open except those of filters `w`."""
    values = [helper.make_tensor_value_info(
        key, helper.np_dtype_to_tensor_dtype(a.dtype),
        [f"{key}_{d}" if open_ and key != "w" else size for d, size in enumerate(a.shape)])
        for key, a in inputs.items()]
    node = helper.make_node(name, list(inputs), ["y"], **attributes)
    result = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    model = helper.make_model(helper.make_graph([node], "g", values, [result]),
                              opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    return compiler.compile(MemoryModel("parameters.onnx", model.SerializeToString()),
                            target=target, cache="off", tuned="off", threads=1)


# ---------------------------------------------------------------------- normalization
BROADCAST: Sequence[tuple[int, Sequence[Shape]]] = [
    (-1, [(4,), (1,), (4,)]), (1, [(3, 4), (1, 4), (3, 1), (1, 1)]), (1, [(4,), (1,)]),
    (-1, [(3, 4), (1, 4), (3, 1)]), (-1, [(2, 3, 4), (1, 3, 1), (2, 1, 1), (1, 1, 1)]),
    (1, [(2, 1, 4), (2, 3, 4)]), (0, [()]),
]
"""An axis, and shapes of the scale, which ONNX broadcasts to the data; also before the axis."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("open_", [True, False], ids=["open", "fixed"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize(("axis", "shapes"), BROADCAST, ids=str)
def test_normalization(
    axis: int, shapes: Sequence[Shape], name: str, dtype: Any, open_: bool, target: str
) -> None:
    executable = None
    for shape in shapes:
        inputs = {"x": numbers(X, dtype, 0), "s": numbers(shape, dtype, 1)}
        if name == "LayerNormalization":
            inputs["b"] = numbers(shape, dtype, 2)
        if executable is None or not open_:
            executable = compiled(name, inputs, target, open_, axis=axis)
        x, axes = inputs["x"].astype(np.float64), tuple(range(axis % 3, 3))
        if name == "LayerNormalization":
            x = x - x.mean(axes, keepdims=True)
        x = x / np.sqrt((x * x).mean(axes, keepdims=True) + EPSILON)
        [got] = executable(**inputs)
        want = x * inputs["s"].astype(np.float64) + inputs.get("b", np.zeros(()))
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, *((2e-2, 2e-2) if dtype == np.float16
                                                else (1e-5, 1e-5)))


# ---------------------------------------------------------------------- integers
def along(parameter: Array, axis: int, rank: int) -> Array:
    """A parameter of one dim, shaped to broadcast along an axis."""
    return parameter.reshape([-1 if k == axis % rank else 1 for k in range(rank)])


def products(a: Array, b: Array, za: Array, zb: Array) -> Array:
    return (a.astype(np.int64) - za.reshape(-1, 1)) @ (b.astype(np.int64) - zb)


def filtered(x: Array, w: Array, zx: Array, zw: Array) -> Array:
    """A convolution with filters of one number."""
    return np.einsum("nchw,oc->nohw", x.astype(np.int64) - zx.reshape(()),
                     w[:, :, 0, 0].astype(np.int64) - zw.reshape(-1, 1))


def dequantized(x: Array, s: Array, u: Array, axis: int) -> Array:
    return (x.astype(np.int64) - along(u, axis, 3)) * along(s, axis, 3)


def quantized(x: Array, s: Array, u: Array, axis: int) -> Array:
    return np.rint(x / along(s, axis, 3)) + along(u, axis, 3)


def rescaled_products(
    a: Array, s: Array, u: Array, b: Array, t: Array, v: Array, o: Array, z: Array
) -> Array:
    scaled = products(a, b, u, v) * (s.reshape(-1, 1) * t / o)
    return np.clip(np.rint(scaled) + z, 0, 255)


def rescaled_sums(
    x: Array, s: Array, u: Array, w: Array, t: Array, v: Array, o: Array, z: Array
) -> Array:
    scaled = filtered(x, w, u, v) * (s * along(t, 1, 4) / o)
    return np.clip(np.rint(scaled) + z, 0, 255)


U8, I8, F32 = np.uint8, np.int8, np.float32
DATA: Mapping[str, tuple[Shape, Any]] = {
    "x": ((2, 3, 4), U8), "r": ((2, 3, 4), F32), "a": ((4, 3), U8), "b": ((3, 2), I8),
    "im": ((1, 3, 2, 2), U8), "w": ((5, 3, 1, 1), I8)}
"""Data, by their names in CASES."""
SCALES = {"s": F32, "t": F32, "o": F32, "u": U8, "v": I8, "z": U8}
"""The types of parameters."""
CASES: Sequence[tuple[str, int | None, str, Mapping[str, int], Meaning]] = [
    *[("DequantizeLinear", k, "x s u", {"s": n, "u": n}, partial(dequantized, axis=k))
      for k, n in AXES],
    *[("QuantizeLinear", k, "r s u", {"s": n, "u": n}, partial(quantized, axis=k))
      for k, n in AXES],
    ("MatMulInteger", None, "a b u v", {"u": 4, "v": 2}, products),
    ("QLinearMatMul", None, "a s u b t v o z", {"s": 4, "u": 4, "t": 2, "v": 2},
     rescaled_products),
    ("ConvInteger", None, "im w u v", {"v": 5}, filtered),
    ("QLinearConv", None, "im s u w t v o z", {"t": 5, "v": 5}, rescaled_sums),
]
"""Operators: the axis, inputs, sizes of the parameters that may have more than one number, and
what is computed."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}{'' if c[1] is None else c[1]}")
def test_integers(case: tuple[str, int | None, str, Mapping[str, int], Meaning], target: str
                  ) -> None:
    name, axis, order, sizes, meaning = case
    attributes = {} if axis is None else {"axis": axis}
    executable = None
    for single in (False, True, False):
        inputs = {key: numbers(*DATA[key], k) if key in DATA else
                  numbers((1 if single else sizes.get(key, 1),), SCALES[key], k)
                  for k, key in enumerate(order.split())}
        executable = executable or compiled(name, inputs, target, True, **attributes)
        [got] = executable(**inputs)
        np.testing.assert_allclose(got, meaning(*inputs.values()), 1e-6)
