"""Gradients of attention in every form, against eager mode in f64; nothing of a score is saved."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from compiler.torch.attention import attention_whole, operators
from compiler.torch.step_graphs import step_graphs


@dataclass(frozen=True)
class Form:
    """Shapes of query, key, value and mask, and arguments; masks of no gradient are bool."""

    query: tuple[int, ...]
    key: tuple[int, ...]
    width: int | None = None
    mask: tuple[int, ...] | None = None
    additive: bool = False
    dropout: float = 0.0
    causal: bool = False
    scale: float | None = None
    grouped: bool = False
    low: float | None = None
    """What a mask adds to all of row 0, and to the first key of the others."""

    def inputs(self, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        draw = torch.Generator().manual_seed(3)
        shapes = [self.query, self.key, (*self.key[:-1], self.width or self.key[-1])]
        found = [torch.randn(s, generator=draw, dtype=torch.float64).to(dtype) for s in shapes]
        if self.mask is not None:
            mask = torch.randn(self.mask, generator=draw, dtype=torch.float64)
            if not self.additive:
                mask = mask > -0.5
                mask[..., 0, :] = mask.shape[-2] == 1  # a row that sees nothing
            if self.low is not None:
                mask[..., 0, :] = mask[..., 0] = self.low
            found.append(mask.to(dtype) if self.additive else mask)
        return [v.requires_grad_() if v.is_floating_point() else v for v in found]

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Tensor:
        return F.scaled_dot_product_attention(
            query, key, value, mask, self.dropout, self.causal, scale=self.scale,
            enable_gqa=self.grouped)


FORMS: dict[str, Form] = {
    "plain": Form((2, 3, 7, 8), (2, 3, 11, 8), 5),
    "one key": Form((1, 2, 5, 4), (1, 2, 1, 4)),
    "causal": Form((2, 1, 37, 8), (2, 1, 37, 8), causal=True),
    "causal of more keys": Form((1, 2, 5, 4), (1, 2, 9, 4), causal=True),
    "scale": Form((2, 5, 8), (2, 6, 8), scale=0.7),
    "matrices": Form((5, 8), (6, 8)),
    "bool mask": Form((2, 3, 7, 8), (2, 3, 11, 8), mask=(2, 1, 7, 11)),
    "mask of keys": Form((2, 3, 7, 8), (2, 3, 11, 8), mask=(2, 1, 1, 11)),
    "additive": Form((2, 3, 7, 8), (2, 3, 11, 8), mask=(2, 3, 7, 11), additive=True),
    "bias of heads": Form((2, 3, 7, 8), (2, 3, 11, 8), mask=(3, 1, 11), additive=True),
    "lowest": Form((2, 3, 7, 8), (2, 3, 11, 8), mask=(2, 1, 7, 11), additive=True,
                   low=torch.finfo(torch.float32).min),
    "low": Form((2, 3, 7, 8), (2, 3, 11, 8), mask=(7, 11), additive=True, low=-1e30),
    "grouped and low": Form((2, 6, 5, 4), (2, 3, 7, 4), mask=(2, 1, 5, 7), additive=True,
                            grouped=True, low=torch.finfo(torch.float32).min),
    "grouped": Form((2, 6, 9, 4), (2, 2, 9, 4), causal=True, grouped=True),
    "one head of keys": Form((1, 4, 5, 4), (1, 1, 6, 4), 3, grouped=True),
    "one head of keys, not grouped": Form((2, 4, 5, 4), (2, 1, 6, 4), mask=(2, 1, 5, 6)),
    "keys of one batch": Form((2, 3, 5, 4), (1, 3, 6, 4), mask=(2, 1, 5, 6)),
    "nothing is kept of a mask": Form((1, 2, 3, 4), (1, 2, 5, 4), mask=(3, 5), dropout=1.0),
    "grouped mask": Form((2, 6, 5, 4), (2, 3, 7, 4), mask=(2, 1, 5, 7), grouped=True),
    "grouped biases": Form((2, 6, 5, 4), (2, 3, 7, 4), mask=(6, 1, 7), additive=True,
                           grouped=True),
    "dropout": Form((2, 3, 7, 8), (2, 3, 5, 8), dropout=0.3),
    "nothing is kept": Form((1, 2, 3, 4), (1, 2, 5, 4), dropout=1.0),
    "dropout and mask": Form((2, 4, 7, 8), (2, 2, 7, 8), mask=(7, 7), dropout=0.2, grouped=True),
}


def gradients(run: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    given = [v.detach().clone().requires_grad_(v.requires_grad) for v in inputs]
    torch.manual_seed(5)
    made = run(*given)
    made.backward(torch.linspace(-1, 2, made.numel(), dtype=torch.float64).view(made.shape).to(
        made.dtype))
    return [made.detach(), *(v.grad for v in given if v.grad is not None)]


def far(found: list[Tensor], true: list[Tensor]) -> list[float]:
    return [float((a.double() - b).norm() / (b.norm() + 1))  # the gradient of one key is zero
            for a, b in zip(found, true, strict=True)]


@pytest.mark.parametrize("name", FORMS)
def test_gradients_of_attention(name: str, caplog: pytest.LogCaptureFixture) -> None:
    form = FORMS[name]
    inputs = form.inputs()
    torch._dynamo.reset()
    with caplog.at_level(logging.WARNING, "strata"):
        found = gradients(torch.compile(form, backend="strata", fullgraph=True), inputs)
    assert not caplog.records, caplog.text
    true = gradients(form, [v.double() if v.is_floating_point() else v for v in inputs])
    assert [v.dtype for v in found] == [torch.float32] * len(true)
    for ours, eager in zip(far(found, true), far(gradients(form, inputs), true), strict=True):
        assert ours <= 1.5 * eager + 5e-7


@pytest.mark.parametrize("name", ["plain", "bool mask", "bias of heads", "grouped"])
def test_gradients_of_attention_in_halves(name: str) -> None:
    form = FORMS[name]
    inputs = form.inputs(torch.bfloat16)
    torch._dynamo.reset()
    found = gradients(torch.compile(form, backend="strata", fullgraph=True), inputs)
    true = gradients(form, [v.double() if v.is_floating_point() else v for v in inputs])
    assert [v.dtype for v in found] == [torch.bfloat16] * len(true)
    assert max(far(found, true)) < 1e-2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_what_runs_where_graphs_are_eager(name: str, dtype: torch.dtype) -> None:
    """The operators' own computation has the same results, and memory as it promises."""
    form = FORMS[name]
    inputs = form.inputs(dtype)
    with attention_whole():
        found = gradients(form, inputs)
    true = gradients(form, [v.double() if v.is_floating_point() else v for v in inputs])
    assert max(far(found, true)) < (1e-12 if dtype == torch.float64 else 1e-6)


