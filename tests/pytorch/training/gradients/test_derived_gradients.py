"""Operators whose gradients PyTorch computes by kernels of their own: compiled whole, and right.

So are all layers of PyTorch that normalize, in training and in evaluation.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from tests.pytorch.training.training_models import distance


class Bag(nn.Module):
    """An embedding bag of these arguments, called with offsets, or with factors."""

    def __init__(self, mode: str, padding: int | None = None, last: bool = False):
        super().__init__()
        self.table = nn.EmbeddingBag(11, 4, mode=mode, padding_idx=padding,
                                     include_last_offset=last)

    def forward(self, ids: Tensor, more: Tensor | None = None) -> Tensor:
        if more is not None and more.is_floating_point():
            return self.table(ids, per_sample_weights=more)
        return self.table(ids, more)


def _ids(*shape: int, most: int = 11) -> Tensor:
    return torch.randint(most, shape, generator=torch.Generator().manual_seed(2))


def _floats(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).requires_grad_()


class Padded(nn.Module):
    def __init__(self, *padding: int):
        super().__init__()
        self.padding = padding

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, self.padding, mode="replicate")


CASES: dict[str, tuple[Callable[[], nn.Module], list[Tensor]]] = {
    "sums of bags": (lambda: Bag("sum"), [_ids(3, 5)]),
    "means of bags": (lambda: Bag("mean"), [_ids(3, 5)]),
    "bags with padding": (lambda: Bag("mean", 2), [_ids(4, 5, most=4)]),
    "nothing but padding": (lambda: Bag("mean", 0), [_ids(2, 3, most=1)]),
    "offsets": (lambda: Bag("sum"), [_ids(9), torch.tensor([0, 2, 2, 7])]),
    "last offset": (lambda: Bag("mean", last=True), [_ids(9), torch.tensor([0, 4, 4, 9])]),
    "factors": (lambda: Bag("sum"), [_ids(3, 5), _floats(3, 5)]),
    "factors and padding": (lambda: Bag("sum", 1), [_ids(3, 5, most=3), _floats(3, 5)]),
    "pad of lines": (lambda: Padded(1, 2), [_floats(2, 2, 5)]),
    "pad of images": (lambda: Padded(1, 2, 2, 1), [_floats(1, 2, 5, 6)]),
    "pad of one row": (lambda: Padded(0, 2, 3, 1), [_floats(1, 2, 1, 6)]),
    "pad of volumes": (lambda: Padded(1, 0, 2, 1, 3, 1), [_floats(1, 2, 3, 4, 5)]),
    "norm of rows": (lambda: weight_norm(nn.Linear(4, 5)), [_floats(3, 4)]),
    "norm of columns": (lambda: weight_norm(nn.Linear(4, 5), dim=1), [_floats(3, 4)]),
    "norm of filters": (lambda: weight_norm(nn.Conv1d(4, 5, 3)), [_floats(3, 4, 7)]),
}


def gradients(run: Callable[..., Tensor], model: nn.Module, inputs: list[Tensor]) -> list[Tensor]:
    given = [v.detach().clone().requires_grad_(v.requires_grad) for v in inputs]
    made = run(*given)
    (made * torch.linspace(-1, 2, made.numel()).view(made.shape)).sum().backward()
    return [made.detach(), *[v.grad for v in given if v.grad is not None],
            *[p.grad for p in model.parameters() if p.grad is not None]]


@pytest.mark.parametrize("name", CASES)
def test_gradients_that_had_kernels(name: str, caplog: pytest.LogCaptureFixture) -> None:
    build, inputs = CASES[name]
    torch.manual_seed(0)
    model = build()
    twin = copy.deepcopy(model)
    torch._dynamo.reset()
    with caplog.at_level(logging.WARNING, "strata"):
        found = gradients(torch.compile(model, backend="strata", fullgraph=True), model, inputs)
    assert not [r for r in caplog.records if r.name == "strata"], caplog.text
    torch.testing.assert_close(found, gradients(twin, twin, inputs), rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------------- layers that normalize
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


def step_of(run: Callable[..., Tensor], layer: nn.Module, x: Tensor) -> list[Tensor]:
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
        ours = step_of(torch.compile(layer, backend="strata", fullgraph=True), layer, x)
    assert not [r for r in caplog.records if r.name == "strata"], caplog.text
    true = step_of(exact, exact, x.double())
    assert distance(ours, true) < max(1e-6, 1.2 * distance(step_of(twin, twin, x), true))
