"""Models that are written here or made from configurations of `transformers`, with seeded random
weights, of kinds that the zoo lacks. `write` makes an ONNX file and inputs of one.

    python benchmarks/cpu/written_models.py FOLDER [NAME ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn
from torch.nn import functional as F
from written_images import (
    Detector,
    Made,
    Output,
    Residual,
    Restoration,
    Tensor,
    convnext,
    dense_net,
    mobile_segmentation,
    mobilevit,
    poolformer,
    segformer,
    segmentation,
    swin,
    vision_transformer,
    volumes,
)

Inputs = dict[str, np.ndarray[Any, np.dtype[Any]]]
SEED = 11


class Experts(nn.Module):
    """Feed-forward experts of which each token takes the best two (Shazeer et al., 2017).

    `dense`: every expert runs on all tokens and a sparse matrix of weights sums them; otherwise
    the weights of the chosen experts are gathered per token.
    """

    def __init__(self, width: int, inner: int, count: int, dense: bool):
        super().__init__()
        self.norm, self.router = nn.RMSNorm(width), nn.Linear(width, count, bias=False)
        self.gate, self.up = (nn.Parameter(torch.randn(count, width, inner) * width ** -0.5)
                              for _ in range(2))
        self.down = nn.Parameter(torch.randn(count, inner, width) * inner ** -0.5)
        self.dense = dense

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)[0]
        weights, chosen = self.router(y).softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        return x + (self._all(y, weights, chosen) if self.dense
                    else self._gathered(y, weights, chosen))

    def _all(self, y: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        sparse = torch.zeros(y.shape[0], self.gate.shape[0]).scatter(1, chosen, weights)
        inner = F.silu(y @ self.gate) * (y @ self.up)
        return ((inner @ self.down) * sparse.t()[:, :, None]).sum(0)

    def _gathered(self, y: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        inner = torch.einsum("ti,tkio->tko", y, self.gate[chosen])
        inner = F.silu(inner) * torch.einsum("ti,tkio->tko", y, self.up[chosen])
        return (torch.einsum("tko,tkoi->tki", inner, self.down[chosen]) * weights[..., None]).sum(1)


class Attention(nn.Module):
    """Causal attention with fewer heads of keys, before the norm."""

    def __init__(self, width: int, heads: int, kept: int):
        super().__init__()
        self.norm, self.heads, self.kept, self.size = nn.RMSNorm(width), heads, kept, width // heads
        self.query, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, kept * self.size, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        q, k, v = (f(y).unflatten(-1, (-1, self.size)).transpose(1, 2)
                   for f in (self.query, self.key, self.value))
        k, v = (t.repeat_interleave(self.heads // self.kept, 1) for t in (k, v))
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(found.transpose(1, 2).flatten(2))


def experts_prefill(dense: bool = True, tokens: int = 64) -> Made:
    width = 256
    blocks = [block for _ in range(4)
              for block in (Attention(width, 8, 4), Experts(width, 512, 8, dense))]
    return (nn.Sequential(nn.Embedding(2000, width), *blocks, nn.RMSNorm(width),
                          nn.Linear(width, 2000, bias=False)),
            (torch.randint(0, 2000, (1, tokens)),))


def experts_routed() -> Made:
    """Tokens are sent to their experts by index, as `transformers` does it."""
    class Routed(Experts):
        def _all(self, y: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
            total = torch.zeros_like(y)
            for e in range(self.gate.shape[0]):
                token, place = torch.where(chosen == e)
                rows = y[token]
                inner = F.silu(rows @ self.gate[e]) * (rows @ self.up[e])
                found = inner @ self.down[e] * weights[token, place, None]
                total = total.index_add(0, token, found)
            return total

    width = 256
    blocks = [block for _ in range(4)
              for block in (Attention(width, 8, 4), Routed(width, 512, 8, True))]
    return (nn.Sequential(nn.Embedding(2000, width), *blocks, nn.RMSNorm(width),
                          nn.Linear(width, 2000, bias=False)),
            (torch.randint(0, 2000, (1, 64)),))


class Snake(nn.Module):
    """Ziyin et al., 2020: x + sin(a x)^2 / a, per channel."""

    def __init__(self, channels: int):
        super().__init__()
        self.alpha = nn.Parameter(torch.rand(1, channels, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * x).pow(2)


def codec_decoder(width: int = 512, act: Callable[[int], nn.Module] = Snake) -> Made:
    """A decoder as of the Descript Audio Codec (Kumar et al., 2023), a second of 16 kHz."""
    weighted = nn.utils.parametrizations.weight_norm
    parts: list[nn.Module] = [weighted(nn.Conv1d(64, width, 7, padding=3))]
    for stride in (8, 5, 4, 2):
        parts += [act(width), weighted(nn.ConvTranspose1d(
            width, width // 2, 2 * stride, stride, (stride + 1) // 2, stride % 2))]
        width //= 2
        parts += [Residual(nn.Sequential(
            act(width), weighted(nn.Conv1d(width, width, 7, padding=3 * d, dilation=d)),
            act(width), weighted(nn.Conv1d(width, width, 1)))) for d in (1, 3, 9)]
    parts += [act(width), weighted(nn.Conv1d(width, 1, 7, padding=3)), nn.Tanh()]
    return nn.Sequential(*parts), (torch.randn(1, 64, 50),)


def vocoder() -> Made:
    """HiFi-GAN's kind (Kong et al., 2020), smaller: leaky ReLU in the place of snakes."""
    return codec_decoder(256, lambda _: nn.LeakyReLU(0.1))


