"""Transposed convolutions by phases: strides, kernels, pads and groups at random, against
onnxruntime, with sizes that are fixed and that only a run tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import compiler
from compiler.frontend import MemoryModel
from dialects.strata.types import Array
from tests.frontend.onnx_models import assert_close, make_model, run_reference, value_info


def drawn(seed: int) -> tuple[dict[str, Any], Array, Array, list[int]]:
    """Attributes, a filter, a bias and the sizes of an image."""
    random = np.random.default_rng(seed)
    rank = int(random.integers(1, 4))

    def numbers(low: int, high: int) -> list[int]:
        return random.integers(low, high, rank).tolist()

    kernel, strides = numbers(1, 8 - rank), numbers(1, 5)
    dilations = numbers(1, 3) if seed % 4 == 0 else [1] * rank
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    low, high = ([int(random.integers(0, r)) for r in reach] for _ in range(2))
    extra = [int(random.integers(0, s)) for s in strides]
    group, inputs, outputs = random.integers(1, 4, 3).tolist()
    least = [-(-(a + b - r - e + s) // s) + 1 for a, b, r, e, s in zip(
        low, high, reach, extra, strides, strict=True)]
    sizes = [max(n, m) for n, m in zip(numbers(1, 7), least, strict=True)]
    attributes = {"strides": strides, "dilations": dilations, "pads": [*low, *high],
                  "output_padding": extra, "group": group}
    w, bias = (np.asarray(random.standard_normal(shape), np.float32) for shape in (
        (group * inputs, outputs, *kernel), group * outputs))
    return attributes, w, bias, sizes


@pytest.mark.parametrize("seed", range(24))
def test_transposed_convolutions(seed: int) -> None:
    attributes, w, bias, sizes = drawn(seed)
    x = np.random.default_rng(seed).standard_normal((2, w.shape[0], *sizes)).astype(np.float32)
    nodes = [helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], **attributes),
             helper.make_node("Relu", ["c"], ["y"])]
    for shape in (x.shape, ("n", w.shape[0], *(f"d{k}" for k in range(len(sizes))))):
        proto = make_model(nodes, [value_info("x", np.float32, list(shape))], ["y"],
                           {"w": w, "b": bias})
        exe = compiler.compile(MemoryModel("model.onnx", proto.SerializeToString()), target="cpu",
                               threads=1)
        assert_close(list(exe(x=x)), run_reference(proto, {"x": x}), 1e-4)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_an_infinite_weight_adds_nothing_beside_the_image(seed: int, constant: bool) -> None:
    """The results that are NaN and infinite are those of onnxruntime."""
    attributes, w, bias, sizes = drawn(seed)
    random = np.random.default_rng(seed)
    x = random.standard_normal((2, w.shape[0], *sizes)).astype(np.float32)
    w[random.random(w.shape) < 1 / w.size**0.5] = np.inf
    w.reshape(-1)[-1], x.reshape(-1)[0] = np.inf, np.nan
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)
    feeds = {"x": x} if constant else {"x": x, "w": w}
    weights = {"b": bias} | ({"w": w} if constant else {})
    for sizes_of_x in (x.shape, ("n", w.shape[0], *(f"d{k}" for k in range(len(sizes))))):
        inputs = [value_info(name, np.float32, list(sizes_of_x if name == "x" else w.shape))
                  for name in feeds]
        proto = make_model([node], inputs, ["y"], weights)
        exe = compiler.compile(MemoryModel("model.onnx", proto.SerializeToString()), target="cpu",
                               threads=1)
        found, wanted = np.asarray(exe(**feeds)[0]), run_reference(proto, feeds)[0]
        assert np.isinf(wanted).any()
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        np.testing.assert_array_equal(np.isposinf(found), np.isposinf(wanted))
        assert_close([np.nan_to_num(found, posinf=0, neginf=0)],
                     [np.nan_to_num(wanted, posinf=0, neginf=0)], 1e-5)
