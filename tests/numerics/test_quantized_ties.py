"""Quantized operators at ties: the CPU gives the bytes that the reference target gives.

Scales whose quotients are 2, 1/2, 10 and the like make many results lie halfway between two bytes,
or beside that by one rounding in f32. So a product that an addition takes without rounding, a
division that becomes a product, or sums in another order would show. ONNX's text rounds quotients
before it adds the zero point, and so does its reference implementation of QuantizeLinear, which is
compared, too. That of QLinearMatMul and QLinearConv adds first, and multiplies in f64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import compiler
from dialects.strata.types import Array
from tests.frontend.onnx_models import make_model, value_info

SCALES = (0.1, 0.05, 0.35, 0.07, 0.2, 0.7)
ONNX, CONTRIB = "", "com.microsoft"

Row = tuple[str, str, tuple[Any, ...], Mapping[str, Any]]
BINARY, UNARY = ((9, 131), "s", "z", (9, 131), "s", "z", "s", "z"), ((7, 300), "s", "z", "s", "z")
IMAGES = ((2, 4, 9, 7), "s", "z", "s", "z")
ROWS: dict[str, Row] = {
    "sum": ("QLinearAdd", CONTRIB, BINARY, {}),
    "product": ("QLinearMul", CONTRIB, BINARY, {}),
    "leaky": ("QLinearLeakyRelu", CONTRIB, UNARY, {"alpha": 0.5}),
    "where": ("QLinearWhere", CONTRIB, ("c", *BINARY), {}),
    "concatenation": ("QLinearConcat", CONTRIB, ("s", "z", *BINARY[:6]), {"axis": 1}),
    "pool": ("QLinearAveragePool", CONTRIB, IMAGES, {
        "kernel_shape": [3, 2], "pads": [1, 0, 1, 0], "count_include_pad": 1}),
    "last pool": ("QLinearAveragePool", CONTRIB, IMAGES, {
        "kernel_shape": [2, 2], "channels_last": 1}),
    "mean of all": ("QLinearGlobalAveragePool", CONTRIB, ((3, 50, 5, 2), *UNARY[1:]), {
        "channels_last": 0}),
    "mean": ("QLinearReduceMean", CONTRIB, UNARY, {"axes": [0], "keepdims": 1}),
    "long mean": ("QLinearReduceMean", CONTRIB, ((40, 250), *UNARY[1:]), {
        "axes": [1], "keepdims": 0}),
    "product of matrices": ("QLinearMatMul", ONNX, ((9, 4), "s", "z", (4, 70), "s", "z", 3.5, "z"),
                            {}),
    "columns": ("QLinearMatMul", ONNX, ((9, 4), "s", "z", (4, 6), SCALES, (0,) * 6, 3.5, "z"), {}),
    "convolution": ("QLinearConv", ONNX, (
        (1, 4, 9, 7), "s", "z", (6, 4, 3, 3), SCALES, (0,) * 6, 3.5, "z"), {"pads": [1] * 4}),
    "bytes": ("QuantizeLinear", ONNX, ("x", "s", "z"), {}),
    "bytes of rows": ("QuantizeLinear", ONNX, ("x", SCALES, (3,) * 6), {"axis": 0}),
    "own scale": ("DynamicQuantizeLinear", ONNX, ("x",), {}),
}


def operand_of(given: Any, dtype: Any, rng: np.random.Generator) -> Array:
    """An array of bytes for a shape, a scale or a zero point for a letter or for numbers."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    match given:
        case "s":
            return np.array(rng.choice(SCALES), np.float32)
        case "z":
            return np.array(rng.integers(2, 9), dtype)
        case "c":
            return rng.integers(0, 2, BINARY[0]).astype(bool)
        case "x":  # halves of the scales' multiples, rounded once
            steps = rng.integers(-300, 300, (6, 200)) * 0.5
            return (steps * rng.choice(SCALES, (6, 1))).astype(np.float32)
        case float():
            return np.array(given, np.float32)
        case (float(), *_):
            return np.array(given, np.float32)
        case _ if len(given) == 6:
            return np.array(given, dtype)
        case _:
            return rng.integers(low, high + 1, given).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("are_known", [False, True], ids=["inputs", "constants"])
@pytest.mark.parametrize("name", ROWS)
def test_bytes_are_the_definition(name: str, are_known: bool, dtype: Any) -> None:
    op_type, domain, operands, attributes = ROWS[name]
    rng = np.random.default_rng(3)
    if name == "own scale" and (are_known or dtype == np.int8):
        return  # it has no parameters, and gives unsigned bytes
    arrays = {f"x{k}": operand_of(given, dtype, rng) for k, given in enumerate(operands)}
    known = {n: a for n, a in arrays.items() if are_known and a.size <= 6}
    feeds = {n: a for n, a in arrays.items() if n not in known}
    results = ["y", "scale", "zero"] if op_type.startswith("Dynamic") else ["y"]
    node = helper.make_node(op_type, list(arrays), results, domain=domain, **attributes)
    model = make_model([node], [value_info(n, a.dtype, a.shape) for n, a in feeds.items()], results,
                       known, 19, domains=[domain] if domain else [])
    cpu, reference = (np.asarray(compiler.compile(model, target=target, cache="off")(**feeds)[0])
                      for target in ("cpu", "reference"))
    np.testing.assert_array_equal(cpu, reference)
    if "QuantizeLinear" in op_type:
        [want] = ReferenceEvaluator(model).run(None, feeds)[:1]
        np.testing.assert_array_equal(reference, want)
