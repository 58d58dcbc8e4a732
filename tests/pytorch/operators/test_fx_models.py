"""Whole models to GraphModules of ATen operators, and back into programs."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import compiler
from compiler.diagnostics import StrataError
from tests.pytorch.programs import flat
from tests.pytorch.training.training_models import MODELS

ZOO = Path(__file__).parents[3] / "benchmarks" / "torch"
CLASSES = ("BERT", "DeBERTa-v2", "ModernBERT", "GPT-2", "BLOOM", "Llama", "Qwen3", "Gemma2",
           "Mixtral", "Mamba", "T5", "Whisper", "wav2vec2", "ViT", "Swin", "ConvNeXt", "ResNet",
           "EfficientNet", "SegFormer", "DPT", "CLIP", "DETR", "UNet (diffusion)",
           "VAE (diffusion)", "DiT")
"""Rows of `benchmarks/torch/zoo.py`."""


def case_of(name: str) -> tuple[Any, list[Any]]:
    """A model and its inputs; the test is skipped where its library is missing."""
    torch.manual_seed(0)
    if name in MODELS:
        model: Any = MODELS[name]()
        return model.eval(), model.inputs()
    sys.path.append(str(ZOO))
    library, make = importlib.import_module("zoo").CASES[name]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    try:
        case = make()
    except (ImportError, RuntimeError) as error:  # it is installed without what it needs
        pytest.skip(f"{library}: {error}")
    return case.module.eval(), list(case.inputs.values())


def alike(got: Any, want: Any) -> None:
    for a, b in zip(flat(got), flat(want), strict=True):
        torch.testing.assert_close(torch.as_tensor(a), b, rtol=1e-3, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", [*MODELS, *CLASSES])
def test_model(name: str) -> None:
    """As it was imported, and after the graph passes; of what these made, ATen only is called."""
    module, inputs = case_of(name)
    program = torch.export.export(module, tuple(inputs), strict=False)
    want = module(*inputs)
    for simplify in (False, True):
        made = compiler.to_fx(program, simplify=simplify)
        alike(made(*inputs), want)
        calls = [n.target for n in made.graph.nodes if n.op == "call_function"]
        assert {getattr(t, "namespace", "_operator") for t in calls} <= {"aten", "_operator"}


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_and_back(name: str) -> None:
    """What graph passes made, after a user's own pass over its nodes, is a model again."""
    module, inputs = case_of(name)
    made = compiler.to_fx(torch.export.export(module, tuple(inputs), strict=False))
    for node in made.graph.nodes:
        if node.target == torch.ops.aten.sigmoid.default:
            with made.graph.inserting_after(node):
                half = made.graph.call_function(torch.ops.aten.mul.Tensor, (node.args[0], 0.5))
            with made.graph.inserting_after(half):
                tanh = made.graph.call_function(torch.ops.aten.tanh.default, (half,))
            with made.graph.inserting_after(tanh):
                added = made.graph.call_function(torch.ops.aten.add.Scalar, (tanh, 1.0))
            with made.graph.inserting_after(added):
                node.replace_all_uses_with(
                    made.graph.call_function(torch.ops.aten.mul.Scalar, (added, 0.5)))
    made.graph.eliminate_dead_code()
    made.recompile()
    exe = compiler.compile(made, args=tuple(inputs), target="reference")
    alike(exe(*inputs), module(*inputs))


@torch.no_grad()
def test_pools_whose_last_windows_are_cut_groups_and_combined_writes() -> None:
    """Operators of one form, there and back."""
    source = torch.Generator().manual_seed(4)
    x, a, b = (torch.randn(*shape, generator=source) for shape in (
        (2, 3, 8, 9), (9, 8), (3, 8, 8)))
    ends, places = torch.tensor([2, 2, 7], dtype=torch.int32), torch.tensor([0, 2, 0])

    def call(x: Any, a: Any, b: Any) -> Any:
        f = torch.nn.functional
        return (f.avg_pool2d(x, 3, 2, 1, ceil_mode=True), f.max_pool2d(x, 3, 2, 1, ceil_mode=True),
                f.avg_pool2d(x, 3, 2, ceil_mode=True, count_include_pad=False),
                torch.ops.aten._grouped_mm(a.bfloat16(), b.bfloat16(), ends)[:7].float(),
                f.interpolate(x, (5, 11), mode="nearest-exact"),
                a.index_reduce(0, places, b[0, :3], "amax"))

    made = compiler.to_fx(call, args=(x, a, b))
    exe = compiler.compile(made, args=(x, a, b), target="reference")
    for found in (made(x, a, b), exe(x, a, b)):
        for mine, other in zip(found, call(x, a, b), strict=True):
            torch.testing.assert_close(torch.as_tensor(mine), other, rtol=2e-2, atol=2e-2)


@torch.no_grad()
@pytest.mark.parametrize("name", ["mlp", "convolutional", "unet", "convnext"])
def test_what_fx_traces_is_a_model(name: str) -> None:
    module, inputs = case_of(name)
    traced = torch.fx.symbolic_trace(module)
    exe = compiler.compile(traced, args=tuple(inputs), target="reference")
    alike(exe(*inputs), module(*inputs))


def test_no_operator_is_named_with_its_node() -> None:
    """An operation that ATen lacks: the node of the model, the operation, the reason."""
    def largest(x: Any) -> Any:
        return torch.nn.functional.max_pool2d(x, 2)

    with pytest.raises(StrataError) as error:
        compiler.to_fx(largest, args=(torch.zeros(1, 1, 4, 4, dtype=torch.int64),))
    assert "graph.max_pool" in str(error.value) and "where" in str(error.value)
