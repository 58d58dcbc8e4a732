"""Keys and values of NaN or infinity that a mask of ONNX's Attention hides.

A mask is added to the scores, so that a hidden score of NaN makes its row NaN, unless the row sees
nothing: that is 0. A hidden value is multiplied by 0. The CPU and the reference target compute the
same, which is what onnxruntime does.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from dialects.strata.types import Array
from tests.frontend.onnx_models import make_model, run_reference, value_info

HEADS, DEPTH, NEWEST = 2, 16, 24
SIZES = [(6, 6), (9, 150)]
MASKS = ("truth", "numbers", "causal", "truth causal")
OUTPUTS = [None, 0, 1, 3]
"""What else is returned: nothing, raw scores, scores with their mask, or weights."""
CASES = [(opset, mask, sizes, more) for opset, mask, sizes, more in product(
    (23, NEWEST), MASKS, SIZES, OUTPUTS)]


def model_of(opset: int, mask: str, sizes: tuple[int, int], more: int | None) -> onnx.ModelProto:
    rows, keys = sizes
    inputs = [value_info(name, np.float32, [1, HEADS, size, DEPTH])
              for name, size in (("q", rows), ("k", keys), ("v", keys))]
    if mask != "causal":
        inputs.append(value_info("m", bool if "truth" in mask else np.float32, [rows, keys]))
    outputs = ["y"] if more is None else ["y", "", "", "w"]
    attributes: dict[str, Any] = {} if more is None else {"qk_matmul_output_mode": more}
    node = helper.make_node("Attention", [i.name for i in inputs], outputs,
                            is_causal=int("causal" in mask), **attributes)
    return make_model([node], inputs, [name for name in outputs if name], {}, opset)


def inputs_of(mask: str, sizes: tuple[int, int]) -> dict[str, Array]:
    """Rows see what lies before them, but the third one sees nothing."""
    rows, keys = sizes
    rng = np.random.default_rng(keys)
    found: dict[str, Array] = {name: rng.standard_normal((1, HEADS, size, DEPTH)).astype(np.float32)
                               for name, size in (("q", rows), ("k", keys), ("v", keys))}
    seen = np.tril(np.ones((rows, keys), bool))
    seen[2] = False
    if mask != "causal":
        found["m"] = seen if "truth" in mask else np.where(seen, 0, -np.inf).astype(np.float32)
    return found


def spoiled(given: dict[str, Array], name: str, place: int, number: float) -> dict[str, Array]:
    array = given[name].copy()
    array[:, :, place, 0] = number
    return {**given, name: array}


def disagreements(model: onnx.ModelProto, given: dict[str, Array]) -> list[Any]:
    """Where results differ from onnxruntime's, for a spoiled key or value that some rows see, or
    none; of the CPU and of the reference."""
    loaded = [compiler.compile(model, target=t, cache="off") for t in ("cpu", "reference")]
    keys, found = given["k"].shape[2], list[Any]()
    for name, place, number in product("kv", {3, keys - 1}, (np.nan, np.inf, -np.inf)):
        inputs = spoiled(given, name, place, number)
        want = run_reference(model, inputs)
        for k, w in enumerate(want):
            got = [np.asarray(executable(**inputs)[k]) for executable in loaded]
            near = [np.allclose(g, w, 1e-4, 1e-5, equal_nan=True) for g in got]
            found += [] if all(near) else [(name, place, number, k, near)]
    return found


@pytest.mark.parametrize(("opset", "mask", "sizes", "more"), [
    (23, "truth", SIZES[0], 3), (NEWEST, "truth", SIZES[1], None), (NEWEST, "numbers", SIZES[0], 1),
    (NEWEST, "causal", SIZES[1], None), (NEWEST, "truth causal", SIZES[0], 3)])
def test_a_few(opset: int, mask: str, sizes: tuple[int, int], more: int | None) -> None:
    assert disagreements(model_of(opset, mask, sizes, more), inputs_of(mask, sizes)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("opset", "mask", "sizes", "more"), CASES)
def test_all(opset: int, mask: str, sizes: tuple[int, int], more: int | None) -> None:
    assert disagreements(model_of(opset, mask, sizes, more), inputs_of(mask, sizes)) == []
