"""Small quantized models on the CPU: in integers beside onnxruntime, exactly beside ONNX itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import compiler
from compiler.__main__ import main
from tests.models.quantized import CASES, MODELS, Model, add, conv

each_model = pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)


def save(model: Model, folder: Path) -> tuple[onnx.ModelProto, Path]:
    proto, path = model.make(), folder / "quantized.onnx"
    onnx.save(proto, path)
    return proto, path


def has_integer_products(text: str) -> bool:
    """Whether products are sums of integers, and none of floats is left."""
    products = [line for line in text.splitlines()
                if "graph.matmul" in line or "graph.conv" in line]
    assert products
    kinds = {"to = i32" in line for line in products}
    assert len(kinds) == 1, products
    return kinds.pop()


@each_model
def test_one_step_beside_onnxruntime(model: Model, tmp_path: Path) -> None:
    onnxruntime: Any = pytest.importorskip("onnxruntime")
    proto, path = save(model, tmp_path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    exe = compiler.compile(path, cache="off")
    assert not model.products or has_integer_products(exe.text("graph"))
    for sizes in CASES:
        inputs = model.inputs(proto, sizes)
        [got], [want] = exe(**inputs), session.run(None, inputs)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        steps = np.abs(got.astype(int) - want.astype(int))
        assert steps.max() <= 1, sizes
        assert want.std() > 5, "a model whose result says little"


@each_model
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_exact_is_the_definition(model: Model, target: str, tmp_path: Path) -> None:
    proto, path = save(model, tmp_path)
    definition: Any = ReferenceEvaluator(proto)
    exe = compiler.compile(path, target=target, exact=True, cache="off")
    if model.products and target == "cpu":
        assert has_integer_products(exe.text("graph")) == model.name.startswith("dynamic")
    for sizes in CASES:
        inputs = model.inputs(proto, sizes)
        [got], [want] = exe(**inputs), definition.run(None, inputs)
        np.testing.assert_array_equal(got, want)


def test_exact_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, path = save(Model(conv), tmp_path)
    for words, has_integers in (([], True), (["--exact"], False)):
        assert main(["lower", str(path), "--to", "graph", *words]) == 0
        assert has_integer_products(capsys.readouterr().out) == has_integers


def test_exact_rounds_products_before_sums(tmp_path: Path) -> None:
    _, path = save(Model(add), tmp_path)
    flags = {exact: "contract" in compiler.compile(path, exact=exact, cache="off").text("llvm")
             for exact in (False, True)}
    assert flags == {False: True, True: False}
