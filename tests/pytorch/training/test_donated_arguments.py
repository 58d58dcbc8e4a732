"""Gradients in the memory of what the forward pass has saved: when, and what stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import targets.cpu.runtime.executable as executable
from compiler.torch.parts import Part
from targets.memory import Home

Placed = list[dict[int, Home]]
WIDTH = 256


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> Placed:
    """For each graph that is called with addresses alone, which results lie in arguments."""
    found: Placed = []
    original = executable.homes

    def homes(*given: Any) -> dict[int, Home]:
        found.append(original(*given))
        return found[-1]

    monkeypatch.setattr(executable, "homes", homes)
    torch._dynamo.reset()
    return found


class Deep(nn.Module):
    """Layers whose saved activations are as large as their weights."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x


def made() -> tuple[Deep, Deep, Tensor]:
    torch.manual_seed(0)
    model, twin = Deep(), Deep()
    twin.load_state_dict(model.state_dict())
    return model, twin, torch.randn(WIDTH, WIDTH)


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="strata", fullgraph=True, **options)


def check(model: nn.Module, twin: nn.Module) -> None:
    for ours, eager in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, eager.grad, rtol=1e-4, atol=1e-5)


def memories(model: nn.Module) -> list[range]:
    """Where gradients lie."""
    return [range(g.data_ptr(), g.data_ptr() + g.nbytes) for p in model.parameters()
            if (g := p.grad) is not None]


def test_gradients_take_the_place_of_saved_values(placed: Placed) -> None:
    model, twin, x = made()
    step = compiled(model)
    for _ in range(3):
        for run in (step, twin):
            run(x).square().sum().backward()
        check(model, twin)
    assert len(placed) == 2 and not placed[0] and len(placed[1]) >= 2
    spans = sorted(memories(model), key=lambda span: span.start)
    assert all(a.stop <= b.start for a, b in pairwise(spans))
    assert len({p.grad.untyped_storage()._cdata for p in model.parameters()  # type: ignore
                }) == len(spans)


def test_gradients_outlive_later_steps(placed: Placed) -> None:
    model, twin, _ = made()
    step, kept = compiled(model), list[tuple[list[Tensor], list[Tensor]]]()
    for seed in range(4):
        x = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(seed))
        pair = [torch.autograd.grad(run(x).square().sum(), [*of.parameters()])
                for run, of in ((step, model), (twin, twin))]
        kept.append((list(pair[0]), list(pair[1])))
    assert any(placed)
    for ours, eager in kept:
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)


def test_forward_passes_before_backward_passes(placed: Placed) -> None:
    """What one call has saved is not the memory of another's gradients."""
    model, twin, _ = made()
    step = compiled(model)
    batches = [torch.randn(WIDTH, WIDTH) for _ in range(3)]
    for run in (step, twin):
        results = [run(x) for x in batches]
        for result in reversed(results):
            result.square().sum().backward()
    check(model, twin)
    assert any(placed)


def test_a_graph_that_is_kept_runs_twice(placed: Placed) -> None:
    model, twin, x = made()
    step = compiled(model)
    for run in (step, twin):
        result = run(x)
        result.sum().backward(retain_graph=True)
        result.sum().backward()
    check(model, twin)
    assert not any(placed)


def test_a_graph_that_was_not_kept_first_is_refused_as_pytorch_does(placed: Placed) -> None:
    model, twin, x = made()
    step = compiled(model)
    step(x).sum().backward()
    assert any(placed)
    with pytest.raises(RuntimeError, match="donated_buffer"):
        step(x).sum().backward(retain_graph=True)
    model.zero_grad()
    step(x).sum().backward()
    twin(x).sum().backward()
    check(model, twin)


def test_values_that_users_see_are_not_donated(placed: Placed) -> None:
    """Intermediate results that are returned, also as views, keep their contents."""
    model, twin, x = made()

    def both(given: Deep) -> Callable[[Tensor], tuple[Tensor, ...]]:
        def run(x: Tensor) -> tuple[Tensor, ...]:
            first = given.layers[0](x).tanh()
            second = given.layers[1](first).tanh()
            third = given.layers[2](second).tanh()
            return given.layers[3](third).tanh(), first, second.T, third[5:]

        return run

    ours, eager = compiled(both(model))(x), both(twin)(x)
    for results in (ours, eager):
        results[0].sum().backward()
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
    check(model, twin)


def test_arguments_and_leaves_are_not_donated(placed: Placed) -> None:
    model, twin, x = made()
    given, own = x.clone().requires_grad_(), x.clone().requires_grad_()
    before = [p.detach().clone() for p in model.parameters()]
    compiled(model)(given).square().sum().backward()
    twin(own).square().sum().backward()
    torch.testing.assert_close(given.detach(), x)
    torch.testing.assert_close([p.detach() for p in model.parameters()], before)
    torch.testing.assert_close(given.grad, own.grad, rtol=1e-4, atol=1e-5)


