"""A model without its functions computes what it did: attributes of calls, defaults, references."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.frontend import ImportOptions, MemoryModel, load_model
from compiler.reduction.inlining import inlined
from compiler.reduction.reading import read_onnx
from targets.reference.interpret import interpret, model_function

HEAD = '<ir_version: 10, opset_import: ["": 17, "d": 1]> g (float[3] x, bool c) => (float[3] y) '
FUNCTIONS = """
<domain: "d", opset_import: ["": 17]> f <alpha: float = 0.25> (x) => (y)
{ y = Elu<alpha: float = @alpha>(x) }
<domain: "d", opset_import: ["": 17, "d": 1]> outer <beta: float = 0.75> (x) => (y)
{ y = d.f<alpha: float = @beta>(x) }
<domain: "d", opset_import: ["": 17, "d": 1]> plain (x) => (y) { y = d.f(x) }
"""
X = np.array([-1.0, -0.5, 2.0], np.float32)


def of_body(node: str) -> str:
    branch = "g () => (float[3] y) {{ y = {} }}"
    return (f"{{ y = If (c) <then_branch = {branch.format(node)}, "
            f"else_branch = {branch.format('Identity(x)')}> }}")


@pytest.mark.parametrize("body, alpha", [
    ("{ y = d.f(x) }", 0.25), ("{ y = d.f<alpha: float = 0.5>(x) }", 0.5),
    ("{ y = d.outer(x) }", 0.75), ("{ y = d.outer<beta: float = 2.0>(x) }", 2.0),
    ("{ y = d.plain(x) }", 0.25), (of_body("d.f(x)"), 0.25)])
def test_defaults_of_attributes_hold(body: str, alpha: float, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(HEAD + body + FUNCTIONS)
    before = model.SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(before)
    for changed in (inlined(model), read_onnx(path)):
        assert not changed.functions
        wanted = np.where(X > 0, X, np.float32(alpha) * np.expm1(X))
        np.testing.assert_allclose(_run(changed), wanted, 1e-6)
    np.testing.assert_allclose(_run(model), wanted, 1e-6)
    assert model.SerializeToString() == before


def _run(model: onnx.ModelProto) -> np.ndarray:
    loaded = load_model(MemoryModel("model.onnx", model.SerializeToString()), ImportOptions())
    given = {"x": X, "c": np.array(True)}
    names = model_function(loaded.module).input_names
    return interpret(loaded.module, loaded.weights, [given[n] for n in names])[0]


def test_a_model_without_functions_is_left_alone() -> None:
    model = onnx.parser.parse_model(HEAD + "{ y = Elu(x) }")
    assert inlined(model) is model
