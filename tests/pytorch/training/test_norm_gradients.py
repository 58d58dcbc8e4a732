"""Every layer of PyTorch that normalizes: compiled whole, in training and in evaluation."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.pytorch.training.training_models import distance

IMAGE = (2, 4, 5, 6)
LAYERS: dict[str, tuple[Callable[[], nn.Module], Sequence[int]]] = {
    "batch of rows": (partial(nn.BatchNorm1d, 4), (5, 4)),
    "batch of lines": (partial(nn.BatchNorm1d, 4), (5, 4, 7)),
    "batch of images": (partial(nn.BatchNorm2d, 4, affine=False), IMAGE),
    "batch of volumes": (partial(nn.BatchNorm3d, 4), (2, 4, 3, 2, 5)),
    "batch without running statistics": (
        partial(nn.BatchNorm2d, 4, track_running_stats=False), IMAGE),
    "instance": (partial(nn.InstanceNorm2d, 4), IMAGE),
    "instance with factors": (partial(nn.InstanceNorm1d, 4, affine=True), (2, 4, 9)),
    "instance with running statistics": (
        partial(nn.InstanceNorm2d, 4, affine=True, track_running_stats=True), IMAGE),
    "group": (partial(nn.GroupNorm, 2, 4), IMAGE),
    "group of rows": (partial(nn.GroupNorm, 2, 4, affine=False), (3, 4)),
    "layer": (partial(nn.LayerNorm, (5, 6)), IMAGE),
    "layer without bias": (partial(nn.LayerNorm, 6, bias=False), IMAGE),
    "root of mean square": (partial(nn.RMSNorm, 6), IMAGE),
    "local response": (partial(nn.LocalResponseNorm, 2), IMAGE),
}


def gradients(run: Callable[..., Tensor], layer: nn.Module, x: Tensor) -> list[Tensor]:
    """The result, all gradients, and the buffers that a step writes."""
    given = x.clone().requires_grad_()
    made = run(given)
    (made * torch.linspace(-1, 2, made.numel()).view(made.shape).to(made)).sum().backward()
    found: list[Any] = [made.detach(), given.grad, *(p.grad for p in layer.parameters())]
    return [*found, *(b.clone() for b in layer.buffers())]


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_that_normalize(
    name: str, training: bool, caplog: pytest.LogCaptureFixture
) -> None:
    build, shape = LAYERS[name]
    torch.manual_seed(0)
    layer, x = build().train(training), torch.randn(*shape) * 2 + 1
    twin, exact = copy.deepcopy(layer), copy.deepcopy(layer).double()
    torch._dynamo.reset()
    with caplog.at_level(logging.WARNING, "strata"):
        ours = gradients(torch.compile(layer, backend="strata", fullgraph=True), layer, x)
    assert not [r for r in caplog.records if r.name == "strata"], caplog.text
    true = gradients(exact, exact, x.double())
    assert distance(ours, true) < max(1e-6, 1.2 * distance(gradients(twin, twin, x), true))
