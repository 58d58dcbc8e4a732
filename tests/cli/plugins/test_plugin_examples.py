"""The examples in tests/plugin, each as a file that `--plugin` names, and all as a package."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import compiler
from compiler.plugins.plugin_files import load_plugins
from targets.base import TargetError, TargetOptions
from targets.parts import ignore_progress
from targets.reference.interpret import interpret
from tests.cli.conftest import PLUGINS, Run
from tests.lowering import assert_close, lower, without_subnormals
from tests.models import tiny_bert, tiny_cnn, tiny_lstm
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module

EXAMPLES = PLUGINS / "strata_example"
FIRST = [s for s in {s.op: s for s in reversed(SAMPLES) if s.operands}.values()]
DISTANCES = """\
strata.func @main(%a: f32[m, 7], %b: f32[3, 7]) -> (f32[m, 3]) inputs ["a", "b"] outputs ["d"] {
  %d = example_op.l1_distance %a, %b : f32[m, 3]
  strata.return %d
}
"""
EMPTY = """\
strata.func @main(%a: f32[0, 7], %b: f32[m]) -> (f32[0, 7], f32[m])
    inputs ["a", "b"] outputs ["c", "d"] {
  %c = graph.exp %a : f32[0, 7]
  %d = graph.exp %b : f32[m]
  strata.return %c, %d
}
"""


@pytest.fixture
def own_operators(tmp_path: Path) -> Path:
    """Squareplus(ScaledSoftsign(x)), of the domain com.example."""
    nodes = [helper.make_node("ScaledSoftsign", ["x"], ["h"], domain="com.example", scale=2.0),
             helper.make_node("Squareplus", ["h"], ["y"], domain="com.example", b=3.0)]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 7]) for n in "xy")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    path = tmp_path / "own.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "own", [x], [y]), opset_imports=opsets,
                                ir_version=8), path)
    return path


def test_onnx_operators_of_a_domain_of_ones_own(
    strata: Run, own_operators: Path, tmp_path: Path
) -> None:
    refused = strata("run", own_operators, "--target", "cpu", "--dim", "n=5")
    assert refused.status == 1 and "com.example.Squareplus" in refused.err
    assert "--plugin" in refused.err
    plugin = ("--plugin", EXAMPLES / "onnx_operator.py")
    x = np.random.default_rng(0).standard_normal((5, 7), np.float32)
    np.save("x.npy", x)
    done = strata("run", own_operators, "--target", "cpu", "--input", "x=x.npy", *plugin,
                  "-o", "out.npz")
    assert done.status == 0, done.err
    h = 2 * x / (1 + np.abs(x))
    np.testing.assert_allclose(np.load("out.npz")["y"], (h + np.sqrt(h * h + 3)) / 2, rtol=1e-6)
    graph = strata("lower", own_operators, "--target", "cpu", "--to", "graph", *plugin).out
    assert "graph.sqrt" in graph and "example_onnx" not in graph  # decomposed: nobody claims it
    assert strata("verify", own_operators, "--target", "cpu", "--dim", "n=3", *plugin).status == 0
    assert "com.example.Squareplus" in strata("list", "ops", *plugin).out


def test_a_graph_operation_with_its_nests(strata: Run, tmp_path: Path) -> None:
    (tmp_path / "d.mlir").write_text(DISTANCES)
    plugin = ("--plugin", EXAMPLES / "graph_op.py")
    done = strata("verify", "d.mlir", "--target", "cpu", "--dim", "m=5", *plugin)
    assert done.status == 0, done.err
    assert "loop.nest" in strata("lower", "d.mlir", "--target", "cpu", "--to", "loop", *plugin).out


def test_a_level_between_loop_and_block(strata: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.mlir").write_text(EMPTY)
    plugin = ("--plugin", EXAMPLES / "level.py", "--target", "cpu")
    done = strata("lower", "empty.mlir", "--to", "task", "-o", "task.mlir", *plugin)
    assert done.status == 0, done.err
    text = (tmp_path / "task.mlir").read_text()
    assert text.count("task.run") == 1 and "writes m" in text and "host.launch" not in text
    for model in ("empty.mlir", "task.mlir"):  # a text of the level is read again
        done = strata("verify", model, "--dim", "m=5", *plugin)
        assert done.status == 0, done.err
    assert "task" in strata("list", "levels", *plugin[:2]).out
    kept = strata("lower", "empty.mlir", "--to", "task", *plugin,
                  "--passes", "default,without(task-from-host)")
    assert kept.status == 1 and "contract of task level" in kept.err


def test_a_frontend(strata: Run, tmp_path: Path) -> None:
    (tmp_path / "a.steps").write_text("input x 4 batch\nh = exp x\ny = mul h x\noutput y\n")
    plugin = ("--plugin", EXAMPLES / "frontend.py")
    done = strata("verify", "a.steps", "--target", "cpu", "--dim", "batch=5", *plugin)
    assert done.status == 0, done.err
    assert "frontend" in strata("list", "frontends", *plugin).out
    (tmp_path / "b.steps").write_text("input x 4\nh = expp x\ny = mul h z\noutput y\n")
    wrong = strata("verify", "b.steps", "--target", "cpu", *plugin)
    assert wrong.status == 1 and "line 2" in wrong.err and "line 3" in wrong.err


PROGRAM = '''
import torch

@torch.library.custom_op("example::scaled_softsign", mutates_args=())
def scaled_softsign(x: torch.Tensor, scale: float) -> torch.Tensor:
    return scale * x / (1 + x.abs())

@scaled_softsign.register_fake
def _(x, scale):
    return torch.empty_like(x)

class Model(torch.nn.Module):
    def forward(self, x):
        return scaled_softsign(x + 1, 2.5)

def program():
    return torch.export.export(Model(), (torch.ones(3, 5),))
'''


def test_a_pytorch_custom_operator(strata: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "model.py").write_text(PROGRAM)
    np.save("x.npy", x := np.random.default_rng(0).standard_normal((3, 5), np.float32))
    run = ("run", "model.py:program", "--target", "cpu", "--input", "x=x.npy", "-o", "out.npz")
    refused = strata(*run)
    assert refused.status == 1 and "example.scaled_softsign.default" in refused.err
    done = strata(*run, "--plugin", EXAMPLES / "torch_operator.py")
    assert done.status == 0, done.err
    [found] = np.load("out.npz").values()
    np.testing.assert_allclose(found, 2.5 * (x + 1) / (1 + np.abs(x + 1)), rtol=1e-6)


# ---------------------------------------------------------------------- the target
def test_the_target_in_c_is_short() -> None:
    lines = (EXAMPLES / "c_target.py").read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 150


def computes(sample: Sample) -> bool:
    """Whether the target claims a sample: it has C for all that is in it. What it computes must
    then be right."""
    [target] = load_plugins([EXAMPLES / "c_target.py"]).targets.values()
    module, arrays, context = build_module(sample, True)
    inputs = without_subnormals(arrays)
    expected = interpret(module, context.weights, inputs)
    parts = target.bind(TargetOptions())
    list(lower(module, parts.context(context.weights)))
    try:
        executable = parts.running.load(module, context.weights, ignore_progress)
    except TargetError:
        return False
    assert_close(executable.run(inputs), expected, sample.tolerance or 2e-5, sample.label)
    return True


FEW = ("graph.add", "graph.matmul", "graph.softmax", "graph.conv", "graph.gather", "graph.concat",
       "graph.max_pool", "graph.layer_norm", "graph.erf", "graph.where", "graph.cumsum")


def test_the_target_in_c_computes_samples() -> None:
    claimed = [s.op.name for s in FIRST if s.op.name in FEW and computes(s)]
    assert len(claimed) >= 8, claimed


@pytest.mark.slow
def test_the_target_in_c_computes_every_sample_that_it_claims() -> None:
    claimed = Counter(s.op.name for s in SAMPLES if s.operands and computes(s))
    assert len(claimed) > 80


def test_the_target_in_c_from_the_command_line(strata: Run, small_model: Path) -> None:
    plugin = ("--target", "c", "--plugin", EXAMPLES / "c_target.py")
    done = strata("verify", small_model, "--dim", "n=5", "--dim", "m=3", *plugin)
    assert done.status == 0, done.err
    assert "void" in strata("lower", small_model, *plugin).out


@pytest.mark.parametrize("model", [tiny_bert, tiny_cnn, tiny_lstm], ids=lambda m: m.__name__)
def test_a_device_runs_what_it_claims_and_the_processor_the_rest(model: Any) -> None:
    plugin = EXAMPLES / "products_only.py"
    made = model.make_model(model.OPEN)
    exe = compiler.compile(made, target="products_only", plugins=[plugin], cache="off")
    here = compiler.compile(made, cache="off")
    [device] = [module.DEVICE for module in list(sys.modules.values())
                if Path(getattr(module, "__file__", None) or "") == plugin]
    for sizes in model.CASES:
        inputs, before = model.make_inputs(sizes), device.launches
        given = [inputs[name] for name in exe.input_names]
        assert_close(exe(*given), here(*given), 2e-5, str(sizes))
        assert device.launches > before


def test_the_text_of_a_device_has_what_it_claims(strata: Run, tmp_path: Path) -> None:
    onnx.save(tiny_cnn.make_model(tiny_cnn.OPEN), tmp_path / "m.onnx")
    plugin = ("--plugin", EXAMPLES / "products_only.py")
    done = strata("lower", tmp_path / "m.onnx", "--target", "products_only", *plugin)
    words = {line.partition(" ")[0] for line in done.out.splitlines() if line[:2] != "//"}
    assert done.status == 0 and words == {"multiply"}
    kernels = strata("lower", tmp_path / "m.onnx", "--target", "products_only", "--to", "block",
                     *plugin).out
    claimed = done.out.count("multiply")
    assert kernels.count("left = 1") == kernels.count("block.kernel") - claimed > 0
