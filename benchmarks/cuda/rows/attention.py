"""Attention: ours from the graph of single operators, peers with fused kernels, too."""

from __future__ import annotations

import math

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from rows import Goal, Measure, Setting
from rows.kernels import Kernel, Spec, Tensor, against_peers

TITLE = "attention, ours from single operators: the best peer's time / ours"
APART = False
GOAL = Goal(0.85, 1.0)


def rows(setting: Setting) -> dict[str, Measure]:
    return {name: against_peers(k, GOAL, "attention") for name, k in kernels().items()}


def kernels() -> dict[str, Kernel]:
    return {"16x8x1024x64 fp16": kernel((16, 8, 1024, 64), torch.float16, False),
            "4x32x4096x128 causal bf16": kernel((4, 32, 4096, 128), torch.bfloat16, True)}


def kernel(shape: tuple[int, ...], dtype: torch.dtype, causal: bool) -> Kernel:
    def fused(backend: SDPBackend):
        def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with sdpa_kernel(backend):
                return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return run

    rivals = {"FlashAttention": fused(SDPBackend.FLASH_ATTENTION),
              "cuDNN": fused(SDPBackend.CUDNN_ATTENTION)}
    single = _causal if causal else _plain
    return Kernel(single, (Spec(shape, dtype),) * 3, rivals=rivals, compiled=False,
                  exact=torch.float32)


def _plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(_scores(q, k), -1) @ v


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    size = q.shape[-2]
    seen = torch.ones(size, size, dtype=torch.bool, device=q.device).tril()
    return torch.softmax(_scores(q, k).masked_fill(~seen, -math.inf), -1) @ v


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))
