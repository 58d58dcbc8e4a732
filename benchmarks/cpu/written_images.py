"""Models of images and volumes among those of `written_models.py`."""

from __future__ import annotations

from itertools import pairwise

import torch
import transformers
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor
Made = tuple[nn.Module, tuple[Tensor, ...]]


class Output(nn.Module):
    """A model of `transformers` by the name of one of its results."""

    def __init__(self, module: nn.Module, name: str):
        super().__init__()
        self.module, self.name = module, name

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self.module(x), self.name)


class Residual(nn.Module):
    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


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


def vision_transformer() -> Made:
    config = transformers.ViTConfig(hidden_size=256, num_hidden_layers=6, num_attention_heads=4,
                                    intermediate_size=1024, num_labels=100)
    return (Output(transformers.ViTForImageClassification(config), "logits"),
            (torch.randn(1, 3, 224, 224),))
