"""Gradients of convolutions of every form, drawn at random, against PyTorch in f64."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import compiler
from tests.pytorch.programs import export, flat, run

BACKWARD: Any = torch.ops.aten.convolution_backward


def _drawn(draw: random.Random) -> tuple[torch.Tensor, torch.Tensor, list[Any]]:
    """x, a filter, and a form in which it fits."""
    rank, transposed = draw.choice((1, 2, 2)), draw.random() < 0.3
    group = draw.choice((1, 1, 2, 3))
    given, made = group * draw.choice((1, 2, 17)), group * draw.choice((1, 3, 16))

    def sizes(*choices: int) -> list[int]:
        return [draw.choice(choices) for _ in range(rank)]

    kernel, stride, dilation, padding = (
        sizes(1, 2, 3, 4), sizes(1, 1, 2, 3), sizes(1, 1, 2), sizes(0, 1, 2, 3))
    extra = [draw.randrange(max(a, b)) if transposed else 0
             for a, b in zip(stride, dilation, strict=True)]
    channels = (given, made // group) if transposed else (made, given // group)
    return (torch.randn(2, given, *sizes(5, 7, 8, 11), dtype=torch.float64),
            torch.randn(*channels, *kernel, dtype=torch.float64),
            [stride, padding, dilation, transposed, extra, group])


@pytest.mark.parametrize("seed", range(24))
def test_gradients_of_drawn_convolutions(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    while True:
        x, weight, form = _drawn(draw)
        try:
            made = torch.ops.aten.convolution(x, weight, None, *form)
            break
        except RuntimeError:  # the window is larger than x
            continue
    bias = [made.shape[1]]

    def gradients(given: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
        return BACKWARD(given, x, weight, bias, *form, [True, True, True])

    inputs = [torch.randn_like(made), x, weight]
    found, want = run(export(gradients, inputs), inputs), flat(gradients(*inputs))
    for ours, theirs in zip(found, want, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize(("size", "stride", "group"), [(24, 8, 1), (29, 8, 1), (26, 13, 2)])
@pytest.mark.parametrize("is_open", [False, True])
def test_patches_are_one_product(size: int, stride: int, group: int, is_open: bool) -> None:
    """A patch of 8 x 8 has 64 phases, which would be a kernel each. Rows beyond the last patch have
    gradients of 0."""
    torch.manual_seed(size)
    form = [[stride] * 2, [0, 0], [1, 1], False, [0, 0], group]
    x = torch.randn(2, 4, size, size, dtype=torch.float64)
    weight = torch.randn(6, 4 // group, stride, stride, dtype=torch.float64)

    def gradient(given: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
        return BACKWARD(given, x, weight, None, *form, [True, False, False])[0]

    inputs = [torch.randn_like(torch.ops.aten.convolution(x, weight, None, *form)), x, weight]
    batch = torch.export.Dim("batch", min=2)
    program = export(gradient, inputs, ({0: batch}, {0: batch}, {}) if is_open else None)
    [found] = run(program, inputs)
    torch.testing.assert_close(found, gradient(*inputs), rtol=1e-10, atol=1e-9)
    made = compiler.compile(program, target="cpu", cache="off", threads=1)
    torch.testing.assert_close(torch.as_tensor(made(*inputs)[0]), found, rtol=1e-10, atol=1e-9)
    assert 1 <= made.text("host").count("loop.kernel @") <= 4
