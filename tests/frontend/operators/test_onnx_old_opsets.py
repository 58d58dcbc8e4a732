"""Operators of opsets 1 to 6, which mean something else than those of today."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from compiler.diagnostics import StrataError
from compiler.onnx_backend import run_node
from dialects.strata.types import Array


def run(version: int, op_type: str, inputs: Sequence[Array], **attributes: object) -> Array:
    names = [f"x{k}" for k in range(len(inputs))]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    return run_node(node, inputs, target="reference", opset_version=version)[0]


def counted(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1


X = counted(2, 3, 4)
NEGATIVE = -X


@pytest.mark.parametrize(("y", "axis", "shape"), [
    (counted(4), None, (4,)), (counted(3, 4), None, (3, 4)), (counted(1), None, (1,)),
    (counted(3), 1, (3, 1)), (counted(2), 0, (2, 1, 1)), (counted(2, 3), 0, (2, 3, 1)),
    (counted(3), -2, (3, 1)), (np.float32(3), None, ()),
])
def test_broadcasting_at_an_axis(y: Array, axis: int | None, shape: tuple[int, ...]) -> None:
    attributes = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
    for name, function in (("Sub", np.subtract), ("Div", np.divide), ("Pow", np.power)):
        found = run(6, name, [X, y], **attributes)
        np.testing.assert_allclose(found, function(X, y.reshape(shape)), rtol=1e-5)
    less = run(1, "Less", [X, y], **attributes)
    np.testing.assert_array_equal(less, np.less(X, y.reshape(shape)))


def test_equal_shapes_need_no_attribute() -> None:
    np.testing.assert_array_equal(run(1, "Add", [X, X], consumed_inputs=[0, 0]), X + X)
    both = run(1, "And", [X > 2, X < 5])
    np.testing.assert_array_equal(both, (X > 2) & (X < 5))


@pytest.mark.parametrize(("y", "attributes", "message"), [
    (counted(4), {}, "its attribute broadcast is not set"),
    (counted(2, 1, 4), {}, "its attribute broadcast is not set"),
    (counted(1, 2, 3, 4), {"broadcast": 1}, "has fewer dims"),
    (counted(3, 4), {"broadcast": 1, "axis": 2}, "reaches beyond"),
])
def test_wrong_broadcasting(y: Array, attributes: dict[str, int], message: str) -> None:
    with pytest.raises(StrataError, match=message):
        run(6, "Add", [X, y], **attributes)


def test_slopes_per_channel() -> None:
    for slope, shape in ((counted(3), (3, 1)), (counted(1), (1,))):
        found = run(6, "PRelu", [NEGATIVE, slope])
        np.testing.assert_array_equal(found, NEGATIVE * slope.reshape(shape))


def test_contents_in_attributes() -> None:
    np.testing.assert_array_equal(run(1, "Reshape", [X], shape=[0, -1]), X.reshape(2, 12))
    np.testing.assert_array_equal(run(1, "Cast", [X], to="INT32"), X.astype(np.int32))
    padded = run(1, "Pad", [X], paddings=[0, 1, 0, 0, 0, 2], value=7.0)
    np.testing.assert_array_equal(
        padded, np.pad(X, ((0, 0), (1, 0), (0, 2)), constant_values=7.0))
    image = counted(1, 1, 2, 3)
    larger = run(1, "Upsample", [image], height_scale=2.0, width_scale=3.0, mode="nearest")
    np.testing.assert_array_equal(larger, image.repeat(2, axis=2).repeat(3, axis=3))


def test_tile_repeats_one_axis() -> None:
    found = run(1, "Tile", [X, np.array(3, np.float32), np.array(1, np.float32)])
    np.testing.assert_array_equal(found, np.tile(X, (1, 3, 1)))


def test_defaults() -> None:
    selu = run(1, "Selu", [NEGATIVE])
    np.testing.assert_allclose(selu, 1.0507 * 1.6732 * np.expm1(NEGATIVE), rtol=1e-6)
    np.testing.assert_array_equal(run(6, "Dropout", [X], is_test=1, ratio=0.5), X)
    np.testing.assert_allclose(run(1, "GlobalLpPool", [X], p=3.0)[..., 0],
                               (X**3).sum(axis=2) ** (1 / 3), rtol=1e-5)


def test_faults() -> None:
    with pytest.raises(StrataError, match="training mode"):
        run(6, "Dropout", [X])
    with pytest.raises(StrataError, match="no element type 'FLOAT33'"):
        run(1, "Cast", [X], to="FLOAT33")


def test_a_compiled_broadcast(tmp_path: Path) -> None:
    node = helper.make_node("Mul", ["x", "y"], ["z"], broadcast=1, axis=1)
    (found,) = run_node(node, [X, counted(3)], opset_version=6, cache=tmp_path)
    np.testing.assert_array_equal(found, X * counted(3).reshape(3, 1))
