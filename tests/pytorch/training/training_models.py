"""Small models with their inputs, and what a step of training computes for them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.pytorch.training.image_models import ConvNext, Convolutional, Unet


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(13, 32), nn.Linear(32, 32), nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.gelu(self.second(F.relu(self.first(x)))))

    @staticmethod
    def inputs(count: int = 7) -> list[Tensor]:
        return [torch.randn(count, 13)]


class Encoder(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout, F.gelu, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    @staticmethod
    def inputs(count: int = 3) -> list[Tensor]:
        return [torch.randn(count, 7, 16)]


class Checkpointed(nn.Module):
    """Dropout inside a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.first = Encoder(0.2), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        result = checkpoint(self.inner, self.first(x), use_reentrant=False)
        assert isinstance(result, Tensor)
        return result

    @staticmethod
    def inputs() -> list[Tensor]:
        return Encoder.inputs()


class Gpt(nn.Module):
    """A causal layer between tied embeddings, with the loss of the next token."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(23, 16), nn.Embedding(9, 16)
        self.joint, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))
        self.up, self.down, self.dropout = nn.Linear(16, 64), nn.Linear(64, 16), dropout

    def forward(self, ids: Tensor, wanted: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        x = F.dropout(x, self.dropout, self.training)
        x = x + self.out(self._attention(self.norms[0](x)))
        x = x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))
        return F.cross_entropy((self.norms[2](x) @ self.tokens.weight.T).flatten(0, 1),
                               wanted.flatten())

    def _attention(self, x: Tensor) -> Tensor:
        heads = [v.unflatten(-1, (2, 8)).transpose(1, 2) for v in self.joint(x).split(16, -1)]
        dropped = self.dropout if self.training else 0.0
        made = F.scaled_dot_product_attention(*heads, is_causal=True, dropout_p=dropped)
        return made.transpose(1, 2).flatten(2)

    @staticmethod
    def inputs(count: int = 2) -> list[Tensor]:
        return [torch.randint(23, (count, 9)), torch.randint(23, (count, 9))]


class Bert(nn.Module):
    """An encoder of words, some of which are padding."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens, self.norm = nn.Embedding(23, 16, padding_idx=0), nn.LayerNorm(16)
        self.inner, self.out = Encoder(dropout), nn.Linear(16, 23)

    def forward(self, ids: Tensor, wanted: Tensor) -> Tensor:
        x = self.inner.layers(self.norm(self.tokens(ids)), src_key_padding_mask=ids == 0)
        return F.cross_entropy(self.out(x).flatten(0, 1), wanted.flatten(), ignore_index=0)

    @staticmethod
    def inputs(count: int = 3) -> list[Tensor]:
        ids = torch.randint(1, 23, (count, 10))
        ids[0, 6:] = 0
        return [ids, ids.roll(1, 1)]


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTMCell(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[1], 8)
        memory = state
        for row in x:
            state, memory = self.cell(row, (state, memory))
        return self.out(state)

    @staticmethod
    def inputs(count: int = 4) -> list[Tensor]:
        return [torch.randn(5, count, 6)]


class Recommender(nn.Module):
    """Dot products of embedded categories, as in DLRM."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(11, 8) for _ in range(3))
        self.bottom, self.top = nn.Linear(5, 8), nn.Sequential(
            nn.Linear(14, 8), nn.ReLU(), nn.Linear(8, 1))
        self.register_buffer("pairs", torch.triu_indices(4, 4, 1))

    def forward(self, x: Tensor, ids: Tensor, wanted: Tensor) -> Tensor:
        dense = F.relu(self.bottom(x))
        rows = torch.stack([dense, *(t(ids[:, k]) for k, t in enumerate(self.tables))], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        made = self.top(torch.cat([dense, products], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(made, wanted)

    @staticmethod
    def inputs(count: int = 6) -> list[Tensor]:
        return [torch.randn(count, 5), torch.randint(11, (count, 3)), torch.rand(count)]


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.mean, self.spread = nn.Linear(10, 8), nn.Linear(8, 4), nn.Linear(8, 4)
        self.down = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.up(x))
        mean, spread = self.mean(hidden), self.spread(hidden)
        made = torch.sigmoid(self.down(mean + torch.randn_like(spread) * (spread / 2).exp()))
        distance = (mean * mean + spread.exp() - 1 - spread).sum() / 2
        return F.binary_cross_entropy(made, x, reduction="sum") + distance

    @staticmethod
    def inputs(count: int = 6) -> list[Tensor]:
        return [torch.rand(count, 10)]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": Mlp, "encoder": Encoder, "bert": Bert, "gpt": Gpt, "lstm": Lstm,
    "recommender": Recommender, "convolutional": Convolutional, "unet": Unet,
    "convnext": ConvNext}
RANDOM: dict[str, Callable[[], nn.Module]] = {
    "encoder": lambda: Encoder(0.1), "gpt": lambda: Gpt(0.1), "vae": Vae}


def made(build: Callable[[], nn.Module], seed: int = 0) -> tuple[Any, list[Tensor]]:
    """A model in training mode and its inputs."""
    torch.manual_seed(seed)
    model: Any = build().train()
    return model, model.inputs()


def gradients(run: Callable[..., Tensor], model: nn.Module, inputs: Sequence[Tensor]
              ) -> list[Tensor]:
    """The result, the gradients of all parameters, and the buffers after the step."""
    model.zero_grad()
    torch.manual_seed(3)
    result = run(*inputs)
    weights = torch.linspace(0.5, 1.5, result.numel()).to(result)
    (result * weights.view(result.shape)).sum().backward()
    found = [p.grad for p in model.parameters() if p.grad is not None]
    return [result.detach(), *found, *(b.clone() for b in model.buffers())]


def of_twin(
    model: nn.Module, inputs: Sequence[Tensor], dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """What eager mode computes for a copy of the model."""
    twin = copy.deepcopy(model).to(dtype)
    given = [v.to(dtype) if v.is_floating_point() else v for v in inputs]
    return gradients(twin, twin, given)


def distance(found: Sequence[Tensor], true: Sequence[Tensor]) -> float:
    """The 2-norm of all differences, by that of the true values."""
    assert [v.shape for v in found] == [v.shape for v in true]
    far = sum(float((a.double() - b).square().sum()) for a, b in zip(found, true, strict=True))
    return (far / sum(float(b.double().square().sum()) for b in true)) ** 0.5
