"""Two hundred steps: losses stay as near to eager mode's as its own with sums in another order."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

STEPS, BATCH, ORDERS = 200, 16, 4


class Pictures(nn.Module):
    """Convolutions with batch norm, a residual and a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.norm, self.out = nn.BatchNorm2d(16), nn.Linear(16, 5)

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return F.cross_entropy(self.out((x + F.silu(self.second(x))).mean((2, 3))), wanted)

    @staticmethod
    def batch() -> list[Tensor]:
        return [torch.randn(BATCH, 3, 8, 8), torch.randint(5, (BATCH,))]


class Words(nn.Module):
    """Causal attention over embeddings, with layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(40, 32), nn.LayerNorm(32)
        self.joint, self.out = nn.Linear(32, 96), nn.Linear(32, 40)

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        rows = self.words(x)
        heads = [v.unflatten(-1, (2, 16)).transpose(1, 2)
                 for v in self.joint(self.norm(rows)).chunk(3, -1)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        return F.cross_entropy(self.out(rows + mixed).flatten(0, 1), wanted.flatten())

    @staticmethod
    def batch() -> list[Tensor]:
        return [torch.randint(40, (BATCH, 12)), torch.randint(40, (BATCH, 12))]


def losses(
    model: nn.Module, call: Callable[..., Tensor], batches: list[list[Tensor]], orders: list[Tensor]
) -> Tensor:
    """The loss of each step; `orders`: the order of a batch's samples, over which sums run."""
    optimizer, found = torch.optim.AdamW(model.parameters(), lr=1e-2), list[Tensor]()
    for number in range(STEPS):
        order = orders[number % len(orders)]
        optimizer.zero_grad(set_to_none=True)
        loss = call(*(v[order] for v in batches[number % len(batches)]))
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found).double()


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("kind", [Pictures, Words])
def test_losses_stay_within_the_spread_of_eager_orders(kind: Any) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, batches = kind().train(), [kind.batch() for _ in range(10)]
    plain = [torch.arange(BATCH)]
    runs = [copy.deepcopy(model) for _ in range(2 + ORDERS)]
    eager = losses(runs[0], runs[0], batches, plain)
    ours = losses(runs[1], torch.compile(runs[1], backend="strata"), batches, plain)
    others = [losses(run, run, batches, [torch.randperm(BATCH)]) for run in runs[2:]]
    spread = torch.stack([(run - eager).abs() for run in others]).cummax(1).values.amax(0)
    far = (ours - eager).abs().cummax(0).values
    assert eager[-10:].mean() < 0.8 * eager[:10].mean()  # it learns
    assert spread[-1] > 0
    assert (far <= 2 * spread + 1e-6).all(), (far / (spread + 1e-6)).max()
