"""Gradients that a compiled function computes itself, by `torch.func`: whole steps as one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Values = dict[str, Tensor]


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))


def _step(values: Values, x: Tensor) -> tuple[Values, Tensor]:
    """A step of SGD."""
    def loss(values: Values) -> Tensor:
        return torch.func.functional_call(MODEL, values, (x,)).square().mean()

    found, value = torch.func.grad_and_value(loss)(values)
    return {name: v - 0.1 * found[name] for name, v in values.items()}, value


def _attention(values: Values, x: Tensor) -> Any:
    def loss(query: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, x, x, is_causal=True).square().sum()

    return torch.func.grad_and_value(loss)(torch.sin(x))


def _convolution(values: Values, x: Tensor) -> Any:
    def loss(filters: Tensor) -> Tensor:
        return F.conv1d(x, filters, padding=1).square().sum()

    return torch.func.grad(loss)(torch.cos(x[:, :, :3]))


def _for_each(values: Values, x: Tensor) -> Any:
    """Gradients of each sample."""
    def loss(values: Values, row: Tensor) -> Tensor:
        return torch.func.functional_call(MODEL, values, (row,)).square().mean()

    return torch.vmap(torch.func.grad(loss), (None, 0))(values, x)


def _forward_mode(values: Values, x: Tensor) -> Any:
    return torch.func.jvp(lambda v: F.linear(v, v), (x[0],), (x[0].cos(),))


MODEL = _model()
STEPS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "a step": (_step, (4, 5)), "attention": (_attention, (2, 2, 6, 4)),
    "convolution": (_convolution, (2, 2, 7)), "samples": (_for_each, (4, 5)),
    "forward mode": (_forward_mode, (1, 4, 4))}


@pytest.mark.parametrize("name", STEPS)
def test_gradients_inside_a_graph(name: str) -> None:
    run, shape = STEPS[name]
    values = {k: v.detach() for k, v in MODEL.named_parameters()}
    torch._dynamo.reset()
    compiled: Any = torch.compile(run, backend="strata", fullgraph=True)
    x = torch.randn(shape)
    torch.testing.assert_close(compiled(values, x), run(values, x), rtol=1e-5, atol=1e-5)


def test_steps_inside_a_graph_follow_each_other() -> None:
    ours = eager = {k: v.detach() for k, v in MODEL.named_parameters()}
    torch._dynamo.reset()
    compiled: Any = torch.compile(_step, backend="strata", fullgraph=True)
    for _ in range(5):
        x = torch.randn(4, 5)
        (ours, _), (eager, _) = compiled(ours, x), _step(eager, x)
    torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)
