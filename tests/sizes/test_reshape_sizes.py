"""New sizes of Reshape that only a run knows, where 0 copies the size that the dim has.

Sizes come from other shapes, from differences and quotients of them, or from data. onnxruntime says
what comes out, or that the sizes do not fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from tests.frontend.onnx_models import make_model, run_reference, value_info

Array = np.ndarray[Any, np.dtype[Any]]
TARGETS = ("cpu", "reference")
Fail: Any = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state").Fail
node = helper.make_node

NEW_SIZES: dict[str, list[onnx.NodeProto]] = {
    "of another input": [
        node("Shape", ["u"], ["k"]), node("Concat", ["k", "rest"], ["sizes"], axis=0)],
    "of the last dim": [
        node("Shape", ["u"], ["k"]), node("Concat", ["rest", "k"], ["sizes"], axis=0)],
    "a quotient": [
        node("Shape", ["u"], ["s"]), node("Div", ["s", "two"], ["k"]),
        node("Concat", ["k", "rest"], ["sizes"], axis=0)],
    "a difference": [
        node("Shape", ["u"], ["s"]), node("Sub", ["s", "two"], ["k"]),
        node("Concat", ["k", "rest"], ["sizes"], axis=0)],
    "a number of elements": [
        node("NonZero", ["u"], ["places"]), node("Shape", ["places"], ["s"], start=1),
        node("Concat", ["s", "rest"], ["sizes"], axis=0)],
}


def reshape_model(nodes: list[onnx.NodeProto], allowzero: int = 0) -> onnx.ModelProto:
    return make_model(
        [*nodes, node("Reshape", ["x", "sizes"], ["y"], name="new", allowzero=allowzero)],
        [value_info("x", np.float32, ["b", "c"]), value_info("u", np.float32, ["m"])], ["y"],
        {"rest": np.array([-1]), "two": np.array([2])}, 18)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("nodes", NEW_SIZES.values(), ids=NEW_SIZES.keys())
def test_a_computed_size_of_zero_copies_the_dim(nodes: list[onnx.NodeProto], target: str) -> None:
    model = reshape_model(nodes)
    program = compiler.compile(model, target=target, cache="off")
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    shapes: set[tuple[int, ...]] = set()
    for ones in (8, 0, 3, 2, 1, 0):
        feeds = {"x": x, "u": np.ones(ones, np.float32)}
        try:
            [want] = run_reference(model, feeds)
        except Fail:
            with pytest.raises(ValueError):
                program(**feeds)
            continue
        got = np.asarray(program(**feeds)[0])
        np.testing.assert_array_equal(got, want)
        shapes.add(got.shape)
    assert (6, 4) in shapes and len(shapes) > 1, "some copies the dim, and some does not"


@pytest.mark.parametrize("target", TARGETS)
def test_with_allowzero_nothing_is_copied(target: str) -> None:
    model = reshape_model([node("Shape", ["u"], ["k"]),
                           node("Concat", ["k", "two"], ["sizes"], axis=0)], allowzero=1)
    program = compiler.compile(model, target=target, cache="off")
    for x, ones in (((6, 4), 12), ((0, 4), 0), ((3, 0), 0), ((1, 2), 1)):
        feeds = {"x": np.ones(x, np.float32), "u": np.ones(ones, np.float32)}
        assert np.asarray(program(**feeds)[0]).shape == (ones, 2)
    with pytest.raises(ValueError, match="'new'"):
        program(np.ones((6, 4), np.float32), np.ones(0, np.float32))


@pytest.mark.parametrize("target", TARGETS)
def test_a_tensor_without_elements_keeps_its_sizes_of_zero(target: str) -> None:
    """No other program is needed, since nothing could be copied into it."""
    model = reshape_model([node("Shape", ["x"], ["s"]), node("ReduceProd", ["s"], ["sizes"])])
    program = compiler.compile(model, target=target, cache="off")
    for x in ((6, 4), (0, 4), (0, 0)):
        assert np.asarray(program(np.ones(x, np.float32), np.ones(1, np.float32))[0]).shape == (
            x[0] * x[1],)


@pytest.mark.parametrize("target", TARGETS)
def test_a_size_of_zero_that_is_copied_decides_what_remains(target: str) -> None:
    """[n, 0] to its last size and -1 is [n, 0], as [0, -1] is."""
    nodes = [node("Shape", ["x"], ["k"], start=1),
             node("Concat", ["k", "rest"], ["sizes"], axis=0)]
    program = compiler.compile(reshape_model(nodes), target=target, cache="off")
    for x in ((3, 4), (3, 0), (1, 0), (4, 6), (2, 3)):
        feeds = {"x": np.ones(x, np.float32), "u": np.ones(1, np.float32)}
        [want] = run_reference(reshape_model(nodes), feeds)
        assert np.asarray(program(**feeds)[0]).shape == want.shape
