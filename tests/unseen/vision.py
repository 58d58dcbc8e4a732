"""Image networks, written anew, of a size that compiles in seconds."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor


class LayerNorm2d(nn.LayerNorm):
    """Over the channels of [n, c, h, w]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """Liu et al., 2022: depthwise 7x7, norm of channels, two products, a scale per channel."""

    def __init__(self, width: int):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.down(F.gelu(self.up(y))) * self.scale
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 4, 4), LayerNorm2d(12))
        self.blocks = nn.Sequential(ConvNeXtBlock(12), LayerNorm2d(12), nn.Conv2d(12, 20, 2, 2),
                                    ConvNeXtBlock(20))
        self.head = nn.Linear(20, 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class UNet(nn.Module):
    """Ronneberger et al., 2015, with attention in the middle and group norms (diffusion's)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1)
        self.norm, self.middle_norm = nn.GroupNorm(4, 8), nn.GroupNorm(4, 16)
        self.qkv, self.out = nn.Conv2d(16, 48, 1), nn.Conv2d(16, 16, 1)
        self.time = nn.Linear(8, 16)
        self.up, self.last = nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        angles = t[:, None] * torch.exp(-torch.arange(4, dtype=torch.float32))
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        skip = F.silu(self.norm(self.first(x)))
        h = self.second(skip) + time[:, :, None, None]
        q, k, v = self.qkv(self.middle_norm(h)).flatten(2).chunk(3, 1)
        weights = torch.softmax(q.transpose(1, 2) @ k / 4.0, -1)
        h = h + self.out((v @ weights.transpose(1, 2)).reshape(h.shape))
        return self.last(torch.cat([self.up(F.silu(h)), skip], 1))


class MobileVit(nn.Module):
    """Mehta and Rastegari, 2022: attention among the same pixels of all patches."""

    def __init__(self) -> None:
        super().__init__()
        self.local = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16),
                                   nn.SiLU(), nn.Conv2d(16, 16, 1))
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation=F.silu,
                                           batch_first=True, norm_first=True)
        self.globally = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fuse = nn.Conv2d(32, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.local(x)
        n, c, h, w = y.shape
        patches = y.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 2, 4, 1)
        seen = self.globally(patches.reshape(n * 4, h * w // 4, c))
        back = seen.reshape(n, 2, 2, h // 2, w // 2, c).permute(0, 5, 3, 1, 4, 2)
        return self.fuse(torch.cat([y, back.reshape(n, c, h, w)], 1))


class Mixer(nn.Module):
    """Tolstikhin et al., 2021: products over patches, then over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 24, 4, 4)
        self.norms = nn.ModuleList([nn.LayerNorm(24) for _ in range(3)])
        self.tokens = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.channels = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24))
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = y + self.tokens(self.norms[0](y).transpose(1, 2)).transpose(1, 2)
        y = y + self.channels(self.norms[1](y))
        return self.head(self.norms[2](y).mean(1))


