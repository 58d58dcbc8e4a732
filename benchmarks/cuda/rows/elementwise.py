"""Elementwise chains: what is limited by memory when functions are cheap enough."""

from __future__ import annotations

import torch
from torch.nn import functional

from rows import Goal, Measure, Setting, xla
from rows.kernels import Kernel, Spec, Tensor, against_copy

TITLE = "bf16 elementwise chains: share of a copy's bandwidth"
APART = False
SHAPE = (8192, 4096)
ELEMENTS = 64 << 20


def rows(setting: Setting) -> dict[str, Measure]:
    fused = Kernel(lambda x, r, b: functional.gelu(x + b) + r, (Spec(SHAPE), Spec(SHAPE)),
                   (Spec(SHAPE[1:]),), xla=xla.bias_gelu)
    chain = Kernel(gelu_chain, (Spec((ELEMENTS // 4096, 4096)),), xla=xla.gelu_chain)
    cases = {"bias + GELU + residual 8192x4096": (fused, Goal(0.80, 0.88)),
             "GELU chain 64M": (chain, Goal(0.70, 0.85))}
    return {name: against_copy(*case, "elementwise") for name, case in cases.items()}


def gelu_chain(x: Tensor) -> Tensor:
    h = functional.gelu(x) * 1.5 + 0.25
    return functional.gelu(h) * torch.sigmoid(x)
