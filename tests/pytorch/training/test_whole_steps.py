"""Forward and backward graphs of whole models, compiled without a part that runs eagerly."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Generator

import pytest
import torch
from torch import Tensor

from tests.pytorch.training.training_models import (
    MODELS,
    RANDOM,
    Mlp,
    distance,
    gradients,
    made,
    of_twin,
)

FLOOR = 2e-7
"""A distance of gradients in f32 that differences of order alone explain."""


@pytest.fixture(autouse=True)
def nothing_runs_eagerly(caplog: pytest.LogCaptureFixture) -> Generator[None]:
    torch._dynamo.reset()
    with caplog.at_level(logging.WARNING, "strata"):
        yield
    assert not caplog.records, caplog.text


def compiled(model: Callable[..., Tensor], **options: object) -> Callable[..., Tensor]:
    return torch.compile(model, backend="strata", fullgraph=True, **options)  # type: ignore


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_as_exact_as_eagers(name: str) -> None:
    model, inputs = made(MODELS[name])
    true, eager = of_twin(model, inputs, torch.float64), of_twin(model, inputs)
    found = gradients(compiled(model), model, inputs)
    assert distance(found, true) <= 1.2 * distance(eager, true) + FLOOR


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_eagers(name: str) -> None:
    model, inputs = made(RANDOM[name])
    eager = of_twin(model, inputs)
    step = compiled(model)
    assert distance(gradients(step, model, inputs), eager) < 1e-6
    before, after = step(*inputs), step(*inputs)
    assert not torch.equal(before, after)


@pytest.mark.parametrize("name", [*MODELS, *RANDOM])
def test_losses_follow_eagers(name: str) -> None:
    model, inputs = made((MODELS | RANDOM)[name])
    twin = copy.deepcopy(model)
    losses = []
    for run, trained in ((compiled(model), model), (twin, twin)):
        optimizer = torch.optim.SGD(trained.parameters(), 0.02, momentum=0.9)
        torch.manual_seed(5)
        losses.append([])
        for _ in range(20):
            optimizer.zero_grad()
            result = run(*inputs)
            loss = result.square().mean() if result.dim() else result
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0][-1] < losses[0][0]
    assert losses[0] == pytest.approx(losses[1], rel=2e-4)


def test_open_sizes() -> None:
    model, _ = made(Mlp)
    step = compiled(model, dynamic=True)
    for count in (5, 3, 8, 2):
        inputs = Mlp.inputs(count)
        assert distance(gradients(step, model, inputs), of_twin(model, inputs)) < 1e-6


def test_the_same_module_in_training_and_inference() -> None:
    model, inputs = made(Mlp)
    step = compiled(model)
    for _ in range(2):
        with torch.no_grad():
            torch.testing.assert_close(step(*inputs), model(*inputs), rtol=1e-5, atol=1e-6)
        assert distance(gradients(step, model, inputs), of_twin(model, inputs)) < 1e-6
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad


@pytest.mark.parametrize("name", ["mlp", "gpt", "convolutional"])
def test_autocast_to_halves(name: str) -> None:
    def in_halves(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*given: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return run(*given)

        return call

    model, inputs = made(MODELS[name])
    true, twin = of_twin(model, inputs, torch.float64), copy.deepcopy(model)
    eager = gradients(in_halves(twin), twin, inputs)
    found = gradients(compiled(in_halves(model)), model, inputs)
    assert {v.dtype for v in found} == {v.dtype for v in eager}
    assert distance(found, true) <= 1.2 * distance(eager, true) + 1e-3
