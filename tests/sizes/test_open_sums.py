"""Sums along a size that only a call knows are made of parts on a GPU, and right at any size."""

from __future__ import annotations

import numpy as np
import pytest

from dialects.host import LaunchOp
from dialects.host.interpret import interpret_host
from tests.counts.count import SM_90, Subject, lowered
from tests.models.onnx_graph import OnnxGraph

PART = 64


@pytest.mark.parametrize(("shape", "axes"), [
    (["n", 1024], [0]), (["n"], [0]), (["a", "n", 96], [0, 1]), ([3, "n", 64], [1]),
    (["n", "a"], [0, 1]),
], ids=["rows", "all", "two open", "middle", "all of two"])
def test_sums_of_parts(shape: list[int | str], axes: list[int]) -> None:
    g = OnnxGraph({})
    y = g.node("ReduceSum", g.input("x", np.float32, shape), g.integers(*axes), keepdims=0)
    state = lowered(Subject("sum", g.model({"y": y})), SM_90)[1]
    assert sum(isinstance(op, LaunchOp) for op in state.module.walk()) == 2
    for a in (0, 1, 3):
        for n in (0, 1, PART - 1, PART, PART + 1, 4097):
            found = [{"n": n, "a": a}.get(str(d), d) for d in shape]
            x = np.random.default_rng(n).standard_normal(tuple(map(int, found)), np.float32)
            [y] = interpret_host(state.module, [x], state.context.weights)
            np.testing.assert_allclose(y, x.sum(tuple(axes), np.float64), rtol=1e-4, atol=1e-3)
