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


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("inverse", "onesided", "given"), [
    (0, 0, False), (1, 0, True), (0, 1, False), (0, 1, True)])
def test_transforms_along_an_axis_that_is_an_input(
    inverse: int, onesided: int, given: bool, target: str
) -> None:
    parts = 1 if onesided else 2
    inputs = {"x": (np.float32, ["a", "b", "c", parts]), "k": (np.int64, [])}
    inputs |= {"l": (np.int64, [])} if given else {}
    model = model_of("DFT", 20, inputs, f"x {'l' if given else ''} k", inverse=inverse,
                     onesided=onesided)
    program = compiler.compile(model, target=target, cache="off")
    for shape, axis in (((3, 4, 5), 0), ((2, 3, 1), 1), ((6, 2, 2), -2), ((4, 1, 3), -4)):
        x = np.random.default_rng(0).standard_normal((*shape, parts)).astype(np.float32)
        z = x[..., 0] if onesided else x[..., 0] + 1j * x[..., 1]
        transform = np.fft.rfft if onesided else np.fft.ifft if inverse else np.fft.fft
        want = transform(z, n=4 if given else None, axis=axis % 4)
        [got] = program(x, np.array(axis), *([np.array(4)] if given else []))
        np.testing.assert_allclose(got, np.stack([want.real, want.imag], -1), 1e-4, 1e-5)
    for outside in (3, -1, -5):  # the last dim has the parts of complex numbers
        with pytest.raises((ValueError, IndexError), match="node"):
            program(x, np.array(outside), *([np.array(4)] if given else []))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("names", ["s", "l", "s l", "s w", "s w l", "w"])
def test_transforms_of_frames_whose_steps_and_lengths_are_inputs(names: str, target: str) -> None:
    """`s`: the step, `l`: the length of a frame, `w`: a window, whose size is the length, too."""
    types = {"x": (np.float32, ["n", "t", 1]), "s": (np.int64, []), "w": (np.float32, ["k"]),
             "l": (np.int64, [])}
    constants = {"s": np.array(3)} if "s" not in names else {}
    constants |= {"l": np.array(8)} if names == "s" else {}
    operands = [name if name in "x " + names or name in constants else "" for name in types]
    node = helper.make_node("STFT", operands, ["y"], name="node")
    model = make_model([node], [value_info(k, *types[k]) for k in ("x", *names.split())], ["y"],
                       constants, 17)
    program = compiler.compile(model, target=target, cache="off")
    for size, step, length in ((32, 3, 8), (20, 5, 8), (9, 1, 9), (40, 2, 6)):
        length = 8 if names == "s" else length
        values = {"x": np.random.default_rng(0).standard_normal((2, size, 1)).astype(np.float32),
                  "s": np.array(step), "l": np.array(length),
                  "w": np.hanning(length).astype(np.float32)}
        feeds = {name: values[name] for name in ("x", *names.split())}
        [got], [want] = program(**feeds), run_reference(model, feeds)
        np.testing.assert_allclose(got, want, 1e-4, 1e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_filters_whose_arguments_are_inputs(target: str) -> None:
    """The counts and the range of frequencies, and the same as constants."""
    types = {"bins": np.int64, "length": np.int64, "rate": np.int64, "low": np.float32,
             "high": np.float32}
    model = model_of("MelWeightMatrix", 17, {name: (type_, []) for name, type_ in types.items()})
    program = compiler.compile(model, target=target, cache="off")
    for numbers in ((8, 16, 8192, 0, 4096), (20, 64, 16000, 20, 8000), (40, 32, 8000, 0, 4000),
                    (1, 10, 44100, 100, 5000), (5, 16, 16000, 0, 16000)):
        feeds = {name: np.array(v, type_)
                 for (name, type_), v in zip(types.items(), numbers, strict=True)}
        known = make_model(list(model.graph.node), [], ["y"], feeds, 17)
        [got] = program(**feeds)
        np.testing.assert_allclose(
            compiler.compile(known, target=target, cache="off")()[0], got, 1e-5, 1e-6)
        if numbers[-1] <= numbers[2] / 2:  # no filter is beyond the spectrum
            np.testing.assert_allclose(got, run_reference(model, feeds)[0], 1e-5, 1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("known", ["", "i", "b"])
def test_images_of_sizes_that_are_inputs(known: str, target: str) -> None:
    """The image's sizes `i` and the block's `b`; each may be a constant instead."""
    settings = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 1, 2]}
    cases = [((5, 6), (2, 2)), ((5, 6), (3, 2)), ((9, 4), (2, 2))]
    cases = [case for case in cases if all(
        case[k] == cases[0][k] for k, name in enumerate("ib") if name in known)]
    inputs = {"x": (np.float32, ["n", "c", "l"]), "i": (np.int64, [2]), "b": (np.int64, [2])}
    constants = {name: np.array(cases[0]["ib".index(name)]) for name in known}
    node = helper.make_node("Col2Im", list(inputs), ["y"], name="node", **settings)
    infos = [value_info(k, *v) for k, v in inputs.items() if k not in constants]
    program = compiler.compile(make_model([node], infos, ["y"], constants, 18), target=target,
                               cache="off")
    for image, block in cases:
        blocks = [(size + low + high - by * (k - 1) - 1) // step + 1 for size, k, step, by, low,
                  high in zip(image, block, (2, 1), (1, 2), (1, 0), (1, 2), strict=True)]
        shape = 2, 3, *block, *blocks
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        want = np.zeros((2, 3, *image), np.float32)
        for k, m, i, j in np.ndindex(*shape[2:]):
            place = 2 * i + k - 1, j + 2 * m
            if place[0] in range(image[0]) and place[1] in range(image[1]):
                want[:, :, *place] += x[:, :, k, m, i, j]
        feeds = {"x": x.reshape(2, 3 * block[0] * block[1], -1), "i": np.array(image),
                 "b": np.array(block)}
        given = {name: value for name, value in feeds.items() if name not in constants}
        np.testing.assert_allclose(program(**given)[0], want, 1e-5, 1e-5)
    with pytest.raises(ValueError, match="node"):  # the blocks are not those of the sizes
        program(**given | {"x": given["x"][:, :, 1:]})
