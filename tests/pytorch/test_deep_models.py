"""Many layers of attention: what passes look at grows with the layers, not with the paths."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from compiler.api import model_of_argument
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text
from dialects.loop import CallOp
from dialects.strata.weights import WeightStore
from passes.loop.join_online import OnlineChain

Tensor = torch.Tensor


class Layer(nn.Module):
    """Attention of two heads, a masked one, and a feed-forward part, with sums around both."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out, self.up, self.down = (
            nn.Linear(width, width) for _ in range(6))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (f(x).view(2, 16, 2, 16).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(q, k, v, mask)
        x = self.first(x + self.out(y.transpose(1, 2).reshape(2, 16, 32)))
        return self.second(x + self.down(functional.gelu(self.up(x))))


class Encoder(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(layers)])

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        mask = (ids > 0)[:, None, None, :].expand(2, 1, 16, 16)
        for layer in self.layers:
            x = layer(x, mask)
        return x


def looks(layers: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often masks are looked for in a call while an encoder is lowered for CUDA."""
    found = 0
    find = OnlineChain._find  # pyright: ignore[reportPrivateUsage]

    def counted(self: OnlineChain, reader: CallOp, weights: WeightStore) -> None:
        nonlocal found
        found += 1
        find(self, reader, weights)

    inputs = (torch.randn(2, 16, 32).half(), torch.ones(2, 16, dtype=torch.long))
    program = torch.export.export(Encoder(layers).half().eval(), inputs, strict=False)
    options = CompileOptions(target="cuda", features="sm_90", cache="off", tuned="off")
    with monkeypatch.context() as patched:
        patched.setattr(OnlineChain, "_find", counted)
        lower_to_text(Compiler(model_of_argument(program), options), "loop", locations=False)
    return found


def test_twice_the_layers_are_twice_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = looks(3, monkeypatch), looks(6, monkeypatch)
    assert 0 < many <= 3 * few