def test_hooks_see_gradients_that_stay(placed: Placed) -> None:
    model, twin, x = made()
    seen = [{name: list[Tensor]() for name, _ in model.named_parameters()} for _ in range(2)]
    for found, of in zip(seen, (model, twin), strict=True):
        for name, parameter in of.named_parameters():
            parameter.register_hook(found[name].append)
    step = compiled(model)
    for run in (step, twin):
        for _ in range(2):
            run(x).square().sum().backward()
    assert any(placed)
    torch.testing.assert_close(*seen, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("unpack", [lambda t: t, Tensor.clone, Tensor.detach])
def test_hooks_may_keep_what_is_saved(
    placed: Placed, unpack: Callable[[Tensor], Tensor]
) -> None:
    model, twin, x = made()
    step, kept = compiled(model), list[tuple[Tensor, Tensor]]()

    def pack(value: Tensor) -> Tensor:
        kept.append((value, value.detach().clone()))
        return value

    for _ in range(2):
        for run in (step, twin):
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                loss = run(x).square().sum()
            loss.backward()
    assert any(placed)
    check(model, twin)
    for value, before in kept:
        torch.testing.assert_close(value, before, rtol=0, atol=0)


def test_hooks_may_return_memory_of_others(placed: Placed) -> None:
    """Equal values are kept once, by code that does not refer to what it was given."""
    model, twin, x = made()
    step = compiled(model)
    for run in (step, twin):
        kept: list[Tensor] = []

        def pack(value: Tensor, kept: list[Tensor] = kept) -> int:
            for number, known in enumerate(kept):
                if torch.equal(known, value):
                    return number
            kept.append(value.detach().clone())
            return len(kept) - 1

        with torch.autograd.graph.saved_tensors_hooks(pack, kept.__getitem__):
            loss = run(x).sum() + run(x).sum()
        before = [value.clone() for value in kept]
        loss.backward()
        torch.testing.assert_close(kept, before, rtol=0, atol=0)
    assert any(placed)
    check(model, twin)


def test_nodes_of_autograd_may_be_asked_for_what_is_saved(placed: Placed) -> None:
    model, _, x = made()
    result = compiled(model)(x)
    kept = result.grad_fn.saved_tensors  # type: ignore[union-attr]
    before = [value.detach().clone() for value in kept]
    result.sum().backward()
    assert any(placed)
    torch.testing.assert_close([v.detach() for v in kept], before, rtol=0, atol=0)


def test_nothing_is_copied_that_nobody_else_keeps(placed: Placed) -> None:
    """Gradients lie where what the forward pass has saved lay, not in a copy of it."""
    model, _, x = made()
    step = compiled(model)
    step(x).sum().backward()
    model.zero_grad()
    result = step(x)
    saved = [t.untyped_storage().data_ptr()
             for t in result.grad_fn.saved_tensors]  # type: ignore[union-attr]
    result.sum().backward()
    assert any(placed)
    homes = [g.untyped_storage().data_ptr() for p in model.parameters()
             if (g := p.grad) is not None]
    assert len(set(homes) & set(saved)) == len(placed[1])


def test_open_batches(placed: Placed) -> None:
    """Where an argument is too small, results have memory of their own."""
    model, twin, _ = made()
    step = compiled(model, dynamic=True)
    for rows in (WIDTH, 7, 3 * WIDTH, 2, WIDTH):
        x = torch.randn(rows, WIDTH)
        for run in (step, twin):
            run(x).square().sum().backward()
        check(model, twin)
    assert any(placed) and not all(placed[1:])


def test_an_option_of_pytorch_turns_it_off(placed: Placed) -> None:
    model, twin, x = made()
    with torch._functorch.config.patch(donated_buffer=False):
        step = compiled(model)
        for run in (step, twin):
            run(x).square().sum().backward(retain_graph=run is step)
    check(model, twin)
    assert not any(placed)


# ---------------------------------------------------------------------- bases of views
class Heads(nn.Module):
    """Queries, keys and values are views of one product."""

    def __init__(self) -> None:
        super().__init__()
        self.joint = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2)
                   for part in self.joint(x).chunk(3, -1))
        return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def test_what_is_saved_of_views_is_their_base(
    placed: Placed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of it is copied before the backward code runs."""
    gaps: list[list[str]] = []
    original = Part.__call__

    def call(self: Part, *arguments: Any) -> Any:
        nodes = [n for n in self.captured.module.graph.nodes if n.op == "placeholder"]
        gaps.append([nodes[k].name for k in self.given if not arguments[k].is_contiguous()])
        return original(self, *arguments)

    monkeypatch.setattr(Part, "__call__", call)
    torch.manual_seed(0)
    model, twin = Heads(), Heads()
    twin.load_state_dict(model.state_dict())
    x, step = torch.randn(2, 64, WIDTH), compiled(model)
    for _ in range(2):
        for run in (step, twin):
            run(x).square().sum().backward()
    check(model, twin)
    assert gaps and not any(gaps)


def test_views_of_which_results_are_one(placed: Placed) -> None:
    """A saved view that is a result, too, stays what it is."""
    weight = torch.randn(64, 96, requires_grad=True)
    own = weight.detach().clone().requires_grad_()

    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = (x @ w).tanh()
        left, right = y[:, :48].T, y[:, 48:].T
        return (left.exp() * right.exp()).sum(), right

    x = torch.randn(64, 64)
    ours, eager = compiled(function)(x, weight), function(x, own)
    for results in (ours, eager):
        results[0].backward()
    torch.testing.assert_close(ours, eager)
    torch.testing.assert_close(weight.grad, own.grad)
