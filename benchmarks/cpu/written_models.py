"""Models that are written here or made from configurations of `transformers`, with seeded random
weights, of kinds that the zoo lacks. `write` makes an ONNX file and inputs of one.

    python benchmarks/cpu/written_models.py FOLDER [NAME ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor
Made = tuple[nn.Module, tuple[Tensor, ...]]
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


class Residual(nn.Module):
    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


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


class ChannelNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """Liu et al., 2022: depthwise 7x7, layer norm and two products, channels last."""

    def __init__(self, width: int, grn: bool = False):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.up, self.down = (
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.rand(width))
        self.grn = grn

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.up(self.norm(self.depthwise(x).permute(0, 2, 3, 1))))
        if self.grn:
            size = torch.linalg.vector_norm(y, dim=(1, 2), keepdim=True)
            y = y + y * size / (size.mean(-1, keepdim=True) + 1e-6)
        return x + (self.scale * self.down(y)).permute(0, 3, 1, 2)


def convnext(widths: tuple[int, ...] = (96, 192, 384, 768), depths: tuple[int, ...] = (3, 3, 9, 3),
             grn: bool = False) -> Made:
    parts: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), ChannelNorm(widths[0])]
    for k, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if k:
            parts += [ChannelNorm(widths[k - 1]), nn.Conv2d(widths[k - 1], width, 2, 2)]
        parts += [ConvNextBlock(width, grn) for _ in range(depth)]
    return (nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(widths[-1], 1000)), (torch.randn(1, 3, 224, 224),))


class SegmentationNet(nn.Module):
    """An encoder and decoder of convolutions with skips (Ronneberger et al., 2015), with pools of
    several sizes in the middle (Zhao et al., 2017)."""

    def __init__(self, widths: tuple[int, ...]):
        super().__init__()
        def pair(i: int, o: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(),
                                 nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
        self.down = nn.ModuleList([pair(i, o) for i, o in
                                   zip((3, *widths[:-1]), widths, strict=True)])
        self.pools = nn.ModuleList([nn.Conv2d(widths[-1], widths[-1] // 4, 1) for _ in range(3)])
        last = widths[-1] + 3 * (widths[-1] // 4)
        self.up = nn.ModuleList([pair(i + o, o) for i, o in zip(
            (last, *widths[-2:0:-1]), widths[-2::-1], strict=True)])
        self.classes = nn.Conv2d(widths[0], 19, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = list[Tensor]()
        for block in self.down:
            x = block(F.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        pooled = [F.interpolate(conv(F.adaptive_avg_pool2d(x, n)), x.shape[-2:], mode="bilinear")
                  for n, conv in zip((1, 2, 4), self.pools, strict=True)]
        x = torch.cat((x, *pooled), 1)
        for block, skip in zip(self.up, kept[-2::-1], strict=True):
            x = block(torch.cat((F.interpolate(x, scale_factor=2.0, mode="bilinear"), skip), 1))
        return self.classes(x)


def segmentation() -> Made:
    return SegmentationNet((16, 32, 64, 128)), (torch.randn(1, 3, 256, 256),)


class MobileSegmentation(nn.Module):
    """Inverted bottlenecks with squeeze and excitation, and the head of LR-ASPP (Howard et al.,
    2019)."""

    def __init__(self) -> None:
        super().__init__()
        widths = (16, 24, 40, 80, 112)
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.Hardswish())
        self.stages = nn.ModuleList()
        for i, o in pairwise(widths):
            self.stages.append(nn.Sequential(self._block(i, o, 2), Residual(self._block(o, o, 1))))
        self.high, self.gate = nn.Conv2d(112, 128, 1), nn.Conv2d(112, 128, 1)
        self.low, self.classes = nn.Conv2d(24, 19, 1), nn.Conv2d(128, 19, 1)

    @staticmethod
    def _block(i: int, o: int, stride: int) -> nn.Module:
        class Squeeze(nn.Module):
            def __init__(self, n: int):
                super().__init__()
                self.a, self.b = nn.Conv2d(n, n // 4, 1), nn.Conv2d(n // 4, n, 1)

            def forward(self, x: Tensor) -> Tensor:
                return x * F.hardsigmoid(self.b(F.relu(self.a(F.adaptive_avg_pool2d(x, 1)))))

        return nn.Sequential(
            nn.Conv2d(i, 4 * i, 1, bias=False), nn.BatchNorm2d(4 * i), nn.Hardswish(),
            nn.Conv2d(4 * i, 4 * i, 5, stride, 2, groups=4 * i, bias=False),
            nn.BatchNorm2d(4 * i), nn.Hardswish(), Squeeze(4 * i),
            nn.Conv2d(4 * i, o, 1, bias=False), nn.BatchNorm2d(o))

    def forward(self, x: Tensor) -> Tensor:
        size, x = x.shape[-2:], self.stem(x)
        low = x
        for k, stage in enumerate(self.stages):
            x = stage(x)
            low = x if k == 0 else low
        x = F.relu(self.high(x)) * torch.sigmoid(F.adaptive_avg_pool2d(self.gate(x), 1))
        x = F.interpolate(self.classes(x), low.shape[-2:], mode="bilinear") + self.low(low)
        return F.interpolate(x, size, mode="bilinear")


def mobile_segmentation() -> Made:
    return MobileSegmentation(), (torch.randn(1, 3, 256, 256),)


class Output(nn.Module):
    """A model of `transformers` by the name of one of its results."""

    def __init__(self, module: nn.Module, name: str):
        super().__init__()
        self.module, self.name = module, name

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self.module(x), self.name)


def segformer() -> Made:
    config = transformers.SegformerConfig(num_labels=19)
    return (Output(transformers.SegformerForSemanticSegmentation(config), "logits"),
            (torch.randn(1, 3, 256, 256),))


def swin() -> Made:
    config = transformers.SwinConfig(embed_dim=48, depths=[2, 2, 4, 2], num_heads=[3, 6, 12, 24],
                                     num_labels=100)
    return (Output(transformers.SwinForImageClassification(config), "logits"),
            (torch.randn(1, 3, 224, 224),))


def poolformer() -> Made:
    config = transformers.PoolFormerConfig(hidden_sizes=[32, 64, 160, 256], depths=[2, 2, 6, 2])
    return (Output(transformers.PoolFormerForImageClassification(config), "logits"),
            (torch.randn(1, 3, 224, 224),))


def mobilevit() -> Made:
    return (Output(transformers.MobileViTForImageClassification(transformers.MobileViTConfig(
        image_size=256, num_labels=100)), "logits"), (torch.randn(1, 3, 256, 256),))


def wav2vec() -> Made:
    config = transformers.Wav2Vec2Config(
        hidden_size=256, num_hidden_layers=4, intermediate_size=768, num_attention_heads=4,
        conv_dim=(128,) * 7)
    return Output(transformers.Wav2Vec2Model(config), "last_hidden_state"), (torch.randn(1, 16000),)


class Restoration(nn.Module):
    """Gates in the place of activations, channel norms, pixel shuffles (NAFNet, Chen et al., 2022).
    """

    class Block(nn.Module):
        def __init__(self, width: int):
            super().__init__()
            self.norms = nn.ModuleList([ChannelNorm(width) for _ in range(2)])
            self.up, self.deep = nn.Conv2d(width, 2 * width, 1), nn.Conv2d(
                2 * width, 2 * width, 3, padding=1, groups=2 * width)
            self.attend, self.down = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
            self.wide, self.narrow = nn.Conv2d(width, 2 * width, 1), nn.Conv2d(width, width, 1)

        def forward(self, x: Tensor) -> Tensor:
            a, b = self.deep(self.up(self.norms[0](x))).chunk(2, 1)
            y = a * b
            x = x + self.down(y * self.attend(F.adaptive_avg_pool2d(y, 1)))
            a, b = self.wide(self.norms[1](x)).chunk(2, 1)
            return x + self.narrow(a * b)

    def __init__(self, width: int = 24):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.encode = nn.ModuleList([self.Block(width << k) for k in range(3)])
        self.shrink = nn.ModuleList([nn.Conv2d(width << k, width << k + 1, 2, 2) for k in range(2)])
        self.grow = nn.ModuleList([nn.Conv2d(width << k + 1, width << k + 2, 1) for k in (1, 0)])
        self.decode = nn.ModuleList([self.Block(width << k) for k in (1, 0)])

    def forward(self, image: Tensor) -> Tensor:
        x, kept = self.first(image), list[Tensor]()
        for block, shrink in zip(self.encode, self.shrink, strict=False):
            kept.append(block(x))
            x = shrink(kept[-1])
        x = self.encode[2](x)
        for grow, block, skip in zip(self.grow, self.decode, kept[::-1], strict=True):
            x = block(F.pixel_shuffle(grow(x), 2) + skip)
        return self.last(x) + image


class Detector(nn.Module):
    """Cross-stage parts, a pyramid of pools and nearest neighbours on the way up, as of YOLO."""

    class Part(nn.Module):
        def __init__(self, i: int, o: int):
            super().__init__()
            def conv(i: int, o: int, k: int) -> nn.Module:
                return nn.Sequential(nn.Conv2d(i, o, k, padding=k // 2, bias=False),
                                     nn.BatchNorm2d(o), nn.SiLU())
            self.first, self.second = conv(i, o // 2, 1), conv(i, o // 2, 1)
            self.last = conv(o, o, 1)
            self.body = nn.Sequential(*(Residual(nn.Sequential(conv(o // 2, o // 2, 1),
                                        conv(o // 2, o // 2, 3))) for _ in range(2)))

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.cat((self.body(self.first(x)), self.second(x)), 1))

    def __init__(self) -> None:
        super().__init__()
        widths = (16, 32, 64, 128)
        self.stem = nn.Conv2d(3, 16, 6, 2, 2)
        self.down = nn.ModuleList([nn.Conv2d(i, o, 3, 2, 1) for i, o in pairwise(widths)])
        self.parts = nn.ModuleList([self.Part(w, w) for w in widths[1:]])
        self.pool = nn.Conv2d(512, 128, 1)
        self.up, self.head = self.Part(128 + 64, 64), nn.ModuleList(
            [nn.Conv2d(w, 3 * 85, 1) for w in (64, 128)])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x, kept = F.silu(self.stem(x)), list[Tensor]()
        for down, part in zip(self.down, self.parts, strict=True):
            x = part(F.silu(down(x)))
            kept.append(x)
        pools = [x]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        x = F.silu(self.pool(torch.cat(pools, 1)))
        y = self.up(torch.cat((F.interpolate(x, scale_factor=2.0), kept[-2]), 1))
        return tuple(torch.sigmoid(head(z)) for head, z in zip(self.head, (y, x), strict=True))


def dense_net() -> Made:
    """Every layer reads all before it (Huang et al., 2017)."""
    class Layer(nn.Module):
        def __init__(self, i: int):
            super().__init__()
            self.body = nn.Sequential(nn.BatchNorm2d(i), nn.ReLU(), nn.Conv2d(i, 64, 1, bias=False),
                                      nn.BatchNorm2d(64), nn.ReLU(),
                                      nn.Conv2d(64, 16, 3, padding=1, bias=False))

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat((x, self.body(x)), 1)

    width, parts = 32, list[nn.Module]()
    parts += [nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
              nn.MaxPool2d(3, 2, 1)]
    for k, depth in enumerate((4, 8, 12, 8)):
        if k:
            parts += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1),
                      nn.AvgPool2d(2)]
            width //= 2
        for _ in range(depth):
            parts.append(Layer(width))
            width += 16
    return (nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100)),
            (torch.randn(1, 3, 224, 224),))


def volumes() -> Made:
    """Convolutions of volumes, up and down (Cicek et al., 2016)."""
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            def pair(i: int, o: int) -> nn.Module:
                return nn.Sequential(nn.Conv3d(i, o, 3, padding=1), nn.InstanceNorm3d(o),
                                     nn.LeakyReLU(0.01), nn.Conv3d(o, o, 3, padding=1), nn.ReLU())
            self.a, self.b, self.c = pair(1, 16), pair(16, 32), pair(32, 16)
            self.up, self.last = nn.ConvTranspose3d(32, 16, 2, 2), nn.Conv3d(16, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            y = self.up(self.b(F.max_pool3d(x, 2)))
            return self.last(self.c(torch.cat((x, y), 1)))

    return Net(), (torch.randn(1, 1, 32, 48, 48),)


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


def vision_transformer() -> Made:
    config = transformers.ViTConfig(hidden_size=256, num_hidden_layers=6, num_attention_heads=4,
                                    intermediate_size=1024, num_labels=100)
    return (Output(transformers.ViTForImageClassification(config), "logits"),
            (torch.randn(1, 3, 224, 224),))


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
