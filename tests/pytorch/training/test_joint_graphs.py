"""What is changed in a joint graph: padded products, and sums with one element that is not zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from compiler.frontend.torch import operators
from compiler.frontend.torch.core.decompose import decompositions
from compiler.frontend.torch.core.gradients import step_decompositions
from compiler.torch.joint.padded_products import pad_products
from compiler.torch.joint.sums_of_one import fold_sums_of_one
from compiler.torch.training import skip_detached

aten = torch.ops.aten
ROWS, INNER, CLASSES = 296, 264, 301


def traced(function: Callable[..., Any], inputs: list[Tensor]) -> Any:
    known = {**decompositions(list(map(str, operators()))), **step_decompositions()}
    return make_fx(function, known, tracing_mode="fake")(*inputs)


def changed(graph: Any) -> Any:
    skip_detached(graph)
    fold_sums_of_one(graph)
    pad_products(graph, lambda factor: True)
    graph.graph.lint()
    return graph


def nodes(graph: Any, target: Any) -> list[Any]:
    return graph.graph.find_nodes(op="call_function", target=target)


def gradients(function: Callable[..., Tensor], count: int) -> Callable[..., Any]:
    """A function that returns the loss and the gradients of its first arguments."""
    def call(*inputs: Tensor) -> Any:
        given = [v.detach().requires_grad_() for v in inputs[:count]]
        loss = function(*given, *inputs[count:])
        return [loss.detach(), *torch.autograd.grad(loss, given)]

    return call


def plain(x: Tensor, weight: Tensor, wanted: Tensor) -> Tensor:
    return F.cross_entropy(x @ weight.T, wanted)


def with_bias(x: Tensor, weight: Tensor, bias: Tensor, wanted: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, weight, bias), wanted, ignore_index=5)


def of_sequences(x: Tensor, weight: Tensor, wanted: Tensor) -> Tensor:
    made = x.unflatten(0, (2, -1)) @ weight.T
    return F.cross_entropy(made.float().flatten(0, 1), wanted, reduction="sum")


def as_it_lies(x: Tensor, weight: Tensor, wanted: Tensor) -> Tensor:
    """The weight is not a transpose."""
    return F.cross_entropy((x @ weight.reshape(INNER, CLASSES)).tanh(), wanted)


CASES = {f.__name__: f for f in (plain, with_bias, of_sequences, as_it_lies)}


def given(name: str) -> tuple[list[Tensor], int]:
    x, weight = torch.randn(ROWS, INNER), torch.randn(CLASSES, INNER) / 8
    bias = [torch.randn(CLASSES)] * (name == "with_bias")
    wanted = torch.randint(CLASSES, (ROWS,))
    return [x, weight, *bias, wanted], 2 + len(bias)


@pytest.mark.parametrize("name", CASES)
def test_products_are_padded(name: str) -> None:
    torch.manual_seed(0)
    inputs, count = given(name)
    graph = traced(gradients(CASES[name], count), inputs)
    wanted = graph(*inputs)
    changed(graph)
    for node in (*nodes(graph, aten.mm.default), *nodes(graph, aten.addmm.default)):
        left, right = (v.meta["val"] for v in node.args[-2:])
        for factor in (left, right):
            assert max(factor.stride()) * factor.itemsize % 16 == 0
        assert node.meta["val"].shape[1] * 2 % 16 == 0
    for mine, true in zip(graph(*inputs), wanted, strict=True):
        assert mine.shape == true.shape
        torch.testing.assert_close(mine, true, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["plain", "with_bias", "of_sequences"])
def test_only_arguments_are_copied_to_be_padded(name: str) -> None:
    inputs, count = given(name)
    graph = changed(traced(gradients(CASES[name], count), inputs))
    for node in nodes(graph, aten.constant_pad_nd.default):
        assert not nodes_behind(node), node.format_node()


def nodes_behind(node: Any) -> list[Any]:
    """What is computed, from which a node is made, but for views and conversions."""
    views = (aten.detach.default, aten.t.default, aten._to_copy.default, aten.alias.default)
    source = node.args[0]
    while source.op == "call_function" and source.target in views:
        source = source.args[0]
    return [source] if source.op == "call_function" else []


@pytest.mark.parametrize("sizes", [(255, 264, 301), (296, 264, 304)], ids=str)
def test_others_stay(sizes: tuple[int, int, int]) -> None:
    rows, inner, classes = sizes
    inputs = [torch.randn(rows, inner), torch.randn(classes, inner)]
    graph = changed(traced(lambda x, w: x @ w.T, inputs))
    assert not nodes(graph, aten.constant_pad_nd.default)
    assert not nodes(graph, aten.slice.Tensor)


def test_a_loss_sums_no_gradient_over_classes() -> None:
    inputs, count = given("plain")
    graph = traced(gradients(plain, count), inputs)
    wide = [n for n in nodes(graph, aten.sum.dim_IntList) if n.args[0].meta["val"].shape[-1] > 1]
    wanted = graph(*inputs)
    fold_sums_of_one(graph)
    left = [n for n in nodes(graph, aten.sum.dim_IntList) if n.args[0].meta["val"].shape[-1] > 1]
    assert len(left) < len(wide)
    for mine, true in zip(graph(*inputs), wanted, strict=True):
        torch.testing.assert_close(mine, true, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("places", [[0, 2, 6], [-1, 7, 3]], ids=str)
def test_places_outside_are_not_counted(places: list[int]) -> None:
    def spread(at: Tensor, value: Tensor) -> Tensor:
        found = torch.arange(7) == at.unsqueeze(-1)
        return torch.where(found, value.unsqueeze(-1), 0).sum(-1, keepdim=True)

    inputs = [torch.tensor(places), torch.randn(3)]
    graph = make_fx(spread, tracing_mode="fake")(*inputs)
    wanted = graph(*inputs)
    fold_sums_of_one(graph)
    assert not nodes(graph, aten.sum.dim_IntList)
    assert torch.equal(graph(*inputs), wanted)


def test_results_keep_their_strides() -> None:
    def both(x: Tensor, weight: Tensor, wanted: Tensor) -> list[Tensor]:
        made = (x.unflatten(0, (2, -1)) @ weight.T).transpose(1, 2)
        return [made, made.transpose(1, 2).reshape(-1), F.cross_entropy(made.flatten(), wanted)]

    inputs = [torch.randn(ROWS, INNER), torch.randn(CLASSES, INNER), torch.tensor(3)]
    graph = traced(both, inputs)
    wanted = graph(*inputs)
    for mine, true in zip(changed(graph)(*inputs), wanted, strict=True):
        assert mine.stride() == true.stride()
        torch.testing.assert_close(mine, true, rtol=1e-5, atol=1e-5)


def test_conversions_of_a_gradient_are_kept() -> None:
    def spread(at: Tensor, value: Tensor) -> Tensor:
        found = (torch.arange(7) == at.unsqueeze(-1)) & (at.unsqueeze(-1) != 2)
        made = torch.where(found, value.unsqueeze(-1), 0)
        return made.to(torch.bfloat16).float().sum(-1, keepdim=True)

    inputs = [torch.tensor([0, 2, 6]), torch.randn(3)]
    graph = make_fx(spread, tracing_mode="fake")(*inputs)
    wanted = graph(*inputs)
    fold_sums_of_one(graph)
    assert not nodes(graph, aten.sum.dim_IntList)
    assert torch.equal(graph(*inputs), wanted)
