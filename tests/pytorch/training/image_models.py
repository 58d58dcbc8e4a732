"""Small models of images with their inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Convolutional(nn.Module):
    """Batch norm, strides, groups and three kinds of pools."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(
            8, 12, 3, stride=2, padding=1, bias=False)
        self.norms = nn.ModuleList((nn.BatchNorm2d(8), nn.BatchNorm2d(12)))
        self.each, self.out = nn.Conv2d(12, 12, 3, padding=1, groups=12), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norms[0](self.first(x))), 3, 2, 1)
        x = F.silu(self.norms[1](self.second(x)))
        x = F.avg_pool2d(x + self.each(x), 2)
        return self.out(F.adaptive_avg_pool2d(x, 1).flatten(1))

    @staticmethod
    def inputs(count: int = 4) -> list[Tensor]:
        return [torch.randn(count, 3, 15, 17)]


class Unet(nn.Module):
    """Group norm, a pool, three ways to enlarge, and a connection that skips them."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.norm = nn.Conv2d(1, 6, 3, padding=1), nn.GroupNorm(2, 6)
        self.middle, self.up = nn.Conv2d(6, 6, 3, padding=1), nn.ConvTranspose2d(6, 6, 2, stride=2)
        self.join, self.out = nn.Conv2d(12, 6, 3, padding=1), nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.silu(self.norm(self.down(x)))
        deep = F.silu(self.middle(F.max_pool2d(wide, 2)))
        large = self.up(deep) + F.interpolate(deep, scale_factor=2) + F.interpolate(
            deep, scale_factor=2, mode="bilinear")
        return self.out(F.relu(self.join(torch.cat([wide, large], 1))))

    @staticmethod
    def inputs(count: int = 2) -> list[Tensor]:
        return [torch.randn(count, 1, 12, 14)]


class ConvNext(nn.Module):
    """Wide depthwise windows, layer norm in channels-last order, and a factor for each channel."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem, self.out = nn.Conv2d(3, width, 4, 4), nn.Linear(width, 5)
        self.each = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        inner = self.norms[0](self.each(x).permute(0, 2, 3, 1))
        inner = self.scale * self.down(F.gelu(self.up(inner)))
        x = x + inner.permute(0, 3, 1, 2)
        return self.out(self.norms[1](x.mean((2, 3))))

    @staticmethod
    def inputs(count: int = 3) -> list[Tensor]:
        return [torch.randn(count, 3, 28, 24)]
