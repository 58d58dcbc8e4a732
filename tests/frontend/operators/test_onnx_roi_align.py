"""RoiAlign with as many samples in a bin as elements: compiled, and as onnxruntime computes it.

Sizes are open. The regions include none, some without length, some in several images, and some
that reach outside; bins that have no samples are 0.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import compiler
from dialects.strata.types import Array
from tests.frontend.onnx_models import make_model, run_reference, value_info

VARIANTS = [(10, {}), (16, {"mode": "max"}),
            (22, {"spatial_scale": 0.5, "output_height": 1, "output_width": 4})]
OTHERS = [(16, {"coordinate_transformation_mode": "output_half_pixel", "sampling_ratio": 0}),
          (10, {"mode": "max"}), (16, {}), (22, {"mode": "max", "spatial_scale": 2.0}),
          (22, {"sampling_ratio": 3}), (16, {"mode": "max", "sampling_ratio": 1}),
          (16, {"coordinate_transformation_mode": "output_half_pixel", "mode": "max"})]


def regions(rng: np.random.Generator, count: int, height: int, width: int) -> Array:
    corners = rng.uniform(-1.5, max(height, width) + 1, (count, 2, 2))
    found = np.sort(corners, axis=1).reshape(count, 4).astype(np.float32)
    found[::5, 2:] = found[::5, :2]  # no length
    found[1::5, 2] = found[1::5, 0] + 0.25
    return found


@pytest.mark.parametrize(("opset", "attributes"), [
    *VARIANTS, *(pytest.param(*row, marks=pytest.mark.slow) for row in OTHERS)])
def test_adaptive_samples(opset: int, attributes: dict[str, object]):
    node = helper.make_node("RoiAlign", ["x", "r", "b"], ["y"], **{
        "output_height": 2, "output_width": 3, **attributes})
    infos = [value_info("x", np.float32, ["n", "c", "h", "w"]),
             value_info("r", np.float32, ["k", 4]), value_info("b", np.int64, ["k"])]
    model, rng = make_model([node], infos, ["y"], {}, opset), np.random.default_rng(0)
    known = make_model([node], infos, ["y"], {}, min(opset, 16))  # the newest of onnxruntime
    programs = [compiler.compile(model, target=target, cache="off", **options)
                for target, options in (("cpu", {"threads": 1}), ("reference", {}))]
    for shape, count in (((1, 1, 8, 8), 3), ((3, 2, 5, 9), 11), ((2, 1, 1, 4), 2),
                         ((2, 3, 20, 13), 6), ((1, 2, 4, 4), 0)):
        feeds = {"x": rng.standard_normal(shape, np.float32),
                 "r": regions(rng, count, *shape[2:]), "b": rng.integers(0, shape[0], count)}
        [want] = run_reference(known, feeds)
        for program in programs:
            np.testing.assert_allclose(program(**feeds)[0], want, 1e-4, 1e-5)


def test_halves():
    """Coordinates of halves are computed in f32."""
    rng = np.random.default_rng(0)
    node = helper.make_node("RoiAlign", ["x", "r", "b"], ["y"], output_height=2, output_width=2)
    infos = [value_info("x", np.float16, [1, 2, 9, 9]), value_info("r", np.float16, ["k", 4]),
             value_info("b", np.int64, ["k"])]
    model = make_model([node], infos, ["y"], {}, 22)
    x, r = rng.standard_normal((1, 2, 9, 9)).astype(np.float16), regions(rng, 4, 9, 9)
    feeds = {"x": x, "r": r.astype(np.float16), "b": np.zeros(4, np.int64)}
    wide = make_model([node], [value_info(i.name, np.float32 if i.name != "b" else np.int64, None)
                               for i in infos], ["y"], {}, 16)
    want = run_reference(wide, {k: v.astype(np.float32) if k != "b" else v
                                for k, v in feeds.items()})[0]
    got = compiler.compile(model, target="reference", cache="off")(**feeds)[0]
    np.testing.assert_allclose(got.astype(np.float32), want, 1e-2, 1e-2)


def test_a_negative_number_of_samples_is_refused():
    node = helper.make_node("RoiAlign", ["x", "r", "b"], ["y"], sampling_ratio=-1)
    infos = [value_info("x", np.float32, [1, 1, 4, 4]), value_info("r", np.float32, [1, 4]),
             value_info("b", np.int64, [1])]
    with pytest.raises(compiler.StrataError, match="sampling_ratio"):
        compiler.compile(make_model([node], infos, ["y"], {}, 16), cache="off")
