"""Tensors by places in memory: `as_strided` and its gradient, which pools of one pixel use."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn


def layers(x: Tensor) -> Tensor:
    """A pool of one pixel of an image with channels last."""
    y = nn.functional.relu(x.contiguous(memory_format=torch.channels_last))
    return torch.flatten(nn.functional.adaptive_avg_pool2d(y, (1, 1)), 1).exp()


FORMS: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Tensor]]] = {
    "pool": ((3, 7, 5, 4), layers),
    "all of it": ((4, 6), lambda x: (x * 2).as_strided((6, 4), (1, 6))),
    "of a transposed one": ((4, 6), lambda x: (x * 2).t().as_strided((3, 8), (8, 1))),
    "a part": ((5, 4), lambda x: (x * 2).as_strided((2, 3), (1, 2), 7)),
    "with gaps": ((5, 4), lambda x: (x * 2).as_strided((3, 2), (7, 2), 1)),
    "none": ((5, 4), lambda x: (x * 2).as_strided((0, 2), (7, 2))),
    "one": ((5, 4), lambda x: (x * 2).as_strided((), (), 3)),
    "of a slice": ((5, 4), lambda x: (x * 2)[1:].as_strided((2, 4), (4, 1))),
}


@pytest.mark.parametrize("name", FORMS)
def test_gradients_of_strided(name: str, caplog: pytest.LogCaptureFixture) -> None:
    shape, call = FORMS[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    found: list[list[Tensor]] = []
    torch._dynamo.reset()
    with caplog.at_level(logging.WARNING, "strata"):
        for run in (torch.compile(call, backend="strata"), call):
            given = x.clone().requires_grad_()
            made = run(given)
            made.backward(torch.linspace(1, 2, made.numel()).view(made.shape))
            assert given.grad is not None
            found.append([made.detach(), given.grad])
    assert not caplog.records, caplog.text
    for ours, eager in zip(*found, strict=True):
        torch.testing.assert_close(ours, eager)


def test_windows_that_overlap() -> None:
    """Their gradient is AOTAutograd's, which differs from eager mode's."""
    x = torch.arange(11.0)
    torch._dynamo.reset()
    run = torch.compile(lambda v: (v * 2).as_strided((5, 3), (2, 1)), backend="strata")
    assert torch.equal(run(x), (x * 2).unfold(0, 3, 2))
