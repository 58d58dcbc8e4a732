"""Codes for several processors in one library read the same packed constants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler.diagnostics import StrataError
from compiler.executable import compile_with
from compiler.frontend import model_of
from compiler.options import CompileOptions
from targets.cpu.machine import features_here
from targets.library_file import read_facts
from tests.targets.cpu.artifact.shipped import needs_tools, ship

SETS = ("baseline", "avx2", "avx512", "amx")
PRODUCTS = [(128, 48, 96), (1, 64, 384), (1, 30, 75), (64, 40, 75), (33, 17, 31), (2, 50, 24),
            (20, 96, 160), ("n", 24, 200)]
"""Rows, summed elements and columns: panels of one to many vectors, with and without a rest."""
IMAGES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("Conv", (40, 12, 3, 3), {"pads": [1] * 4}), ("Conv", (75, 12, 1, 1), {}),
    ("Conv", (12, 1, 3, 3), {"group": 12}), ("ConvTranspose", (12, 20, 2, 2), {}),
    ("Conv", (64, 12, 3, 3), {"strides": [2, 2]})]


def model_of_one(op: str, x: list[int | str], weight: np.ndarray, **attributes: Any
                 ) -> onnx.ModelProto:
    """A model of one operator with a constant."""
    dtype = helper.np_dtype_to_tensor_dtype(weight.dtype)
    given = onnx.TensorProto.UINT8 if op == "MatMulInteger" else dtype
    made = onnx.TensorProto.INT32 if op == "MatMulInteger" else dtype
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w"], ["y"], **attributes)], "one",
        [helper.make_tensor_value_info("x", given, x)],
        [helper.make_tensor_value_info("y", made, None)], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def models() -> dict[str, onnx.ModelProto]:
    random = np.random.default_rng(0)
    found = {f"{dtype.__name__} {m}x{k}x{n}": model_of_one(
        "MatMul", [m, k], random.standard_normal((k, n)).astype(dtype))
        for dtype, products in ((np.float32, PRODUCTS), (np.float64, PRODUCTS[::3]))
        for m, k, n in products}
    found |= {f"int8 {m}x{k}x{n}": model_of_one(
        "MatMulInteger", [m, k], random.integers(-100, 100, (k, n), np.int8))
        for m, k, n in PRODUCTS[::2]}
    return found | {f"{op} {shape}": model_of_one(
        op, [1, 12, 20, 20], random.standard_normal(shape).astype(np.float32), **attributes)
        for op, shape, attributes in IMAGES}


MODELS = models()


def constants_of(library: Path) -> int:
    return int(read_facts(str(library))["constants"]["bytes"])


@needs_tools
@pytest.mark.parametrize("name", ["float32 64x40x75", "float32 1x64x384", "int8 20x96x160",
                                  f"Conv {(40, 12, 3, 3)}"])
def test_constants_are_those_of_the_best_code(name: str, tmp_path: Path) -> None:
    best = constants_of(ship(MODELS[name], tmp_path / "best.so", features=SETS[-1]))
    assert constants_of(ship(MODELS[name], tmp_path / "all.so", variants=SETS)) == best


def test_an_unknown_set_among_several_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StrataError, match="'avx3'"):
        ship(next(iter(MODELS.values())), tmp_path / "all.so", variants=("avx2", "avx3"))


@pytest.mark.parametrize("name", MODELS)
def test_code_for_less_reads_panels_of_the_best(name: str) -> None:
    sets = [s for s in SETS[:-1] if s in features_here()]
    for features in sets[:2]:
        alone = CompileOptions(features=features, threads=1)
        mine, shared = (compile_with(model_of(MODELS[name]), each, [], "") for each in (
            alone, replace(alone, beside=SETS)))
        inputs = list(mine.signature.random(0, {}).values())
        [wanted], [found] = mine.run(inputs), shared.run(inputs)
        np.testing.assert_array_equal(found, wanted)
