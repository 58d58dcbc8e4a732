"""`torch.compile(optimizer.step)`, for optimizers whose steps PyTorch traces."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from compiler.frontend.torch.core.foreach import foreach_decompositions
from tests.pytorch.training.training_models import Mlp, made


class Lion(torch.optim.Optimizer):
    """Steps along the signs of a mean of gradients, which PyTorch lacks.

    Source: X. Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, foreach: bool = False) -> None:
        super().__init__(parameters, {
            "lr": lr, "betas": (0.9, 0.99), "weight_decay": 0.1, "foreach": foreach})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            given = [p for p in group["params"] if p.grad is not None]
            for p in given:
                self.state[p].setdefault("mean", torch.zeros_like(p))
            (_lion_lists if group["foreach"] else _lion_each)(
                given, [self.state[p]["mean"] for p in given], group)


def _lion_each(given: list[Tensor], means: list[Tensor], group: Mapping[str, Any]) -> None:
    rate, (now, later) = group["lr"], group["betas"]
    for p, mean in zip(given, means, strict=True):
        p.mul_(1 - rate * group["weight_decay"])
        p.add_(mean.mul(now).add(p.grad, alpha=1 - now).sign_(), alpha=-rate)
        mean.lerp_(p.grad, 1 - later)


def _lion_lists(given: list[Tensor], means: list[Tensor], group: Mapping[str, Any]) -> None:
    rate, (now, later), grads = group["lr"], group["betas"], [p.grad for p in given]
    torch._foreach_mul_(given, 1 - rate * group["weight_decay"])
    steps = torch._foreach_lerp(means, grads, 1 - now)
    torch._foreach_sign_(steps)
    torch._foreach_add_(given, steps, alpha=-rate)
    torch._foreach_lerp_(means, grads, 1 - later)


OPTIMIZERS: dict[str, tuple[Any, Mapping[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    "sgd fused": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "fused": True}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    "adam fused": (torch.optim.Adam, {"lr": 0.01, "fused": True}),
    "adamw": (torch.optim.AdamW, {"lr": torch.tensor(0.01)}),
    "adamw foreach": (torch.optim.AdamW, {"lr": 0.01, "foreach": True, "maximize": True}),
    "adamw fused": (torch.optim.AdamW, {"lr": 0.01, "fused": True}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "centered": True}),
    "rmsprop foreach": (torch.optim.RMSprop, {"lr": 0.01, "foreach": True, "momentum": 0.5}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1}),
    "adagrad foreach": (torch.optim.Adagrad, {"lr": 0.1, "foreach": True}),
    "adagrad fused": (torch.optim.Adagrad, {"lr": 0.1, "fused": True}),
    "nadam": (torch.optim.NAdam, {"lr": 0.01}),
    "lion": (Lion, {"lr": 0.01}),
    "lion foreach": (Lion, {"lr": 0.01, "foreach": True}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_eagers(name: str, caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    kind, options = OPTIMIZERS[name]
    model, inputs = made(Mlp)
    twin = copy.deepcopy(model)
    with caplog.at_level(logging.WARNING, "strata"):
        for trained, compiles in ((model, True), (twin, False)):
            optimizer = kind(trained.parameters(), **copy.deepcopy(options))
            step = torch.compile(optimizer.step, backend="strata") if compiles else optimizer.step
            places = [p.data_ptr() for p in trained.parameters()]
            for _ in range(4):
                optimizer.zero_grad()
                trained(*inputs).square().mean().backward()
                step()
            assert places == [p.data_ptr() for p in trained.parameters()]
    assert not [r for r in caplog.records if r.name == "strata"], caplog.text
    for ours, eager in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=2e-6)


class Given(torch.nn.Module):
    """Operators with a factor that is a float of the call."""

    def forward(self, x: Tensor, y: Tensor, z: Tensor, f: float) -> tuple[Tensor, ...]:
        return (x.add(y, alpha=-f), x.sub(y, alpha=f), x.addcmul(y, z, value=f),
                x.addcdiv(y, z, value=-f), x.lerp(x.flip(0), f))


@pytest.mark.parametrize("narrow", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
def test_open_factors(kind: torch.dtype, narrow: torch.dtype) -> None:
    """One graph serves all values after the second, with eager's types and one rounding."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    run = torch.compile(Given(), backend="strata")
    x, y, z = torch.randn(5, 3).to(kind), torch.randn(5, 3).to(narrow), torch.rand(5, 3) + 0.5
    for factor in (0.3, 0.1, 0.77, 1e-3):
        given = (x, y, z.to(narrow), factor)
        for ours, eager in zip(run(*given), Given()(*given), strict=True):
            assert ours.dtype == eager.dtype
            loose = {"rtol": 0.02, "atol": 0.01} if eager.dtype == torch.bfloat16 else {}
            torch.testing.assert_close(ours, eager, **loose)  # eager mode rounds products as well
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


SCHEDULED: dict[str, tuple[str, Mapping[str, Any]]] = {
    "sgd": ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    "sgd foreach": ("SGD", {"foreach": True, "nesterov": True, "momentum": 0.9}),
    "adam": ("Adam", {}), "adamw foreach": ("AdamW", {"foreach": True}),
    "adamw fused": ("AdamW", {"fused": True}), "adagrad": ("Adagrad", {}),
    "rmsprop": ("RMSprop", {"momentum": 0.5}), "rmsprop foreach": ("RMSprop", {"foreach": True}),
    "muon": ("Muon", {}),
}


@pytest.mark.parametrize("name", SCHEDULED)
def test_another_learning_rate_compiles_nothing(name: str) -> None:
    """After the second value, for which Dynamo leaves it open."""
    kind, options = SCHEDULED[name]
    if not hasattr(torch.optim, kind):
        pytest.skip("this version of PyTorch has no such optimizer")
    torch._dynamo.reset()
    ours, eager = ([torch.linspace(-1, 1, 6).view(2, 3).requires_grad_()] for _ in range(2))
    made = [getattr(torch.optim, kind)(p, lr=0.1, **options) for p in (ours, eager)]
    step = torch.compile(made[0].step, backend="strata")
    graphs: list[int] = []
    for number in range(6):
        for optimizer, parameters in zip(made, (ours, eager), strict=True):
            optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
            parameters[0].grad = torch.linspace(2, -1, 6).view(2, 3) * (number - 2)
        step()
        made[1].step()
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
    assert graphs[-1] == graphs[2]


def _values(schema: Any) -> dict[str, Any]:
    """Arguments of an operator on lists, for lists of two tensors."""
    def value(argument: Any) -> Any:
        kind, tensors = str(argument.type), [torch.rand(3, 3) / 2 + 0.1, torch.rand(3, 3) / 2]
        many = {"List[Tensor]": tensors, "List[number]": [0.5, 2.0], "Tensor": tensors[0][0, :2]}
        return many.get(kind, 0.5)

    return {a.name: value(a) for a in schema.arguments if not a.has_default_value()
            or a.name == "alpha"}


@pytest.mark.parametrize("operator", foreach_decompositions(), ids=str)
def test_operators_on_lists(operator: Any) -> None:
    torch.manual_seed(0)
    given = _values(operator._schema)
    if operator._schema.name.endswith(("_add", "_mul", "_div")) and operator._overloadname == (
            "Tensor"):
        given["other"] = torch.tensor(1.5)
    made: list[Tensor] = foreach_decompositions()[operator](**given)
    torch.testing.assert_close(made, list(operator(**given)))
