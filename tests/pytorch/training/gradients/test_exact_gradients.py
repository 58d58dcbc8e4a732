"""Gradients of single layers are as near to those of f64 as eager mode's, where sums are long."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

SEEDS = range(3)
FLOOR = 4e-8
"""A distance from f64 that rounding of the results alone explains: of half a unit at most."""


class Function(nn.Module):
    """A function of tensors."""

    def __init__(self, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *given: Tensor) -> Tensor:
        return self.call(*given)


class Experts(nn.Module):
    """Each row is a sum of what two of eight experts make of it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(64, 8)
        self.up = nn.Parameter(torch.randn(8, 64, 128) / 8)
        self.down = nn.Parameter(torch.randn(8, 128, 64) / 11)

    def forward(self, x: Tensor) -> Tensor:
        found, chosen = self.gate(x).softmax(-1).topk(2, -1)
        weights = found / found.sum(-1, keepdim=True)
        made = torch.zeros_like(x)
        for number, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            share = (weights * (chosen == number)).sum(-1, keepdim=True)
            made = made + share * (F.silu(x @ up) @ down)
        return made


def function(call: Callable[..., Tensor]) -> Callable[[], nn.Module]:
    return lambda: Function(call)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


LAYERS: dict[str, tuple[Callable[[], Any], Sequence[tuple[int, ...]]]] = {
    "depthwise": (lambda: nn.Conv2d(32, 32, 3, padding=1, groups=32), [(8, 32, 28, 28)]),
    "wide depthwise": (lambda: nn.Conv2d(32, 32, 7, padding=3, groups=32), [(4, 32, 28, 28)]),
    "convolution": (lambda: nn.Conv2d(16, 24, 3, padding=1), [(8, 16, 28, 28)]),
    "strided": (lambda: nn.Conv2d(16, 24, 3, 2, padding=1), [(8, 16, 28, 28)]),
    "pointwise": (lambda: nn.Conv2d(32, 48, 1), [(8, 32, 28, 28)]),
    "transposed": (lambda: nn.ConvTranspose2d(16, 8, 2, 2), [(8, 16, 28, 28)]),
    "of signals": (lambda: nn.Conv1d(16, 24, 5, padding=2), [(8, 16, 600)]),
    "of signals, many channels": (lambda: nn.Conv1d(64, 128, 3, padding=1), [(4, 64, 256)]),
    "of signals, grouped": (lambda: nn.Conv1d(32, 64, 7, padding=3, groups=8), [(4, 32, 400)]),
    "grouped": (lambda: nn.Conv2d(32, 64, 3, padding=1, groups=4), [(8, 32, 28, 28)]),
    "of volumes": (lambda: nn.Conv3d(8, 16, 3, padding=1), [(2, 8, 12, 16, 16)]),
    "bilinear": (lambda: nn.Bilinear(32, 24, 16), [(256, 32), (256, 24)]),
    "linear": (lambda: nn.Linear(256, 128), [(4096, 256)]),
    "layer norm": (lambda: nn.LayerNorm(512), [(2048, 512)]),
    "group norm": (lambda: nn.GroupNorm(4, 32), [(8, 32, 28, 28)]),
    "batch norm": (lambda: nn.BatchNorm2d(32), [(8, 32, 28, 28)]),
    "rms norm": (lambda: nn.RMSNorm(512), [(2048, 512)]),
    "prelu": (lambda: nn.PReLU(32), [(8, 32, 28, 28)]),
    "experts": (Experts, [(512, 64)]),
    "bias": (function(lambda x, b: x * b.exp()), [(20_000, 16), (16,)]),
    "rows": (function(lambda x, b: x * b.exp()), [(16, 20_000), (16, 1)]),
    "columns": (function(lambda x: (x * x).sum(0)), [(20_000, 16)]),
    "products": (function(torch.matmul), [(4, 256, 512), (4, 512, 256)]),
    "attention": (function(attention), [(2, 4, 512, 64)] * 3),
    "softmax of columns": (function(lambda x: x.softmax(0)), [(2000, 64)]),
    "tanh": (function(torch.tanh), [(64, 5000)]),
    "erf": (function(torch.erf), [(64, 5000)]),
    "gelu": (function(F.gelu), [(64, 5000)]),
    "gelu by tanh": (function(lambda x: F.gelu(x, approximate="tanh")), [(64, 5000)]),
    "mish": (function(F.mish), [(64, 5000)]),
}


def gradients(model: nn.Module, call: Callable[..., Tensor], given: Sequence[Tensor]
              ) -> list[Tensor]:
    """The result, and the gradients of inputs and parameters for random cotangents."""
    leaves = [v.clone().requires_grad_() for v in given]
    model.zero_grad()
    result = call(*leaves)
    draws = torch.Generator().manual_seed(5)
    (result * torch.randn(result.shape, generator=draws).to(result)).sum().backward()
    found = [v.grad for v in (*leaves, *model.parameters())]
    return [result.detach(), *(g for g in found if g is not None)]


def distances(found: Sequence[Tensor], true: Sequence[Tensor]) -> Tensor:
    return torch.stack([(a.double() - b).square().sum() / b.square().sum()
                        for a, b in zip(found, true, strict=True)])


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_layers_are_as_exact_as_eagers(name: str) -> None:
    """Each value on its own: in the gradients of a model, that of a bias would not be noticed."""
    torch._dynamo.reset()
    build, shapes = LAYERS[name]
    model = build()
    run, ours, eager = torch.compile(model, backend="strata", fullgraph=True), 0.0, 0.0
    for seed in SEEDS:
        torch.manual_seed(seed)
        model.load_state_dict(build().state_dict())
        given = [torch.randn(shape) for shape in shapes]
        twin, exact = copy.deepcopy(model), copy.deepcopy(model).double()
        true = gradients(exact, exact, [v.double() for v in given])
        ours = ours + distances(gradients(model, run, given), true)
        eager = eager + distances(gradients(twin, twin, given), true)
    mine, other = ((total / len(SEEDS)).sqrt() for total in (ours, eager))
    assert (mine <= 1.2 * other + FLOOR).all(), f"{mine.tolist()} instead of {other.tolist()}"
