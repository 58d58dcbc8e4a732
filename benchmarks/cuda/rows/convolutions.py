"""Convolutions of images with channels last, beside cuDNN, which is what eager PyTorch calls."""

from __future__ import annotations

import torch
from torch.nn import functional

from rows import Goal, Measure, Setting
from rows.kernels import Kernel, Spec, Tensor, against_peers

TITLE = "fp16 convolutions, channels last: the best peer's time / ours"
APART = False


def rows(setting: Setting) -> dict[str, Measure]:
    torch.backends.cudnn.benchmark = True
    shapes = {"3x3 64 channels 56x56 b32": (56, 64, 1, 3),
              "3x3 128 channels in 32 groups 56x56 b32": (56, 128, 32, 3),
              "3x3 144 channels, each by itself, 56x56 b32": (56, 144, 144, 3),
              "5x5 672 channels, each by itself, 14x14 b32": (14, 672, 672, 5)}
    return {name: against_peers(_kernel(*shape), Goal(1.05, 1.15), "convolutions")
            for name, shape in shapes.items()}


def _kernel(size: int, channels: int, groups: int, window: int) -> Kernel:
    return Kernel(channels_last, (Spec((32, size, size, channels), torch.float16),),
                  (Spec((channels, window, window, channels // groups), torch.float16, 0.05),))


def channels_last(x: Tensor, w: Tensor) -> Tensor:
    """Both lie with channels last, and are permuted to what PyTorch calls them."""
    y = functional.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=w.shape[1] // 2,
                          groups=x.shape[-1] // w.shape[-1])
    return y.permute(0, 2, 3, 1)
