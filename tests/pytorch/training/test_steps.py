"""What users do around steps of training: freezing, accumulation, checkpoints, wrong use."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.pytorch.training.image_models import Convolutional
from tests.pytorch.training.training_models import (
    Checkpointed,
    Encoder,
    Gpt,
    Mlp,
    distance,
    gradients,
    made,
    of_twin,
)


@pytest.fixture(autouse=True)
def reset() -> None:
    torch._dynamo.reset()


def compiled(model: Callable[..., Tensor], **options: object) -> Callable[..., Tensor]:
    return torch.compile(model, backend="strata", fullgraph=True, **options)  # type: ignore


def both(function: Callable[..., Tensor], *inputs: Tensor) -> list[list[Tensor]]:
    """The result and the gradients of all inputs that need them, compiled and eagerly."""
    found: list[list[Tensor]] = []
    for run in (compiled(function), function):
        given = [v.detach().clone().requires_grad_(v.requires_grad) for v in inputs]
        torch.manual_seed(1)
        result = run(*given)
        result.sum().backward()
        found.append([result.detach(), *(v.grad for v in given if v.grad is not None)])
    assert len(found[0]) == len(found[1])
    return found


@pytest.mark.usefixtures("whole")
def test_gradients_of_inputs_some_of_which_need_none() -> None:
    x, y, z = torch.randn(3, 5), torch.randn(5, requires_grad=True), torch.randn(3, 5)
    for given in ((x, y, z), (x.requires_grad_(), y, z)):
        ours, eager = both(lambda a, b, c: torch.sigmoid(a * b) * c.exp(), *given)
        assert distance(ours, eager) < 1e-6


@pytest.mark.usefixtures("whole")
def test_frozen_parameters() -> None:
    model, inputs = made(Encoder)
    for parameter in model.layers.layers[0].parameters():
        parameter.requires_grad_(False)
    assert distance(gradients(compiled(model), model, inputs), of_twin(model, inputs)) < 1e-6
    assert model.layers.layers[0].linear1.weight.grad is None


@pytest.mark.usefixtures("whole")
def test_frozen_statistics() -> None:
    model, inputs = made(Convolutional)
    model.eval()
    before = [b.clone() for b in model.buffers()]
    assert distance(gradients(compiled(model), model, inputs), of_twin(model, inputs)) < 1e-6
    assert all(map(torch.equal, before, model.buffers()))


@pytest.mark.usefixtures("whole")
def test_running_statistics_are_written_in_place() -> None:
    model, inputs = made(Convolutional)
    twin, places = copy.deepcopy(model), [b.data_ptr() for b in model.buffers()]
    step = compiled(model)
    for _ in range(3):
        step(*inputs).sum().backward()
        twin(*inputs)
    assert places == [b.data_ptr() for b in model.buffers()]
    for ours, eager in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(ours, eager)


@pytest.mark.usefixtures("whole")
def test_gradients_accumulate() -> None:
    """Two backward passes of one forward, and two steps, before gradients are zeroed."""
    model, inputs = made(Mlp)
    twin = copy.deepcopy(model)
    for run, trained in ((compiled(model), model), (twin, twin)):
        result = run(*inputs)
        result.sum().backward(retain_graph=True)
        kept = [p.grad.clone() for p in trained.parameters()]
        result.sum().backward()
        run(*inputs).square().sum().backward()
        trained.kept = kept
    for name in ("kept", "grad"):
        ours, eager = ([getattr(p, name) for p in m.parameters()] if name == "grad" else m.kept
                       for m in (model, twin))
        assert distance(ours, eager) < 1e-6


@pytest.mark.usefixtures("whole")
def test_results_of_a_step_outlive_the_next() -> None:
    """What autograd keeps of one call is not memory of another."""
    model, _ = made(Mlp)
    twin, step = copy.deepcopy(model), compiled(model)
    batches = [Mlp.inputs()[0] for _ in range(3)]
    results = [step(x) for x in batches]
    for result, x in zip(results, batches, strict=True):
        result.square().sum().backward()
        twin(x).square().sum().backward()
    ours, eager = ([p.grad for p in m.parameters()] for m in (model, twin))
    assert distance(ours, eager) < 1e-6


@pytest.mark.usefixtures("whole")
def test_checkpoints_draw_the_same_again() -> None:
    model, inputs = made(Checkpointed)
    assert distance(gradients(compiled(model), model, inputs), of_twin(model, inputs)) < 2e-6


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("build", [Gpt, Convolutional])
def test_open_batches(build: Callable[[], nn.Module]) -> None:
    model, _ = made(build)
    step = compiled(model, dynamic=True)
    for count in (5, 3):
        inputs = model.inputs(count)
        true = of_twin(model, inputs)
        assert distance(gradients(step, model, inputs), true) < 2e-6


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("factor", [1.0, float("inf"), float("nan")])
def test_scaled_losses(factor: float) -> None:
    """GradScaler skips the steps that it skips in eager mode."""
    model, inputs = made(Mlp)
    twin, scales = copy.deepcopy(model), list[float]()
    for run, trained in ((compiled(model), model), (twin, twin)):
        optimizer = torch.optim.SGD(trained.parameters(), 0.02)
        scaler = torch.amp.GradScaler("cpu", 2.0 ** 10, growth_interval=2)
        for k in range(4):
            optimizer.zero_grad()
            loss = run(*inputs).square().mean() * (factor if k == 1 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        scales.append(scaler.get_scale())
    assert scales[0] == scales[1] and (scales[0] > 2 ** 10) == (factor == 1)
    assert distance([*model.parameters()], [*twin.parameters()]) < 1e-6


def test_a_second_derivative_is_refused() -> None:
    x = torch.randn(4, requires_grad=True)
    result = compiled(lambda v: (v ** 3).sum())(x)
    first, = torch.autograd.grad(result, x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        first.sum().backward()


def test_what_has_no_importer_is_named(caplog: pytest.LogCaptureFixture) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.linalg.eigvalsh(x @ x.T + torch.diag(torch.arange(3.0))).sin()

    with caplog.at_level(logging.WARNING, "strata"):
        ours, eager = both(function, torch.randn(3, 3, requires_grad=True))
    assert distance(ours, eager) < 1e-6
    assert "linalg_eigh" in caplog.text and "eagerly" in caplog.text


@pytest.mark.usefixtures("whole")
def test_random_numbers_of_every_kind() -> None:
    def function(x: Tensor) -> Tensor:
        noise = torch.randn_like(x) + torch.rand(3, 4) + torch.empty(4).normal_(1, 2)
        kept = F.dropout(x.T, 0.3).T
        return x * noise + kept * torch.randint(1, 9, (4,))

    ours, eager = both(function, torch.randn(3, 4, requires_grad=True))
    assert distance(ours, eager) < 1e-6
