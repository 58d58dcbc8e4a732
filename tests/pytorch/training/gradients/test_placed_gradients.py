"""Gradients of pools, samplers, distances and checked inverses, as PyTorch's are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from compiler.frontend.torch.core.gradients import gradient_decompositions
from compiler.frontend.torch.core.sampling import sampling_decompositions

ATEN = torch.ops.aten
MADE = {**gradient_decompositions(), **sampling_decompositions()}


def numbers(*shape: int, equal: bool = False) -> Tensor:
    draw = torch.Generator().manual_seed(sum(shape))
    made = torch.randn(shape, generator=draw, dtype=torch.float64)
    return made.round(decimals=1) if equal else made


def compare(operator: Any, *given: Any) -> None:
    theirs, ours = operator(*given), MADE[operator](*given)
    for a, b in zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else ((ours, theirs),):
        torch.testing.assert_close(a, b, equal_nan=True)


# ---------------------------------------------------------------------- each operator
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("interpolation", [0, 1, 2])
@pytest.mark.parametrize("rank", [2, 3])
def test_samplers(rank: int, interpolation: int, padding: int, align: bool) -> None:
    if rank == 3 and interpolation == 2:
        pytest.skip("PyTorch has no cubic sampler of volumes")
    x, grid = numbers(2, 3, *(5, 4, 3)[:rank]), numbers(2, *(3, 4, 2)[:rank], rank) * 1.3
    given = numbers(2, 3, *grid.shape[1:-1])
    operator = getattr(ATEN, f"grid_sampler_{rank}d_backward").default
    compare(operator, given, x, grid, interpolation, padding, align, [True, True])


def test_samplers_of_one_element() -> None:
    x, grid = numbers(1, 2, 1, 3), numbers(1, 2, 2, 2)
    for padding, align in product((0, 1, 2), (False, True)):
        compare(ATEN.grid_sampler_2d_backward.default, numbers(1, 2, 2, 2), x, grid, 0, padding,
                align, [True, True])


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances(p: float) -> None:
    for lead in ((), (2,), (2, 3)):
        a, b = numbers(*lead, 4, 5), numbers(*lead, 3, 5)
        a[..., 0, :], a[..., 1, 1] = b[..., 0, :], b[..., 2, 1]  # distances of 0, and differences
        far = ATEN._cdist_forward.default(a, b, p, None)
        compare(ATEN._cdist_backward.default, numbers(*far.shape), a, b, p, far)


def _broken(x: Tensor) -> Tensor:
    """x with some windows of NaN, and of the lowest number."""
    x.flatten(-2)[..., ::4] = torch.nan
    x.flatten(-2)[..., 1::3] = -torch.inf
    return x


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_fractional_pools(batch: tuple[int, ...], rank: int) -> None:
    x, kernel, sizes = numbers(*batch, 3, *(9, 8, 7)[:rank], equal=True), (2, 3, 2), (4, 3, 5)
    draws = torch.rand(batch[0] if batch else 1, 3, rank, dtype=torch.float64)
    for image in (x, _broken(x.clone())):
        form = (list(kernel[:rank]), list(sizes[:rank]))
        operator = getattr(ATEN, f"fractional_max_pool{rank}d").default
        compare(operator, image, *form, draws)
        made, places = operator(image, *form, draws)
        backward = getattr(ATEN, f"fractional_max_pool{rank}d_backward").default
        compare(backward, numbers(*made.shape), image, *form, places)


# ---------------------------------------------------------------------- compiled
def _cases() -> Iterator[tuple[str, Callable[..., Tensor], list[Tensor]]]:
    image, volume = _broken(numbers(2, 3, 7, 6).float()), numbers(1, 2, 5, 6, 7).float()
    yield "adaptive image", lambda x: F.adaptive_max_pool2d(x, (3, 4)), [image]
    yield "adaptive volume", lambda x: F.adaptive_max_pool3d(x, (2, 3, 3)), [volume]
    yield "fractional", lambda x: F.fractional_max_pool2d(x, 2, (3, 4)), [image]
    yield "grid", partial(F.grid_sample, align_corners=False), [
        numbers(2, 3, 7, 6).float(), numbers(2, 4, 5, 2).float()]
    yield "inverse", lambda x: torch.linalg.inv(x + torch.eye(3)).sin(), [numbers(3, 3).float() / 9]
    yield "distances", torch.cdist, [numbers(4, 5).float(), numbers(3, 5).float()]


@pytest.mark.parametrize(("name", "function", "inputs"), [*_cases()], ids=lambda v: str(v)[:16])
def test_steps_are_whole(
    name: str, function: Callable[..., Tensor], inputs: list[Tensor],
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch._dynamo.reset()
    found: list[list[Tensor]] = []
    with caplog.at_level(logging.WARNING, "strata"):
        for run in (torch.compile(function, backend="strata", fullgraph=True), function):
            given = [v.clone().requires_grad_() for v in inputs]
            torch.manual_seed(1)
            made = run(*given)
            found.append([made.detach(), *torch.autograd.grad(
                made, given, numbers(*made.shape).float())])
    assert not caplog.records, name
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-4, atol=1e-5)
