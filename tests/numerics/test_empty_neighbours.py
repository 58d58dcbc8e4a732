"""Operators that read neighbours, on images without elements: no batch, no channels, no rows.

The CPU and the reference target give the same, for static and for open sizes: a result, or a
refusal where there is an element to give and none to read. Without images or channels there is
always a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

import compiler
from dialects.strata.types import Array
from tests.frontend.onnx_models import make_model, value_info
from tests.numerics.test_agreement import compared, outcome

SHAPES = {"images": (0, 2, 5, 4), "rows": (3, 2, 0, 4)}
SCALES, SIZES = np.array([1, 1, 2, 2], np.float32), np.array([3, 7])
WINDOW = {"kernel_shape": [2, 2]}
FILTERS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 2, 2, 2)

Row = tuple[str, str, Mapping[str, Array], Mapping[str, Any]]
ROWS: dict[str, Row] = {
    "max": ("MaxPool", "x", {}, {**WINDOW, "pads": [1, 1, 1, 1]}),
    "max of no pads": ("MaxPool", "x", {}, WINDOW),
    "mean": ("AveragePool", "x", {}, {**WINDOW, "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    "power mean": ("LpPool", "x", {}, WINDOW),
    "mean of all": ("GlobalAveragePool", "x", {}, {}),
    "largest of all": ("GlobalMaxPool", "x", {}, {}),
    "convolution": ("Conv", "x w", {"w": FILTERS}, {"pads": [1, 1, 1, 1]}),
    "transposed": ("ConvTranspose", "x w", {"w": FILTERS[:2]}, {"strides": [3, 3]}),
    "cropped": ("ConvTranspose", "x w", {"w": FILTERS[:2]}, {"pads": [1, 1, 1, 1]}),
    "nearest": ("Resize", "x  s", {"s": SCALES}, {"mode": "nearest"}),
    "linear": ("Resize", "x  s", {"s": SCALES}, {"mode": "linear"}),
    "cubic": ("Resize", "x  s", {"s": SCALES}, {"mode": "cubic"}),
    "to given sizes": ("Resize", "x   z", {"z": SIZES}, {"mode": "linear", "axes": [2, 3]}),
    "zeros around": ("Pad", "x p", {"p": np.array([0, 0, 1, 0, 0, 0, 0, 2])}, {}),
    "edges around": ("Pad", "x p", {"p": np.array([0, 0, 1, 0, 0, 0, 0, 2])}, {"mode": "edge"}),
    "edges beside": ("Pad", "x p", {"p": np.array([0, 0, 0, 3, 0, 0, 0, 2])}, {"mode": "edge"}),
    "mirrored": ("Pad", "x p", {"p": np.array([0, 0, 0, 0, 0, 0, 2, 2])}, {"mode": "reflect"}),
    "wrapped": ("Pad", "x p", {"p": np.array([0, 0, 0, 9, 0, 0, 0, 2])}, {"mode": "wrap"}),
    "grid": ("GridSample", "x g", {}, {"mode": "linear"}),
    "grid of edges": ("GridSample", "x g", {}, {"mode": "nearest", "padding_mode": "border"}),
    "mean of regions": ("RoiAlign", "x r b", {}, {"output_height": 2, "output_width": 3}),
    "largest of regions": ("RoiAlign", "x r b", {}, {"mode": "max", "sampling_ratio": 2}),
    "responses": ("LRN", "x", {}, {"size": 3}),
    "to space": ("DepthToSpace", "y", {}, {"blocksize": 2}),
}


def feeds_of(inputs: str, shape: tuple[int, ...]) -> dict[str, Array]:
    """The inputs that an operator has, for images of a shape; only real images have regions."""
    images, regions = shape[0], 3 if shape[0] else 0
    every = {"x": np.ones(shape, np.float32), "g": np.zeros((images, 2, 3, 2), np.float32),
             "y": np.ones((images, 4 * shape[1], *shape[2:]), np.float32),
             "r": np.tile(np.float32([0, 0, 3, 3]), (regions, 1)),
             "b": np.zeros(regions, np.int64)}
    return {name: every[name] for name in inputs.split(" ") if name in every}


def model_of(row: Row, feeds: Mapping[str, Array], is_open: bool) -> ModelProto:
    op_type, inputs, constants, attributes = row
    node = helper.make_node(op_type, inputs.split(" "), ["out"], name="the node", **attributes)
    infos = [value_info(name, a.dtype, [
        f"{name}{d}" if is_open and d != 1 else size for d, size in enumerate(a.shape)])
        for name, a in feeds.items()]
    return make_model([node], infos, ["out"], constants, 20)


@pytest.mark.parametrize("is_open", [False, True], ids=["static", "open"])
@pytest.mark.parametrize("name", ROWS)
def test_both_targets_give_the_same(name: str, is_open: bool) -> None:
    kept = dict[str, compiler.Executable]()
    for missing, shape in SHAPES.items():
        feeds = feeds_of(ROWS[name][1], shape)
        if not is_open or not kept:
            model = model_of(ROWS[name], feeds, is_open)
            kept = {target: compiler.compile(model, target=target, cache="off")
                    for target in ("cpu", "reference")}
        cpu, reference = (outcome(lambda e=e, g=feeds: e(**g)) for e in kept.values())
        assert compared(cpu, reference, 1e-5) == "", missing
        assert missing != "images" or not isinstance(cpu, str), cpu


@pytest.mark.parametrize("op_type, filters, shape", [
    ("Conv", (3, 0, 2, 2), (1, 3, 4, 3)), ("ConvTranspose", (0, 3, 2, 2), (1, 3, 6, 5))])
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_sums_over_no_channels(
    target: str, op_type: str, filters: tuple[int, ...], shape: tuple[int, ...],
) -> None:
    """They are the bias."""
    node = helper.make_node(op_type, ["x", "w", "b"], ["out"])
    bias = np.array([1.5, -2, 0.5], np.float32)
    infos = [value_info("x", np.float32, [1, 0, "h", "w"])]
    model = make_model([node], infos, ["out"], {"w": np.ones(filters, np.float32), "b": bias}, 20)
    [out] = compiler.compile(model, target=target, cache="off")(np.ones((1, 0, 5, 4), np.float32))
    np.testing.assert_array_equal(out, np.broadcast_to(bias[:, None, None], shape))


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_normalized_sums_over_no_channels(op_type: str) -> None:
    """Normalization is folded into filters that have no elements."""
    filters = np.ones((3, 0, 2, 2) if op_type == "Conv" else (0, 3, 2, 2), np.float32)
    nodes = [helper.make_node(op_type, ["x", "w"], ["sums"]),
             helper.make_node("BatchNormalization", ["sums", *"abmv"], ["out"])]
    rows = dict(zip("abmv", np.linspace(0.5, 2, 12, dtype=np.float32).reshape(4, 3), strict=True))
    model = make_model(nodes, [value_info("x", np.float32, [1, 0, 5, 4])], ["out"],
                       {"w": filters, **rows}, 15)
    cpu, reference = (compiler.compile(model, target=target, cache="off")(
        np.ones((1, 0, 5, 4), np.float32))[0] for target in ("cpu", "reference"))
    np.testing.assert_allclose(cpu, reference, 1e-5)
