"""Crops by Resize at ties: which element of x is nearest, and which result lies outside of x."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import compiler
from tests.frontend.onnx_models import make_model, value_info


def at_ties(rng: np.random.Generator, size: int) -> float:
    """A place between elements, or on one, in parts of a dim; also a little outside of it."""
    return rng.integers(-1, 2 * size) / 2 / max(size - 1, 1)


@pytest.mark.parametrize("rule", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_crops_at_ties(rule: str) -> None:
    """The element that ONNX's reference implementation takes, also where rounding decides."""
    node = helper.make_node("Resize", ["x", "roi", "", "sizes"], ["y"], nearest_mode=rule,
                            mode="nearest", coordinate_transformation_mode="tf_crop_and_resize",
                            extrapolation_value=-1.0, axes=[0])
    infos = [value_info("x", np.float32, ["n"]), value_info("roi", np.float32, [2]),
             value_info("sizes", np.int64, [1])]
    model = make_model([node], infos, ["y"], {}, 19)
    programs = [compiler.compile(model, target=target, cache="off")
                for target in ("cpu", "reference")]
    definition, rng, moved = ReferenceEvaluator(model), np.random.default_rng(0), 0
    for _ in range(150):
        size, wanted = (int(v) for v in rng.integers(1, 14, 2))
        if np.float32(wanted) / size * np.float32(size) != wanted:
            continue  # the implementation's width is a little off
        region = np.array([at_ties(rng, size), at_ties(rng, size)])
        feeds = {"x": np.arange(size, dtype=np.float32), "roi": region.astype(np.float32),
                 "sizes": np.array([wanted])}
        [want] = definition.run(None, feeds)
        for program in programs:
            np.testing.assert_array_equal(program(**feeds)[0], want, str(feeds))
        step = (region[1] - region[0]) * (size - 1) / max(wanted - 1, 1)
        exact = region[0] * (size - 1) + step * np.arange(wanted)
        moved += np.any(exact * 2 == np.rint(exact * 2))
    assert moved > 50
