"""GroupQueryAttention on CUDA: few kernels for a layer, attention one of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.measuring.comparison import error_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.block import KernelOp
from dialects.host import host_function
from dialects.host.interpret import interpret_host
from dialects.strata.types import Array

onnx = pytest.importorskip("onnx")
helper = pytest.importorskip("onnx.helper")
models = pytest.importorskip("tests.frontend.onnx_models")

HEADS, GROUPS, SIZE, CACHE = 8, 2, 64, 128
DOMAIN = "com.microsoft"


def model_of(folder: Path, length: int, layers: int) -> Path:
    """Layers with caches of their own, all of one length, with rotations."""
    nodes, inputs = [], [models.value_info("lengths", np.int32, [1])]
    outputs: list[str] = []
    for k in range(layers):
        inputs += [models.value_info(f"{name}{k}", np.float16, [1, length, heads * SIZE])
                   for name, heads in (("q", HEADS), ("k", GROUPS), ("v", GROUPS))]
        inputs += [models.value_info(f"{name}{k}", np.float16, [1, GROUPS, CACHE, SIZE])
                   for name in ("old_k", "old_v")]
        outputs += [f"y{k}", f"new_k{k}", f"new_v{k}"]
        nodes.append(helper.make_node(
            "GroupQueryAttention",
            [*(f"{x}{k}" for x in ("q", "k", "v", "old_k", "old_v")), "lengths", "total", "cos",
             "sin"],
            outputs[-3:], domain=DOMAIN, num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1))
    angles = np.random.default_rng(0).uniform(-1, 1, (2, CACHE, SIZE // 2)).astype(np.float16)
    constants = {"cos": angles[0], "sin": angles[1], "total": np.array(CACHE, np.int32)}
    return models.save(models.make_model(nodes, inputs, outputs, constants, opset=17,
                                         domains={DOMAIN: 1}), folder)


def compiled(path: Path) -> Compiler:
    return Compiler(str(path), CompileOptions(
        target="cuda", features="sm_90", cache="off", tuned="off"))


def values_of(length: int, past: int) -> list[Array]:
    rng = np.random.default_rng(past)
    shapes = [(1, length, heads * SIZE) for heads in (HEADS, GROUPS, GROUPS)]
    shapes += [(1, GROUPS, CACHE, SIZE)] * 2
    return [np.array([past + length - 1], np.int32),
            *(rng.standard_normal(s).astype(np.float16) for s in shapes)]


@pytest.mark.parametrize("length", [1, 48])
def test_kernels_of_a_layer(tmp_path: Path, length: int) -> None:
    """Two rotations and two caches in a launch, and attention; what lengths decide is
    computed once for all."""
    counts: list[Counter[str]] = []
    for layers in (1, 2):
        module = compiled(model_of(tmp_path, length, layers)).lower().module
        launches = [op for op in host_function(module).walk() if op.name == "host.launch"]
        names = [str(op.properties["kernel"]).partition("_")[0].strip('@"') for op in launches]
        counts.append(Counter(names))
    assert counts[1] - counts[0] == {"join": 1, "online": 1}


@pytest.mark.parametrize(("length", "past"), [(1, 70), (48, 0)])
def test_what_they_compute(tmp_path: Path, length: int, past: int) -> None:
    path = model_of(tmp_path, length, 1)
    state = compiled(path).lower()
    assert any(op.sym_name.data.startswith("online") for op in state.module.walk()
               if isinstance(op, KernelOp))
    values = values_of(length, past)
    found = interpret_host(state.module, values, state.context.weights)
    expected = compiler.compile(path, target="reference")(*values)
    assert all(error_of(f, e) < 4e-3 for f, e in zip(found, expected, strict=True))
