"""`torch.compile(optimizer.step)`, for optimizers whose steps PyTorch traces."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from compiler.frontend.torch.core.foreach import foreach_decompositions
from tests.pytorch.training.training_models import Mlp, made

OPTIMIZERS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    "adam": ("Adam", {"lr": 0.01, "amsgrad": True}),
    "adamw": ("AdamW", {"lr": torch.tensor(0.01)}),
    "adamw foreach": ("AdamW", {"lr": 0.01, "foreach": True, "maximize": True}),
    "rmsprop": ("RMSprop", {"lr": 0.01, "centered": True}),
    "adagrad foreach": ("Adagrad", {"lr": 0.1, "foreach": True}),
    "nadam": ("NAdam", {"lr": 0.01}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_eagers(name: str, caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    kind, options = OPTIMIZERS[name]
    model, inputs = made(Mlp)
    twin = copy.deepcopy(model)
    with caplog.at_level(logging.WARNING, "strata"):
        for trained, compiles in ((model, True), (twin, False)):
            optimizer = getattr(torch.optim, kind)(trained.parameters(), **copy.deepcopy(options))
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