class SwinBlock(nn.Module):
    """Liu et al., 2021: attention in shifted windows, a table of relative positions, a mask."""

    def __init__(self, size: int = 8, window: int = 4, width: int = 16, heads: int = 2):
        super().__init__()
        self.window, self.heads = window, heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(
            width, width)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads))
        grid = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window),
                                          indexing="ij")).flatten(1)
        apart = (grid[:, :, None] - grid[:, None]) + window - 1
        self.register_buffer("places", apart[0] * (2 * window - 1) + apart[1])
        part = torch.zeros(size, size)
        for k, rows in enumerate((slice(0, -window), slice(-window, -2), slice(-2, None))):
            for m, columns in enumerate((slice(0, -window), slice(-window, -2), slice(-2, None))):
                part[rows, columns] = 3 * k + m
        part = self.cut(part[None, :, :, None]).squeeze(-1)
        self.register_buffer("mask", (part[:, None] != part[:, :, None]).float() * -100.0)

    def cut(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        side = self.window
        return x.view(n, h // side, side, w // side, side, c).transpose(2, 3).reshape(
            -1, side * side, c)

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        side, heads = self.window, self.heads
        y = self.cut(torch.roll(self.norm(x), (-2, -2), (1, 2)))
        q, k, v = self.qkv(y).view(-1, side * side, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
        bias = self.table[self.places.reshape(-1)].view(side ** 2, side ** 2, heads)
        bias = bias.permute(2, 0, 1)
        scores = (q @ k.transpose(-1, -2)) * (c // heads) ** -0.5 + bias
        scores = scores.view(n, -1, heads, side ** 2, side ** 2) + self.mask[None, :, None]
        y = torch.softmax(scores.view(-1, heads, side ** 2, side ** 2), -1) @ v
        y = self.out(y.transpose(1, 2).reshape(-1, side ** 2, c))
        y = y.view(n, h // side, w // side, side, side, c).transpose(2, 3).reshape(n, h, w, c)
        return x + torch.roll(y, (2, 2), (1, 2))


class DetrHead(nn.Module):
    """Carion et al., 2020: learnt queries look at an image; classes and boxes."""

    def __init__(self) -> None:
        super().__init__()
        self.input, self.queries = nn.Conv2d(12, 16, 1), nn.Parameter(torch.randn(6, 16))
        layer = nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 2)
        self.classes, self.boxes = nn.Linear(16, 5), nn.Sequential(
            nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.input(x).flatten(2).transpose(1, 2)
        found = self.decoder(self.queries.expand(x.shape[0], -1, -1), memory)
        return self.classes(found).softmax(-1), self.boxes(found).sigmoid()


class Capsules(nn.Module):
    """Sabour et al., 2017: votes of capsules, routed in three rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 5, 2)
        self.votes = nn.Parameter(torch.randn(24, 3, 6, 4) * 0.3)

    @staticmethod
    def squash(x: Tensor) -> Tensor:
        square = (x * x).sum(-1, keepdim=True)
        return x * square / (1 + square) / torch.sqrt(square + 1e-8)

    def forward(self, x: Tensor) -> Tensor:
        u = self.squash(F.relu(self.conv(x)).reshape(x.shape[0], 24, 4))
        votes = torch.einsum("nic,ijdc->nijd", u, self.votes)
        logits = torch.zeros_like(votes[..., 0])
        for _ in range(3):
            v = self.squash((logits.softmax(2)[..., None] * votes).sum(1))
            logits = logits + (votes * v[:, None]).sum(-1)
        return v.norm(dim=-1)


class Crnn(nn.Module):
    """Shi et al., 2017: convolutions, a bidirectional LSTM over columns, greedy CTC."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d((2, 1)))
        self.lstm = nn.LSTM(64, 12, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, 11)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(x)
        y = y.permute(0, 3, 1, 2).flatten(2)
        scores = self.head(self.lstm(y)[0]).log_softmax(-1)
        best = scores.argmax(-1)
        before = F.pad(best[:, :-1], (1, 0), value=-1)
        return scores, torch.where((best != before) & (best != 0), best, -1)


class SegFormerHead(nn.Module):
    """Xie et al., 2021: scales brought to one size and fused; argmax of classes."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleList([nn.Linear(c, 8) for c in (4, 8, 12)])
        self.fuse, self.classes = nn.Conv2d(24, 8, 1), nn.Conv2d(8, 5, 1)

    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        scales: list[Tensor] = []
        for x, linear in zip((a, b, c), self.maps, strict=True):
            y = linear(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(
                x.shape[0], 8, x.shape[2], x.shape[3])
            scales.append(F.interpolate(y, size=a.shape[2:], mode="bilinear", align_corners=False))
        scores = self.classes(F.relu(self.fuse(torch.cat(scales[::-1], 1))))
        return scores, scores.argmax(1)
