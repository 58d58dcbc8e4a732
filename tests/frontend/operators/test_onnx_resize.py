"""Resize in all its variants: a sweep of attributes, sizes and types against ONNX's definition.

`expected` writes the definition once more: a matrix of weights per axis, in f64. Each variant is
imported twice, with fixed and with open sizes, and interpreted; a few share a compiled model.
Linear interpolation of bytes and i32 is onnxruntime's, which truncates instead of rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.frontend import MemoryModel, load_model
from dialects.strata.types import Array
from tests.frontend.onnx_models import make_model, run_imported, run_reference, value_info

NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
RULES = ("half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric",
         "pytorch_half_pixel", "tf_crop_and_resize")
SCALES = (1.0, 2.0, 3.0, 0.5, 0.6, 1.7, 2.5, 0.8, 0.3)


@dataclass
class Case:
    """A node: its input, attributes, and scales or sizes of the axes."""

    x: Array
    axes: list[int]
    attributes: dict[str, Any]
    scales: list[float] | None = None
    sizes: list[int] | None = None
    roi: list[float] | None = None

    def text(self, name: str, default: str) -> str:
        return self.attributes.get(name, default)

    @property
    def constants(self) -> dict[str, Array]:
        found = {"scales": None if self.scales is None else np.array(self.scales, np.float32),
                 "sizes": None if self.sizes is None else np.array(self.sizes, np.int64),
                 "roi": None if self.roi is None else np.array(self.roi, np.float32)}
        return {name: value for name, value in found.items() if value is not None}

    def node(self, k: int = 0) -> onnx.NodeProto:
        names = [f"{name}{k}" if name in self.constants else "" for name in (
            "roi", "scales", "sizes")]
        return helper.make_node("Resize", [f"x{k}", *names], [f"y{k}"], **self.attributes)


def model_of(cases: Sequence[Case], is_open: bool, opset: int = 19) -> onnx.ModelProto:
    """A model with a node, and an input, for each case."""
    infos, constants = [], dict[str, Array]()
    for k, case in enumerate(cases):
        shape = [f"n{k}d{d}" if is_open else s for d, s in enumerate(case.x.shape)]
        infos.append(value_info(f"x{k}", case.x.dtype, shape))
        constants |= {f"{name}{k}": value for name, value in case.constants.items()}
    nodes = [case.node(k) for k, case in enumerate(cases)]
    return make_model(nodes, infos, [f"y{k}" for k in range(len(cases))], constants, opset)


def interpreted(case: Case, is_open: bool) -> Array:
    model = model_of([case], is_open)
    imported = load_model(MemoryModel("model.onnx", model.SerializeToString()))
    return run_imported(imported, {"x0": case.x})[0]


# ---------------------------------------------------------------------- the definition
def expected(case: Case) -> Array:
    shape, factors = sizes_of(case)
    value, outside = case.x.astype(np.float64), np.zeros([1] * case.x.ndim, bool)
    for k, axis in enumerate(case.axes):
        size, count, scale = case.x.shape[axis], shape[k], factors[k]
        region = (0.0, 1.0)
        if case.roi is not None:
            region = case.roi[k], case.roi[k + len(case.axes)]
        if size == count and scale == 1 and region == (0.0, 1.0):
            continue
        where = coordinates(case, size, count, scale, region)
        matrix = np.array([weights(case, c, size, scale) for c in where]).reshape(count, size)
        value = np.moveaxis(np.tensordot(matrix, value, (1, axis)), 0, axis)
        where = where.astype(np.float32 if is_truncated(case) else np.float64)
        beyond = (where < 0) | (where > size - 1)
        outside = outside | beyond.reshape([-1 if d == axis else 1 for d in range(case.x.ndim)])
    if case.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        value = np.where(outside, case.attributes.get("extrapolation_value", 0.0), value)
    if case.x.dtype.kind == "f":
        return value.astype(case.x.dtype)
    limits = np.iinfo(case.x.dtype)
    whole = np.round(np.round(value * 2.0**32) / 2.0**32)  # a tie, but for the rounding of f64
    return np.clip(whole, limits.min, limits.max).astype(case.x.dtype)


def is_truncated(case: Case) -> bool:
    """Whether the definition is onnxruntime's, which computes in f32."""
    return case.x.dtype.name in ("uint8", "int8", "int32") and (
        case.text("mode", "nearest") == "linear" and not case.attributes.get("antialias"))


