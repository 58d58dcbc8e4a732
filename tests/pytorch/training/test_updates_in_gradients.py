"""A whole step in one graph: an optimizer's update is computed where its gradient is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from compiler.frontend import MemoryModel
from compiler.frontend.torch.captured_graph import CapturedGraph
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.host import host_function
from dialects.host.ops import CopyOp, LaunchOp

Step = Callable[..., Sequence[Tensor]]
SIZES = (256, 512, 128)
"""Rows of the input, and what a layer takes and makes."""


def gradient(x: Tensor, w: Tensor, given: Tensor) -> Tensor:
    return torch.autograd.grad(torch.tanh(x @ w), w, given)[0]


def gradients(x: Tensor, w: Tensor, given: Tensor, *moments: Tensor) -> Sequence[Tensor]:
    return [gradient(x, w, given)]


def sgd(x: Tensor, w: Tensor, given: Tensor, *moments: Tensor) -> Sequence[Tensor]:
    return [w.detach() - 0.1 * gradient(x, w, given)]


def momentum(x: Tensor, w: Tensor, given: Tensor, mean: Tensor, _: Tensor) -> Sequence[Tensor]:
    mean = 0.9 * mean + gradient(x, w, given)
    return [w.detach() - 0.1 * mean, mean]


def adamw(x: Tensor, w: Tensor, given: Tensor, mean: Tensor, square: Tensor) -> Sequence[Tensor]:
    found, weight = gradient(x, w, given), w.detach()
    mean, square = mean.lerp(found, 0.1), 0.99 * square + 0.01 * found * found
    return [weight * 0.999 - 0.01 * mean / (square.sqrt() + 1e-8), mean, square]


def launches(step: Step, target: str, features: str) -> list[str]:
    """The kernels and copies of a step for a machine that need not be there, in order."""
    rows, taken, width = SIZES
    shapes = (rows, taken), (taken, width), (rows, width), (taken, width), (taken, width)
    given = [torch.randn(s, requires_grad=k == 1) for k, s in enumerate(shapes)]
    known = core_aten_decompositions()
    graph: Any = make_fx(step, known, tracing_mode="fake")(*given)
    results = len(graph.graph.output_node().args[0])
    model = MemoryModel("graph.pt2", CapturedGraph(graph, {}, [*range(results)]))
    state = Compiler(model, CompileOptions(
        target=target, features=features, cache="off", tuned="off", threads=1)).lower()
    return [op.kernel.data if isinstance(op, LaunchOp) else "copy"
            for op in host_function(state.module).walk() if isinstance(op, LaunchOp | CopyOp)]


@pytest.mark.parametrize("step", [sgd, momentum, adamw], ids=lambda step: step.__name__)
def test_an_update_needs_no_launch_of_its_own_on_a_gpu(step: Step) -> None:
    """Neither for the parameter nor for its moments: all are written by the gradient's kernel."""
    alone, whole = (launches(s, "cuda", "sm_90") for s in (gradients, step))
    assert len(whole) == len(alone) > 0
    assert "copy" not in whole
