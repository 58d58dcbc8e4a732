"""Operators whose axes, sizes and lengths only a run knows, at several of them with one program."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from tests.frontend.onnx_models import make_model, run_reference, value_info

TARGETS = ("cpu", "reference")


def model_of(op_type: str, opset: int, inputs: dict[str, tuple[Any, list[Any]]],
             names: str = "", **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(op_type, names.split(" ") if names else list(inputs), ["y"],
                            name="node", **attributes)
    return make_model([node], [value_info(k, *v) for k, v in inputs.items()], ["y"], {}, opset)


@pytest.mark.parametrize("target", TARGETS)
def test_hardmax_over_an_axis_that_may_be_empty(target: str) -> None:
    model = model_of("Hardmax", 13, {"x": (np.float32, ["n", "m"])}, axis=1)
    program = compiler.compile(model, target=target, cache="off")
    x = np.array([[1, 3, 2], [2, 2, 1]], np.float32)
    for given in (x, x[:, :0], x[:0], x[:, :1]):
        [want], got = run_reference(model, {"x": given}), np.asarray(program(given)[0])
        assert got.shape == want.shape
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", TARGETS)
def test_sums_along_an_axis_that_is_an_input(target: str) -> None:
    model = model_of("CumSum", 14, {"x": (np.float32, ["n", "m", 2]), "k": (np.int64, [])},
                     exclusive=1)
    program = compiler.compile(model, target=target, cache="off")
    x = np.random.default_rng(0).standard_normal((3, 4, 2)).astype(np.float32)
    for axis in range(-3, 3):
        feeds = {"x": x, "k": np.array(axis)}
        np.testing.assert_allclose(program(**feeds)[0], run_reference(model, feeds)[0], 1e-5, 1e-6)
    with pytest.raises((ValueError, IndexError)):
        program(x, np.array(3))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ["constant", "edge"])
def test_pads_of_axes_that_are_inputs(mode: str, target: str) -> None:
    inputs = {"x": (np.float32, ["n", "m"]), "p": (np.int64, [4]), "a": (np.int64, [2])}
    model = model_of("Pad", 18, inputs, "x p  a", mode=mode)
    program = compiler.compile(model, target=target, cache="off")
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    for pads, axes in (([1, 2, 0, 3], [0, 1]), ([1, 2, 0, 3], [1, 0]), ([0, -1, 2, 0], [-1, -2])):
        feeds = {"x": x, "p": np.array(pads), "a": np.array(axes)}
        np.testing.assert_array_equal(program(**feeds)[0], run_reference(model, feeds)[0])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("dims", [2, 3])
def test_grids_of_sizes_that_are_inputs(dims: int, corners: int, target: str) -> None:
    inputs = {"t": (np.float32, ["n", dims, dims + 1]), "s": (np.int64, [dims + 2])}
    model = model_of("AffineGrid", 20, inputs, align_corners=corners)
    program = compiler.compile(model, target=target, cache="off")
    theta = np.random.default_rng(0).standard_normal((2, dims, dims + 1)).astype(np.float32)
    for sizes in ([2, 3, 4, 5, 6], [2, 1, 7, 2, 3]):
        feeds = {"t": theta, "s": np.array(sizes[:dims + 2])}
        np.testing.assert_allclose(program(**feeds)[0], run_reference(model, feeds)[0], 1e-5, 1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("inverse", "onesided"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_transforms_of_open_lengths(inverse: int, onesided: int, target: str) -> None:
    """Of the size of x, and of a length that is an input, which cuts x or adds zeros."""
    parts = 1 if onesided and not inverse else 2
    x_type = (np.float32, ["a", "n", parts])
    plain = model_of("DFT", 17, {"x": x_type}, axis=1, inverse=inverse, onesided=onesided)
    given = model_of("DFT", 17, {"x": x_type, "l": (np.int64, [])}, axis=1, inverse=inverse,
                     onesided=onesided)
    programs = [compiler.compile(m, target=target, cache="off") for m in (plain, given)]
    for size, length in ((5, 5), (8, 8), (5, 9), (9, 4)):
        x = np.random.default_rng(size).standard_normal((2, size, parts)).astype(np.float32)
        z = x[..., 0] + 1j * x[..., -1] if parts == 2 else x[..., 0]
        own = 2 * (size - 1) if inverse and onesided else size
        for got, points in ((programs[0](x)[0], own), (programs[1](x, np.array(length))[0],
                                                       length)):
            transform = (np.fft.irfft if onesided else np.fft.ifft) if inverse else (
                np.fft.rfft if onesided else np.fft.fft)
            want = transform(z, n=points, axis=1)
            pairs = want[..., None] if inverse and onesided else np.stack([want.real, want.imag],
                                                                          -1)
            np.testing.assert_allclose(got, pairs, 1e-4, 1e-5)
    assert programs[1](np.ones((1, 3, parts), np.float32), np.array(4))[0].shape[0] == 1
    with pytest.raises(ValueError, match="4096"):
        programs[1](np.ones((1, 3, parts), np.float32), np.array(4097))
