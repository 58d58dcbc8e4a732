"""Computed results have the strides that PyTorch gives them, at fixed and at open sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compiler.torch.backend import strata
from tests.pytorch.memory.sharing import flat

LAST = torch.channels_last
conv, deconv = nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(3, 4, 2, 2)
norm, linear = nn.BatchNorm2d(3).eval(), nn.Linear(6, 5)

IMAGES: dict[str, Callable[[int], Tensor]] = {
    "contiguous": lambda n: torch.ones(n, 3, n + 4, 8),
    "channels last": lambda n: torch.ones(n, 3, n + 4, 8).contiguous(memory_format=LAST),
    "permuted": lambda n: torch.ones(8, n + 4, n, 3).permute(2, 3, 1, 0),
}
MATRICES: dict[str, Callable[[int], Tensor]] = {
    "contiguous": lambda n: torch.ones(n, 6),
    "transposed": lambda n: torch.ones(6, n).t(),
    "with gaps": lambda n: torch.ones(2 * n, 12)[::2, ::2],
}


def cases(layouts: dict[str, Any]) -> list[Any]:
    """Every layout, at fixed and open sizes, which take seconds to trace."""
    return [pytest.param(layout, is_open, marks=[] if number % 2 == is_open else pytest.mark.slow)
            for number, layout in enumerate(layouts) for is_open in (False, True)]


def of_image(x: Tensor) -> list[Any]:
    plain = x.contiguous()
    return [
        conv(x), deconv(x), conv(x).relu(), F.max_pool2d(conv(x), 2), conv(x).flatten(2).mT,
        F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1), F.interpolate(x, scale_factor=2.0),
        F.interpolate(x, (5, 9), mode="bilinear", antialias=True),
        F.interpolate(x, (9, 5), mode="bicubic", antialias=True), F.group_norm(x, 3), x.softmax(1),
        x.sum(1, keepdim=True), x.mean((2, 3)), x + plain, plain + x, x * torch.ones(3, 1, 1),
        torch.cat([x, plain], 1), F.pad(x, (1, 1)), x.clone(), torch.zeros_like(x),
        x.permute(0, 2, 3, 1).exp(), x.permute(0, 2, 3, 1).contiguous(),
        x.contiguous(memory_format=LAST), x > 0, x.half(), x.max(1), x[:, [0, 2]], x.flip(2),
        x.to(torch.float64, memory_format=torch.contiguous_format), torch.stack([x, x], 1),
        x.kthvalue(1, 1), x.median(1, True), x.nanmedian(2), x.mode(1), x.cummax(1), x.topk(1, 1),
        x.logcumsumexp(1), x.cumsum(1), x.cumprod(2),
        x.masked_fill(x > 0, 1.0), F.unfold(x, 2), x.transpose(1, 3).reshape(len(x), -1)]


def of_matrix(x: Tensor) -> list[Any]:
    return [
        linear(x), x @ x.t(), torch.ones(4, 6) @ x.t(), (x @ x.t()).t(), x.t() * 2, x.exp(),
        x.sum(0), x[:, None] + x[None], torch.outer(x[:, 0], x[0]), torch.einsum("ij,kj->ki", x, x),
        x.softmax(0), torch.cat([x, x]), x + torch.ones(6, len(x)).t(), torch.where(x > 0, x, 0.0),
        F.embedding((x > 0).long(), torch.ones(2, 3)), x.sort(0), x.triu(), torch.cdist(x, x),
        x.kthvalue(2, 1), x.kthvalue(1, 0, True), x.median(0), x.cummin(1), x.topk(1, 1),
        x.new_full((6, len(x)), 2), torch.empty_strided((len(x), 6), (1, len(x))).fill_(1),
        x[None].expand(2, -1, -1) @ x.t(), x.bfloat16(), x.clone(),
        x[:, 1:4] * 2, x[1:].t() + 1, x.view_as(x).cumsum(0), F.layer_norm(x, (6,))]


@pytest.mark.parametrize(("layout", "is_open"), cases(IMAGES))
def test_results_of_images(layout: str, is_open: bool) -> None:
    check(of_image, IMAGES[layout], is_open)


@pytest.mark.parametrize(("layout", "is_open"), cases(MATRICES))
def test_results_of_matrices(layout: str, is_open: bool) -> None:
    check(of_matrix, MATRICES[layout], is_open)


def check(f: Callable[[Tensor], Any], make: Callable[[int], Tensor], is_open: bool) -> None:
    torch._dynamo.reset()
    options = {"target": "reference", "cache": "off"}
    fast = torch.compile(f, backend=strata, options=options, dynamic=is_open)
    with torch.no_grad():
        for n in (3, 5, 2) if is_open else (3,):
            mine, theirs = flat(fast(make(n))), flat(f(make(n)))
            assert [v.shape for v in mine] == [v.shape for v in theirs]
            assert list(map(places, mine)) == list(map(places, theirs))
            assert [v.dtype for v in mine] == [v.dtype for v in theirs]


def places(tensor: Tensor) -> list[int]:
    """The strides that say where elements lie. Those of axes of one element say nothing, and
    PyTorch's tracing gives others than its kernels do.
    """
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1] if tensor.numel() else []


def test_empty_results_are_contiguous() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [x + 1, x[:, :1] * 2, (x[None] * 2).flatten(1)]

    for shape in ((0, 3), (3, 0), (0, 0)):
        with torch.no_grad():
            torch._dynamo.reset()
            fast = torch.compile(f, backend=strata, options={"target": "cpu", "threads": 1})
            x = torch.ones(shape)
            assert [v.stride() for v in fast(x)] == [v.stride() for v in f(x)]


def test_numbers_that_follow_from_sizes() -> None:
    def f(x: Tensor) -> tuple[Any, ...]:
        n = x.shape[0]
        return x * 2, n, n // 2 + 1, n * 0.5, n / 3, n > 3, n % 2 == 1, 7, None

    torch._dynamo.reset()
    fast = torch.compile(f, backend=strata, options={"target": "reference"}, dynamic=True)
    for n in (5, 9, 7):
        assert fast(torch.ones(n, 4))[1:] == f(torch.ones(n, 4))[1:]
