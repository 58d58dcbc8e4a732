"""XLA as a peer: graphs of ATen operators as functions of JAX."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

from compiler.diagnostics import StrataError
from compiler.frontend.torch.capture import Captured
from compiler.fx.writer import graph_module
from compiler.io.arrays import to_numpy
from compiler.peers import Request, load_peer
from dialects.graph.interpret import evaluate_func
from dialects.semantics.numerics import widen
from dialects.strata.func import main_function
from tests.op_samples.graph_samples import SAMPLES, build_module
from tests.pytorch.operators.test_fx import torch_knows

jax: Any = pytest.importorskip("jax")
FLOAT = onnx.TensorProto.FLOAT
REFUSED = {"upsample_bicubic2d.default"}
"""Operators that the writer of graphs uses, and that have no function."""


def request(model: Path, *inputs: Any) -> Request:
    names = [f"x{k}" for k in range(len(inputs))]
    return Request(str(model), None, names, inputs, [x.shape for x in inputs], 1)


def _usual(array: Any) -> Any:
    """The array without numbers that are subnormal, or whose reciprocals are: XLA takes these for
    zero, and it divides by multiplying. What is sorted stays sorted."""
    if array.dtype.kind != "f":
        return array
    tiny = 4 * np.finfo(array.dtype).tiny
    moved = np.where(np.abs(array) < tiny, 0, np.clip(array, -1 / tiny, 1 / tiny))
    return np.where(np.isinf(array), array, moved).astype(array.dtype)


def _alike(a: Any, b: Any, size: int) -> bool:
    """XLA sums two bytes in two bytes."""
    rtol, atol = (1e-1, 5e-2) if size == 2 else (1e-4, 1e-5)
    return np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True)


def test_every_operation() -> None:
    """Each sample that is an ATen operator computes as its definition does."""
    jax.config.update("jax_enable_x64", True)
    walk = importlib.import_module("compiler.peers.xla.walk").walk
    wrong: list[str] = []
    count = 0
    for sample in SAMPLES:
        module, arrays, context = build_module(sample, False)
        func = main_function(module)
        types = [v.type for op in func.body.block.ops for v in (*op.operands, *op.results)]
        if not all(map(torch_knows, types)):
            continue
        arrays = [_usual(a) for a in arrays]
        want = evaluate_func(func, arrays, context)
        try:
            made = graph_module(module, context.weights, sample.label)
        except StrataError:
            continue
        calls = {str(n.target).removeprefix("aten.") for n in made.graph.nodes}
        if calls & REFUSED:
            continue
        constants = {name: jax.numpy.asarray(to_numpy(x)) for name, x in made.named_buffers()}
        given = [jax.numpy.asarray(a) for a in arrays]
        try:
            got = jax.jit(walk, static_argnums=0)(made.graph, constants, given)
        except jax.errors.ConcretizationTypeError:
            continue  # its sizes depend on data
        except Exception as error:
            wrong.append(f"{sample.label}: {error}")
            continue
        count += 1
        for a, b in zip(got, want, strict=True):
            a = np.asarray(a)
            if a.shape != b.shape or a.dtype != b.dtype:
                wrong.append(f"{sample.label}: {a.dtype}{a.shape}, not {b.dtype}{b.shape}")
            elif not _alike(widen(a), widen(b), b.itemsize):
                wrong.append(f"{sample.label}: other numbers")
    assert not wrong, "\n".join(wrong)
    assert count > 150


@torch.no_grad()
def test_models_of_both_frontends(tmp_path: Path) -> None:
    """ONNX and PyTorch run alike; weights and small constants, convolutions and products."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, 2, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(32, 8, 2, 2), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(512, 10), torch.nn.Softmax(-1)).eval()
    x = torch.randn(2, 3, 16, 16)
    program = torch.export.export(module, (x,))
    captured = Captured("net", program)
    given = Request("net.py:net", captured, ["input"], [x.numpy()], [x.shape], 1)
    for _ in range(2):
        np.testing.assert_allclose(load_peer("xla", given)()[0], module(x), rtol=1e-4, atol=1e-6)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x0", "w"], ["h"]),
         helper.make_node("Softmax", ["h"], ["y"], axis=-1)], "g",
        [helper.make_tensor_value_info("x0", FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("y", FLOAT, ["n", 32])],
        [numpy_helper.from_array(np.ones((64, 32), np.float32), "w")])
    file = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), file)
    found = load_peer("xla", request(file, np.ones((3, 64), np.float32)))()
    np.testing.assert_allclose(found[0], np.full((3, 32), 1 / 32, np.float32), rtol=1e-5)


@torch.no_grad()
def test_sizes_that_depend_on_data_are_refused() -> None:
    class Found(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.nonzero(x)

    x = torch.tensor([0.0, 1.0, 2.0])
    captured = Captured("found", torch.export.export(Found(), (x,)))
    with pytest.raises(StrataError) as error:
        load_peer("xla", Request("m.py:found", captured, ["x"], [x.numpy()], [x.shape], 1))
    assert "onnxruntime" in str(error.value) or "ATen has not" in str(error.value)