def test_what_is_traced_is_what_is_computed() -> None:
    for form in (FORMS["grouped"], FORMS["matrices"], FORMS["bias of heads"]):
        query, key, value, *mask = form.inputs()
        given = (query, key, value, mask[0] if mask else None, None, 0.0, form.causal, None)
        torch.library.opcheck(operators()[0], given, test_utils=(
            "test_schema", "test_faketensor", "test_autograd_registration"))


class Layers(torch.nn.Module):
    """Two layers of nothing but attention."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = F.scaled_dot_product_attention(x, x * 2, x + 1, is_causal=True)
        return x


def test_scores_are_not_saved() -> None:
    x = torch.randn(2, 3, 64, 4, requires_grad=True)
    graphs = step_graphs(Layers(), (x,), {})
    most = max(v.numel() for graph in graphs for v in graph.given if isinstance(v, Tensor))
    assert most <= x.numel() < prod((2, 3, 64, 64))


def test_batches_that_are_stretched() -> None:
    """They are products and a softmax, as in PyTorch."""
    query, key = torch.randn(2, 3, 5, 4, requires_grad=True), torch.randn(1, 3, 6, 4)

    def call(q: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, key, key)

    torch._dynamo.reset()
    found = gradients(torch.compile(call, backend="strata"), [query])
    true = gradients(lambda q: F.scaled_dot_product_attention(q, key.double(), key.double()),
                     [query.double().detach().requires_grad_()])
    assert max(far(found, true)) < 1e-6


def test_open_lengths_of_attention() -> None:
    form = Form((1, 4, 5, 4), (1, 2, 5, 4), causal=True, grouped=True)
    torch._dynamo.reset()
    run = torch.compile(form, backend="strata", dynamic=True)
    for length in (5, 9, 16):
        one = Form((2, 4, length, 4), (2, 2, length, 4), causal=True, grouped=True)
        inputs = one.inputs()
        true = gradients(one, [v.double() for v in inputs])
        assert max(far(gradients(run, inputs), true)) < 1e-6
