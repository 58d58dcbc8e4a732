"""Windows larger than the padded input: what onnxruntime and shape inference make of them.

The number of windows is `room / stride + 1`, the quotient rounded toward zero: a single window may
reach over the end by less than a stride. Convolutions have no such window.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import ImportedModel, MemoryModel, load_model
from dialects.strata.assumptions import SizeError
from dialects.strata.binding import EvaluationError
from dialects.strata.types import Array
from tests.frontend.onnx_models import (
    assert_close,
    make_model,
    run_imported,
    run_reference,
    value_info,
)

WINDOWS: list[dict[str, Any]] = [
    {"kernel_shape": [2], "strides": [2]},  # n = 1: one window of one element
    {"kernel_shape": [2], "strides": [4], "pads": [1, 0]},
    {"kernel_shape": [3], "strides": [2], "pads": [1, 1]},
    {"kernel_shape": [3], "strides": [4], "dilations": [2], "pads": [0, 2]},
    {"kernel_shape": [7], "strides": [4]},  # n = 3: no window; n = 2: fewer than none
    {"kernel_shape": [7], "strides": [2], "pads": [0, 2], "ceil_mode": 1},
    {"kernel_shape": [4], "strides": [3], "ceil_mode": 1},
    {"kernel_shape": [3], "strides": [1]},
    {"kernel_shape": [1280], "strides": [1280]},
]
POOLS: list[tuple[str, dict[str, Any]]] = [
    ("MaxPool", {}), ("AveragePool", {}), ("AveragePool", {"count_include_pad": 1}),
    ("LpPool", {"p": 2}),
]


def model(op_type: str, size: int | str, attributes: dict[str, Any]) -> onnx.ModelProto:
    node = helper.make_node(op_type, ["x"], ["y"], **attributes)
    return make_model([node], [value_info("x", np.float32, [2, 3, size])], ["y"], opset=19)


def loaded(proto: onnx.ModelProto) -> ImportedModel:
    return load_model(MemoryModel("model.onnx", proto.SerializeToString()))


def outcome(proto: onnx.ModelProto, x: Array) -> list[Array] | None:
    """What onnxruntime computes; None where it refuses."""
    try:
        return run_reference(proto, {"x": x})
    except Exception:
        return None


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize(("op_type", "more"), POOLS, ids=str)
def test_fixed_and_open_sizes_agree_with_onnxruntime(
    op_type: str, more: dict[str, Any], window: dict[str, Any]
):
    """One import with the size open; another for each size."""
    attributes = {**window, **more}
    open_ = loaded(model(op_type, "n", attributes))
    for n in (1, 2, 3, 4, 5, 8):
        x = np.random.default_rng(n).standard_normal((2, 3, n)).astype(np.float32)
        fixed = model(op_type, n, attributes)
        expected = outcome(fixed, x)
        if expected is None:
            with pytest.raises(StrataError):
                loaded(fixed)
            with pytest.raises((EvaluationError, ValueError)):
                run_imported(open_, {"x": x})
            continue
        assert_close(run_imported(loaded(fixed), {"x": x}), expected, 1e-5)
        assert_close(run_imported(open_, {"x": x}), expected, 1e-5)


@pytest.mark.parametrize(("op_type", "more"), POOLS, ids=str)
def test_code_for_open_sizes(op_type: str, more: dict[str, Any]):
    """Height and width, on the CPU: any of them may be smaller than a window."""
    node = helper.make_node(op_type, ["x"], ["y"], kernel_shape=[3, 2], strides=[3, 2], **more)
    proto = make_model([node], [value_info("x", np.float32, [1, "c", "h", "w"])], ["y"], opset=19)
    compiled = compiler.compile(MemoryModel("model.onnx", proto.SerializeToString()), cache="off")
    for h, w in itertools.product((1, 2, 3, 7), (1, 2, 5)):
        x = np.random.default_rng(h * w).standard_normal((1, 5, h, w)).astype(np.float32)
        assert_close(compiled(x), run_reference(proto, {"x": x}), 1e-5)


@pytest.mark.parametrize("size", [2, "n"])
def test_a_convolution_needs_whole_windows(size: int | str):
    """Also with a stride of which onnxruntime's pools would make one window."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[4])
    proto = make_model([node], [value_info("x", np.float32, [1, 1, size])], ["y"],
                       {"w": np.ones((1, 1, 3), np.float32)})
    x = np.ones((1, 1, 2), np.float32)
    assert outcome(proto, x) is None
    with pytest.raises((StrataError, EvaluationError, SizeError)):
        run_imported(loaded(proto), {"x": x})