def sizes_of(case: Case) -> tuple[list[int], list[float]]:
    given = [case.x.shape[a] for a in case.axes]
    if case.scales is not None:
        return [int(np.floor(np.float32(s) * np.float32(f)))
                for s, f in zip(given, case.scales, strict=True)], case.scales
    assert case.sizes is not None
    ratios = [w / s for w, s in zip(case.sizes, given, strict=True)]
    policy = case.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return case.sizes, ratios
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [int(ratio * s + 0.5) for s in given], [ratio] * len(given)


def coordinates(case: Case, size: int, count: int, scale: float,
                region: tuple[float, float]) -> Array:
    p, width = np.arange(count, dtype=np.float64), scale * size
    rule, mode = (case.text(name, default) for name, default in (
        ("coordinate_transformation_mode", "half_pixel"), ("mode", "nearest")))
    half = (p + 0.5) / scale - 0.5
    start, end = np.float32(region)  # what is computed of them alone is rounded
    match rule:
        case "align_corners":
            width = count if mode == "nearest" else width
            return p * (size - 1) / (width - 1) if abs(width - 1) > 1e-9 else 0 * p
        case "asymmetric":
            return p / scale
        case "tf_crop_and_resize":
            first, length = start * np.float32(size - 1), end - start
            if count == 1:
                return np.full(1, np.float64(length * np.float32(size - 1) / 2) + first)
            return first + p * np.float64(length) * (size - 1) / (count - 1)
        case "pytorch_half_pixel":
            return half if count != 1 else 0 * p
        case "half_pixel_symmetric":
            return size / 2 * (1 - count / width) + half
        case _:
            return half


def weights(case: Case, c: float, size: int, scale: float) -> Array:
    """The weight of each element for the result at a coordinate."""
    mode, found = case.text("mode", "nearest"), np.zeros(size)
    near = 1e-9  # a coordinate that is a whole number, but for the rounding of f64
    if mode == "nearest":
        rule = case.text("nearest_mode", "round_prefer_floor")
        place = {"floor": np.floor(c + near), "ceil": np.ceil(c - near),
                 "round_prefer_floor": np.ceil(c - 0.5 - near),
                 "round_prefer_ceil": np.floor(c + 0.5 + near)}[rule]
        found[int(np.clip(place, 0, size - 1))] = 1
        return found
    narrow = min(scale, 1.0) if case.attributes.get("antialias") else 1.0
    far = int(np.ceil(2 / narrow)) + 1
    places = int(np.floor(c)) + np.arange(-far, far + 2)
    own = kernel(mode, np.abs(places - c) * narrow, case.attributes.get("cubic_coeff_a", -0.75))
    if case.attributes.get("exclude_outside"):
        own = np.where((places >= 0) & (places < size), own, 0)
    if own.sum() and (narrow < 1 or case.attributes.get("exclude_outside")):
        own = own / own.sum()
    np.add.at(found, np.clip(places, 0, size - 1), own)
    return found


def kernel(mode: str, d: Array, a: float) -> Array:
    if mode == "linear":
        return np.clip(1 - d, 0, 1)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    return np.where(d <= 1, near, np.where(d < 2, a * (d**3 - 5 * d**2 + 8 * d - 4), 0))


