"""Convolutions of images with channels last, beside cuDNN, which is what eager PyTorch calls."""

from __future__ import annotations

import torch
from torch.nn import functional

from rows import Goal, Measure, Setting
from rows.kernels import Kernel, Spec, Tensor, against_peers

TITLE = "fp16 convolutions, channels last: the best peer's time / ours"
APART = False


def rows(setting: Setting) -> dict[str, Measure]:
    kernel = Kernel(channels_last, (Spec((32, 56, 56, 64), torch.float16),),
                    (Spec((64, 3, 3, 64), torch.float16, 0.05),))
    torch.backends.cudnn.benchmark = True
    return {"3x3 64 channels 56x56 b32": against_peers(kernel, Goal(1.05, 1.15), "convolutions")}


def channels_last(x: Tensor, w: Tensor) -> Tensor:
    """Both lie with channels last, and are permuted to what PyTorch calls them."""
    y = functional.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=1)
    return y.permute(0, 2, 3, 1)
