"""Normalizations over rows, which read and write memory once."""

from __future__ import annotations

import torch
from torch.nn import functional

from rows import Goal, Measure, Setting, xla
from rows.kernels import Kernel, Spec, Tensor, against_copy

TITLE = "bf16 normalizations of rows: share of a copy's bandwidth"
APART = False
GOAL = Goal(0.83, 0.88)
SHAPE = (8192, 4096)
X, GAIN, SHIFT = Spec(SHAPE), Spec(SHAPE[1:]), Spec(SHAPE[1:], scale=0.1)


def rows(setting: Setting) -> dict[str, Measure]:
    kernels = {
        "softmax 8192x4096": Kernel(lambda x: torch.softmax(x, -1), (X,), xla=xla.softmax),
        "layer norm 8192x4096": Kernel(layer_norm, (X,), (GAIN, SHIFT), xla=xla.layer_norm),
        "RMS norm 8192x4096": Kernel(rms_norm, (X,), (GAIN,), xla=xla.rms_norm),
    }
    return {name: against_copy(kernel, GOAL, "norms") for name, kernel in kernels.items()}


def layer_norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], gain, shift)


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6) * gain).to(x.dtype)