# ---------------------------------------------------------------------- the sweep
def made(seed: int, dtype: str) -> Case:
    """A case that random choices make: rank, axes, mode, and all attributes."""
    rng = np.random.default_rng(seed)
    rank = int(rng.choice([1, 2, 3, 4, 5]))
    few = min(int(rng.choice([1, 2, 3])), rank)
    axes = sorted(rng.permutation(rank)[:few].tolist())
    mode = ("nearest", "linear", "cubic")[seed % 3]
    attributes: dict[str, Any] = {"mode": mode, "axes": [
        a - rank * int(rng.random() < 0.3) for a in axes]}
    attributes["coordinate_transformation_mode"] = RULES[seed // 3 % 6]
    attributes["nearest_mode"] = NEAREST[seed // 18 % 4]
    options = {"cubic_coeff_a": float(rng.choice([-0.5, -0.3])), "exclude_outside": 1,
               "antialias": 1} if mode != "nearest" else {}
    options["extrapolation_value"] = float(rng.choice([7.0, -3.5]))
    attributes |= {name: v for name, v in options.items() if rng.random() < 0.35}
    shape = [int(rng.choice([1, 2, 3, 5, 7])) for _ in range(rank)]
    x = rng.uniform(-100, 100, shape).astype(dtype) if dtype != "uint8" else (
        rng.integers(0, 256, shape, np.uint8))
    scales = [float(rng.choice(SCALES)) for _ in axes]
    roi = [float(rng.choice(v)) for v in ((0, 0.2, -0.3), (1, 0.6, 1.4)) for _ in axes]
    case = Case(x, axes, attributes, roi=roi if RULES[seed // 3 % 6].startswith("tf") else None)
    if rng.random() < 0.5:
        case.scales = scales
        return case
    case.sizes = [max(1, int(shape[a] * s)) for a, s in zip(axes, scales, strict=True)]
    if rng.random() < 0.4:
        attributes["keep_aspect_ratio_policy"] = str(rng.choice(["not_larger", "not_smaller"]))
    return case


def check(case: Case, got: Array, what: str) -> None:
    """Truncated integers may differ by 1 from rounded ones; others are equal.

    f64 cannot always tell which element is nearest to a coordinate that a factor rounds.
    """
    want = expected(case)
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    truncated = is_truncated(case)
    off = np.abs(got.astype(np.float64) - want.astype(np.float64))
    kept = "keep_aspect_ratio_policy" in case.attributes
    if kept and case.text("mode", "nearest") == "nearest" and got.size:
        assert (off > 0).mean() <= 0.1, f"{what}: {case}"
    elif case.x.dtype.kind == "f":
        assert (off <= 1e-3 * (1 + np.abs(want))).all(), f"{what}: {case}"
    else:
        assert off.max(initial=0) <= int(truncated), f"{what}: {case}"


DTYPES = ("float32", "uint8", "int32", "float32", "int64", "int8", "float64", "uint16")


@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=pytest.mark.slow)
                                       for k in range(1, 16))])
