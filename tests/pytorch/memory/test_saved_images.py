"""Images that a forward graph saves lie in memory as it computes them: with channels last."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F


class Images(nn.Module):
    """Returns a loss and an image, which is saved as well, for images of any rank."""

    def __init__(self, rank: int, drops: bool = False) -> None:
        super().__init__()
        conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
        norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[rank - 1]
        self.first, self.norm = conv(3, 24, 3, padding=1), norm(24)
        self.second = conv(24, 20, 3, padding=1, stride=2)
        self.drop = nn.Dropout(0.25 if drops else 0.0)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = F.relu(self.norm(self.first(x)))
        made = torch.tanh(self.second(self.drop(hidden)))
        return made.square().mean(), made


def step(call: Any, model: nn.Module, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Results, gradients and buffers of a step, and the images that it saves."""
    saved = list[Tensor]()

    def keep(value: Tensor) -> Tensor:
        saved.append(value)
        return value

    with saved_tensors_hooks(keep, lambda value: value):
        loss, image = call(x)
    (loss + image.sum()).backward()
    found = [loss.detach(), image.detach(), *(p.grad for p in model.parameters()), *model.buffers()]
    return [v.clone() for v in found if v is not None], [v for v in saved if v.dim() == x.dim()]


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(("rank", "drops"), [(1, False), (2, False), (2, True), (3, False)])
def test_saved_images_have_channels_last(rank: int, drops: bool) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Images(rank, drops).train()
    eager, x = copy.deepcopy(model), torch.randn(2, 3, *(9, 8, 6)[:rank])
    torch.manual_seed(1)
    expected, _ = step(eager, eager, x)
    torch.manual_seed(1)
    found, saved = step(torch.compile(model, backend="strata"), model, x)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
        assert a.stride() == b.stride()
    order = {4: torch.channels_last, 5: torch.channels_last_3d}.get(rank + 2)
    images = [v for v in saved if v.shape[1] in (20, 24) and v.shape[0] == 2]
    lying = [order is not None and v.is_contiguous(memory_format=order) for v in images]
    kept = [v for v in images if v.shape[1] == 20]  # the result, which is PyTorch's
    assert len(images) >= 2 and all(v.is_contiguous() for v in kept)
    assert sum(lying) == (len(images) - len(kept) if order else 0)


@pytest.mark.usefixtures("whole")
def test_open_sizes_and_weights_keep_their_order() -> None:
    model = Images(2).train()
    eager = copy.deepcopy(model)
    call = torch.compile(model, backend="strata", dynamic=True)
    for batch in (2, 3):
        x = torch.randn(batch, 3, 9, 8)
        for part in (model, eager):
            part.zero_grad()
        expected, _ = step(eager, eager, x)
        found, _ = step(call, model, x)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
