"""Losses of many classes: gradients in every form, and what a step saves and writes for them."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.torch.step_graphs import step_graphs
from dialects.host import host_functions
from dialects.strata.types import BufferType

ROWS, CLASSES, IGNORED = 6, 5, 2


def labels(rows: tuple[int, ...], ignored: int) -> Tensor:
    found = torch.arange(prod(rows)).remainder(CLASSES).view(rows)
    if ignored < 0 and rows:
        found[-1] = ignored
    return found


@pytest.mark.parametrize(("rows", "weighted"), [*product([(), (1,), (ROWS,)], [False, True])])
def test_gradients_of_cross_entropy(rows: tuple[int, ...], weighted: bool) -> None:
    """In one graph, all reductions, ignored classes and smoothed labels."""
    forms = list(product(("mean", "sum", "none"), (-100, IGNORED), (0.0, 0.2)))
    weight = torch.linspace(0.5, 2, CLASSES, dtype=torch.float64) if weighted else None

    wanted = {ignored: labels(rows, ignored) for _, ignored, _ in forms}

    def call(x: Tensor) -> list[Tensor]:
        kind = None if weight is None else weight.to(x.dtype)
        return [F.cross_entropy(x, wanted[ignored], kind, reduction=how,
                                ignore_index=ignored, label_smoothing=smooth)
                for how, ignored, smooth in forms if rows or ignored < 0]

    def gradient(run: Any, x: Tensor) -> list[Tensor]:
        given = x.clone().requires_grad_()
        made = run(given)
        torch.stack([(k + 1) * v.sum() for k, v in enumerate(made)]).sum().backward()
        assert given.grad is not None
        return [*(v.detach() for v in made), given.grad]

    x = torch.randn(*rows, CLASSES, generator=torch.Generator().manual_seed(1))
    torch._dynamo.reset()
    found = gradient(torch.compile(call, backend="strata", fullgraph=True), x)
    for ours, true in zip(found, gradient(call, x.double()), strict=True):
        torch.testing.assert_close(ours.double(), true, rtol=2e-5, atol=2e-6, equal_nan=True)


class Words(nn.Module):
    """The loss of a model of words, whose logits are by far the largest tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 4001, bias=False)

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.head(x).float()
        return F.cross_entropy(logits.view(-1, 4001), wanted.view(-1))


def test_logits_are_kept_once_and_narrow() -> None:
    """What is saved, and every buffer of both graphs on a GPU: nothing has their size in f32."""
    graphs = step_graphs(Words(), (torch.randn(2, 64, 16), torch.arange(128).view(2, 64)), {})
    logits = 2 * 64 * 4001
    saved = [v for v in graphs[1].given if isinstance(v, Tensor) and v.numel() >= logits]
    assert [v.dtype for v in saved] == [torch.bfloat16]
    for graph in graphs:
        options = CompileOptions(target="cuda", features="sm_90", cache="off", tuned="off")
        module = Compiler(graph.model, options).lower("host").module
        types = [v.type for f in host_functions(module) for op in f.walk() for v in op.results]
        large = [t for t in types if isinstance(t, BufferType) and prod(
            s.constant or 0 for s in t.shape) >= logits]
        assert {str(t.element) for t in large} <= {"bf16"}


class Gated(nn.Module):
    """Elementwise operators whose results autograd saves."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * torch.tanh(x * 0.5 + 1) * torch.sigmoid(x)).exp()


def test_what_is_elementwise_is_not_saved() -> None:
    x = torch.randn(64, 64, requires_grad=True)
    graphs = step_graphs(Gated(), (x,), {})
    assert sum(v.numel() for v in graphs[1].given if isinstance(v, Tensor)) <= 3 * x.numel()