def test_every_variant_at_fixed_and_open_sizes(part: int):
    for seed in range(part * 72, part * 72 + 72):
        case = made(seed, DTYPES[(seed + seed // 8) % 8])
        fixed = interpreted(case, False)
        check(case, fixed, f"fixed sizes, seed {seed}")
        check(case, interpreted(case, True), f"open sizes, seed {seed}")


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_compiled_variants(mode: str):
    """One model with a node for each rule, and for antialiasing and integers, at open sizes."""
    rng = np.random.default_rng(1)
    cases: list[Case] = []
    for k, rule in enumerate(RULES):
        attributes = {"mode": mode, "coordinate_transformation_mode": rule, "axes": [1],
                      "nearest_mode": NEAREST[k % 4], "antialias": int(mode != "nearest" and k > 3)}
        dtype = ("float32", "uint8", "int64")[k % 3]
        x = rng.uniform(0, 200, (3, 7)).astype(dtype)
        roi = [0.2, 1.1] if rule == "tf_crop_and_resize" else None
        cases.append(Case(x, [1], attributes, scales=[(1.7, 0.6)[k % 2]], roi=roi))
    program = compiler.compile(model_of(cases, True), cache="off", threads=1)
    for case, got in zip(cases, program(*(case.x for case in cases)), strict=True):
        check(case, np.asarray(got), "compiled")


# ---------------------------------------------------------------------- integers, and onnxruntime
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_linear_integers_as_onnxruntime(dtype: str):
    """Truncated, to the bit: factors of 3 give whole numbers that rounding errors decide."""
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -2000), min(limits.max, 2000)
    rng = np.random.default_rng(0)
    for shape, scales in (([1, 1, 5, 6], [1, 1, 2, 2]), ([1, 2, 9, 7], [1, 1, 3, 3]),
                          ([7, 9], [1.7, 0.6]), ([1, 3, 8, 6], [1, 1, 0.5, 1.3]),
                          ([1, 1, 3, 4, 5], [1, 1, 3, 1.5, 0.7])):
        whole = all(float(scale).is_integer() for scale in scales)
        for rule in ("half_pixel", "asymmetric", "pytorch_half_pixel",
                     *(["align_corners"] if whole else [])):
            x = rng.integers(low, high, shape, dtype)
            attributes = {"mode": "linear", "coordinate_transformation_mode": rule}
            case = Case(x, [*range(len(shape))], attributes, scales=[float(s) for s in scales])
            [want] = run_reference(model_of([case], False), {"x0": x})
            np.testing.assert_array_equal(interpreted(case, False), want, str(case))
            np.testing.assert_array_equal(interpreted(case, True), want, str(case))
            given = replace(case, scales=None, sizes=[*want.shape])  # of all axes, open or not
            [same] = run_reference(model_of([given], False), {"x0": x})
            for is_open in (False, True):
                np.testing.assert_array_equal(interpreted(given, is_open), same, str(given))
            if shape == [1, 2, 9, 7] and rule != "asymmetric":
                program = compiler.compile(model_of([case], False), cache="off", threads=1)
                np.testing.assert_array_equal(np.asarray(program(x)[0]), want, str(case))


@pytest.mark.parametrize("is_open", [False, True], ids=["fixed", "open"])
def test_the_middle_of_symmetric_lines_is_exact(is_open: bool):
    """Rounded up or down, the middle of an odd number of results is the middle of x."""
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel_symmetric"}
    cases = [Case(np.arange(size, dtype=np.float32), [0], {**attributes, "nearest_mode": rule},
                  scales=[scale])
             for scale in (*SCALES, 1.1, 1.3) for size in (3, 7, 11) for rule in ("ceil", "floor")
             if int(np.float32(size) * np.float32(scale)) % 2]
    assert len(cases) > 20
    model = MemoryModel("lines.onnx", model_of(cases, is_open).SerializeToString())
    program = compiler.compile(model, cache="off", tuned="off", threads=1)
    for case, got in zip(cases, program(*(case.x for case in cases)), strict=True):
        for result in (np.asarray(got), interpreted(case, is_open)):
            assert result[len(result) // 2] == len(case.x) // 2, case


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiased_bytes_as_onnxruntime(mode: str):
    """Along one axis, except at ties: onnxruntime rounds them up, ONNX's evaluator to even."""
    rng = np.random.default_rng(0)
    for scale in (0.5, 0.25, 0.6):
        x = rng.integers(0, 256, (1, 1, 8, 8), np.uint8)
        case = Case(x, [3], {"mode": mode, "antialias": 1, "axes": [3]}, scales=[scale])
        [want], got = run_reference(model_of([case], False), {"x0": x}), interpreted(case, False)
        exact = expected(Case(x.astype(np.float64), [3], case.attributes, scales=[scale]))
        tie = np.abs(exact - np.floor(exact) - 0.5) < 1e-6
        np.testing.assert_array_equal(got[~tie], want[~tie])


def test_results_are_cut_to_the_range_of_bytes():
    x = np.array([[0, 0, 255, 255, 0, 0, 255]], np.uint8)
    case = Case(x, [1], {"mode": "cubic", "axes": [1]}, scales=[2.0])
    want = expected(case)
    assert 0 in want
    assert 255 in want
    np.testing.assert_array_equal(interpreted(case, True), want)


# ---------------------------------------------------------------------- operands known to a run
def test_scales_and_regions_that_are_inputs():
    """Results are as large as the scales say; coordinates are computed from them."""
    rng = np.random.default_rng(0)
    for mode in ("nearest", "linear", "cubic"):
        attributes = {"mode": mode, "coordinate_transformation_mode": "half_pixel"}
        node = helper.make_node("Resize", ["x", "", "s"], ["y"], **attributes)
        infos = [value_info("x", np.float32, ["a", "b", "c", "d"]),
                 value_info("s", np.float32, [4])]
        model = make_model([node], infos, ["y"], {}, 19)
        imported = load_model(MemoryModel("model.onnx", model.SerializeToString()))
        for scales in ([1, 1, 2, 3], [1, 1, 0.5, 1.7], [1, 1, 1, 1]):
            x = rng.standard_normal((1, 2, 5, 7), np.float32)
            feeds = {"x": x, "s": np.array(scales, np.float32)}
            [got], [want] = run_imported(imported, feeds), run_reference(model, feeds)
            np.testing.assert_allclose(got, want, 1e-4, 1e-5)
    node = helper.make_node("Resize", ["x", "r", "", "z"], ["y"], mode="linear", axes=[2, 3],
                            coordinate_transformation_mode="tf_crop_and_resize")
    infos = [value_info("x", np.float32, ["a", "b", "c", "d"]), value_info("r", np.float32, [4]),
             value_info("z", np.int64, [2])]
    model = make_model([node], infos, ["y"], {}, 19)
    program = compiler.compile(model, cache="off", threads=1)
    for roi, sizes in (([0.1, 0, 0.9, 0.5], [3, 4]), ([-0.2, 0.3, 1.2, 0.7], [6, 1])):
        feeds = {"x": rng.standard_normal((1, 2, 5, 7), np.float32),
                 "r": np.array(roi, np.float32), "z": np.array(sizes)}
        [got], [want] = program(**feeds), run_reference(model, feeds)
        np.testing.assert_allclose(got, want, 1e-4, 1e-5)


# ---------------------------------------------------------------------- old versions
OLD: Sequence[tuple[str, int]] = (("Upsample", 7), ("Upsample", 9), ("Resize", 10))


@pytest.mark.parametrize(("op", "opset"), OLD)
@pytest.mark.parametrize("scales_are", ["constants", "inputs"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_old_versions(op: str, opset: int, mode: str, scales_are: str):
    """Axes that become larger round down, axes that become smaller round up, also at once.

    Which axes onnxruntime mixes, and so the last bit of its sums of integers, follows from scales.
    """
    if scales_are == "inputs" and opset == 7:
        pytest.skip("its scales are attributes")
    rng = np.random.default_rng(0)
    rows = [[1, 1, 2, 3], [1, 1, 1.5, 2.5], *([[1, 1, 2, 0.6], [1, 1, 0.7, 1.7], [1, 1, 0.5, 0.6]]
                                              if op == "Resize" else [])]
    for scales, dtype in ((s, d) for s in rows for d in (np.float32, np.uint8, np.int32)):
        x = rng.uniform(0, 200, (1, 2, 6, 7)).astype(dtype)
        constants: Mapping[str, Array] = {"s": np.array(scales, np.float32)} if opset > 7 else {}
        given = {} if opset > 7 else {"scales": list(map(float, scales))}
        node = helper.make_node(op, ["x", *constants], ["y"], mode=mode, **given)
        infos, feeds = [value_info("x", dtype, ["a", "b", "c", "d"])], {"x": x}
        if scales_are == "inputs":
            infos, feeds = [*infos, value_info("s", np.float32, [4])], {"x": x, **constants}
            constants = {}
        model = make_model([node], infos, ["y"], constants, opset)
        imported = load_model(MemoryModel("model.onnx", model.SerializeToString()))
        [got], [want] = run_imported(imported, feeds), run_reference(model, feeds)
        step = scales_are == "inputs" and mode == "linear" and dtype != np.float32
        np.testing.assert_allclose(got, want, 1e-5, 1 if step else 1e-5, err_msg=str(scales))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_dims_that_only_a_run_leaves_alone_are_not_mixed(mode: str):
    """Infinity in a neighbour does not reach an element: it would be weighed by 0, which is NaN."""
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 5)).astype(np.float32)
    x[0, 1, 2, 3], x[1, 0, 5, 0] = np.inf, -np.inf
    sizes = [2, 3, 6, 10]
    cases = [Case(x, [0, 1, 2, 3], {"mode": mode, "coordinate_transformation_mode": rule},
                  sizes=sizes)
             for rule in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")]
    program = compiler.compile(model_of(cases, True), cache="off", threads=1)
    for given in (x, x[:, :, :4, :1], x[:1, :2]):  # in the others, these dims grow
        for case, got in zip(cases, program(*(given for _ in cases)), strict=True):
            with np.errstate(invalid="ignore"):
                want = interpreted(replace(case, x=given), False)
            assert np.isnan(want).mean() < 0.2, "not all is NaN"
            np.testing.assert_allclose(np.asarray(got), want, 1e-4, 1e-5,
                                       err_msg=str(case.attributes))