def wav2vec() -> Made:
    config = transformers.Wav2Vec2Config(
        hidden_size=256, num_hidden_layers=4, intermediate_size=768, num_attention_heads=4,
        conv_dim=(128,) * 7)
    return Output(transformers.Wav2Vec2Model(config), "last_hidden_state"), (torch.randn(1, 16000),)


class Step(nn.Module):
    """A token of a decoder, with the keys and values of those before."""

    def __init__(self, width: int = 512, heads: int = 8, layers: int = 4):
        super().__init__()
        self.heads, self.table = heads, nn.Embedding(4000, width)
        self.norms = nn.ModuleList([nn.RMSNorm(width) for _ in range(2 * layers)])
        self.joint = nn.ModuleList([nn.Linear(width, 3 * width, bias=False) for _ in range(layers)])
        self.out = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in range(layers)])
        self.gate = nn.ModuleList([nn.Linear(width, 6 * width, bias=False) for _ in range(layers)])
        self.down = nn.ModuleList([nn.Linear(3 * width, width, bias=False) for _ in range(layers)])

    def forward(self, token: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        x, found = self.table(token), list[Tensor]()
        for k, joint in enumerate(self.joint):
            q, key, value = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                             for t in joint(self.norms[2 * k](x)).chunk(3, -1))
            key, value = torch.cat((keys[k], key), 2), torch.cat((values[k], value), 2)
            found += [key, value]
            x = x + self.out[k](F.scaled_dot_product_attention(q, key, value)
                                .transpose(1, 2).flatten(2))
            a, b = self.gate[k](self.norms[2 * k + 1](x)).chunk(2, -1)
            x = x + self.down[k](F.silu(a) * b)
        return (x @ self.table.weight.t(), *found)


def decoder_step() -> Made:
    kept = torch.randn(4, 1, 8, 100, 64)
    return Step(), (torch.tensor([[7]]), kept, kept.flip(3))


def recommendation() -> Made:
    """Embeddings, their products with one another, and small layers (Naumov et al., 2019)."""
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList([nn.Embedding(1000, 32) for _ in range(20)])
            self.bottom = nn.Sequential(
                nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(32 + 210, 256), nn.ReLU(), nn.Linear(256, 1))
            self.register_buffer("pairs", torch.tril_indices(21, 21, -1))

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            dense = self.bottom(x)
            rows = torch.stack([dense, *(t(ids[:, k]) for k, t in enumerate(self.tables))], 1)
            products = (rows @ rows.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
            return torch.sigmoid(self.top(torch.cat((dense, products), 1)))

    return Net(), (torch.randn(256, 13), torch.randint(0, 1000, (256, 20)))


def conformer() -> Made:
    config = transformers.Wav2Vec2ConformerConfig(
        hidden_size=192, num_hidden_layers=4, intermediate_size=768, num_attention_heads=4,
        conv_dim=(96,) * 7, position_embeddings_type="rotary")
    return (Output(transformers.Wav2Vec2ConformerModel(config), "last_hidden_state"),
            (torch.randn(1, 16000),))


def recurrent() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(80, 128, 2, batch_first=True, bidirectional=True)
            self.gru, self.last = nn.GRU(256, 128, batch_first=True), nn.Linear(128, 50)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.gru(self.lstm(x)[0])[0])

    return Net(), (torch.randn(1, 100, 80),)


def _half(made: Made) -> Made:
    return made[0].half(), tuple(x.half() if x.is_floating_point() else x for x in made[1])


MODELS: dict[str, Callable[[], Made]] = {
    "experts_dense": experts_prefill,
    "experts_gathered": lambda: experts_prefill(dense=False, tokens=16),
    "experts_routed": experts_routed,
    "codec_decoder": codec_decoder,
    "vocoder": vocoder,
    "convnext_tiny": convnext,
    "convnext_v2_atto": lambda: convnext((40, 80, 160, 320), (2, 2, 6, 2), grn=True),
    "segmentation_f16": lambda: _half(segmentation()),
    "segmentation": segmentation,
    "mobile_segmentation_f16": lambda: _half(mobile_segmentation()),
    "mobile_segmentation": mobile_segmentation,
    "segformer_b0": segformer,
    "swin_small": swin,
    "poolformer": poolformer,
    "mobilevit": mobilevit,
    "wav2vec": wav2vec,
    "restoration": lambda: (Restoration(), (torch.randn(1, 3, 128, 128),)),
    "detector": lambda: (Detector(), (torch.randn(1, 3, 320, 320),)),
    "dense_net": dense_net,
    "volumes": volumes,
    "decoder_step": decoder_step,
    "decoder_step_f16": lambda: _half(decoder_step()),
    "vision_transformer": vision_transformer,
    "vision_transformer_f16": lambda: _half(vision_transformer()),
    "recommendation": recommendation,
    "conformer": conformer,
    "recurrent": recurrent,
}


def write(name: str, folder: Path) -> tuple[Path, Inputs]:
    """The model as a file, and inputs for it."""
    torch.manual_seed(SEED)
    module, inputs = MODELS[name]()
    path = folder / f"{name}.onnx"
    names = [f"in{k}" for k in range(len(inputs))]
    if not path.is_file():
        with torch.no_grad():
            torch.onnx.export(module.eval(), inputs, str(path), input_names=names, dynamo=True,
                              external_data=False, verbose=False)
    return path, {name: x.numpy() for name, x in zip(names, inputs, strict=True)}


if __name__ == "__main__":
    for each in sys.argv[2:] or MODELS:
        print(write(each, Path(sys.argv[1]))[0])
