"""Choices inside the bodies of If and Loop: Squeeze without axes, where only a call knows which
sizes are 1. A call that breaks such a choice gets other code, also where the body has no operation
for the sizes that it was built for, so that nothing but the choice is left of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import compiler
from compiler.frontend import MemoryModel
from tests.frontend.onnx_models import run_reference

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
SHAPES = ((2, 3), (1, 3), (3, 1), (1, 1))
BRANCHES = {
    "one": """
        y = If(c) <then_branch = t () => (a) { a = Squeeze(x) },
                   else_branch = e () => (b) { b = Identity(x) }>""",
    "both": """
        y = If(c) <then_branch = t () => (a) { a = Squeeze(x) },
                   else_branch = e () => (b) { b = Squeeze(x) }>""",
    "nested": """
        y = If(c) <
            then_branch = t () => (a) {
                a = If(c) <then_branch = tt () => (aa) { aa = Squeeze(x) },
                           else_branch = te () => (ab) { ab = Identity(x) }> },
            else_branch = e () => (b) { b = Identity(x) }>""",
    "shape of the result": """
        r = If(c) <then_branch = t () => (a) { a = Squeeze(x) },
                   else_branch = e () => (b) { b = Identity(x) }>
        y = Shape(r)""",
    "shape as the result": """
        y = If(c) <then_branch = t () => (a) { s = Squeeze(x) a = Shape(s) },
                   else_branch = e () => (b) { b = Shape(x) }>""",
}
BODIES = {
    "carried": "n = Squeeze(v)",
    "of the enclosing function": "n = Squeeze(x)",
}


def check(graph: str, target: str, *cases: dict[str, Any]) -> None:
    model = onnx.parser.parse_model(HEADER + graph)
    run = compiler.compile(MemoryModel("model.onnx", model.SerializeToString()), target=target,
                           cache="off", tuned="off", threads=1)
    for case in cases:
        feeds = {name: np.asarray(value) for name, value in case.items()}
        [got], [want] = run(**feeds), run_reference(model, feeds)
        assert (got.shape, got.dtype) == (want.shape, want.dtype), case
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("name", BRANCHES)
def test_branches(name: str, target: str) -> None:
    check(f"g (float[n, m] x, bool c) => (y) {{ {BRANCHES[name]} }}", target, *(
        {"x": np.full(shape, 2, np.float32), "c": c} for shape in SHAPES for c in (True, False)))


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("trips", [0, 1, 2])
@pytest.mark.parametrize("name", BODIES)
def test_loops(name: str, trips: int, target: str) -> None:
    check(f"""g (float[n, m] x, int64 trips) => (y) {{
        true = Constant<value = bool {{1}}>()
        y = Loop(trips, true, x) <body = b (int64 i, bool c, v) => (bool going, n) {{
            going = Identity(c) {BODIES[name]} }}>
    }}""", target, *({"x": np.full(shape, 2, np.float32), "trips": trips} for shape in SHAPES))
