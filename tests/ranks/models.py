"""Models that several processes train or run, and the same in one process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

WIDTH, HEADS, ROWS = 24, 4, 8


class Block(nn.Module):
    """Attention and an MLP, each with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        h = self.before(x)
        q, k, v = (p(h).view(b, n, -1, WIDTH // HEADS).transpose(1, 2)
                   for p in (self.q, self.k, self.v))
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, n, -1))
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))


def divided_block() -> tuple[Block, Block]:
    """A block, and the same divided among all ranks."""
    torch.manual_seed(0)
    device = os.environ["DEVICE"]
    one, divided = Block().to(device), Block().to(device)
    divided.load_state_dict(one.state_dict())
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    plan = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    parallelize_module(divided, mesh, {**plan, "o": RowwiseParallel(), "down": RowwiseParallel()})
    return one, divided


class Layer(nn.Module):
    """A linear layer and a tanh."""

    def __init__(self, given: int, got: int) -> None:
        super().__init__()
        self.linear = nn.Linear(given, got)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


class Network(nn.Module):
    """Three layers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = Layer(6, 16), Layer(16, 16), Layer(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.b(self.a(x)))


def network() -> Network:
    torch.manual_seed(3)
    return Network()


def _data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(ROWS, 6, generator=generator), torch.randn(ROWS, 3, generator=generator)


def train(model: Any, parameters: Sequence[Any], alone: bool = False) -> None:
    """Three steps on the rows of this rank, or on all rows."""
    x, y = _data()
    if not alone:
        count, rank = dist.get_world_size(), dist.get_rank()
        x, y = x.chunk(count)[rank], y.chunk(count)[rank]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def trained() -> list[torch.Tensor]:
    """The parameters after training in one process, eagerly."""
    model = network()
    train(model, list(model.parameters()), alone=True)
    return [p.detach() for p in model.parameters()]


def whole(value: Any) -> torch.Tensor:
    """All of a tensor that may be divided among ranks."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((got - wanted).abs().max() / wanted.abs().max().clamp(min=1e-3))
