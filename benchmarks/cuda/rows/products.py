"""Matrix products, beside cuBLAS, which is what eager PyTorch calls."""

from __future__ import annotations

from functools import cache, partial

import torch
from torch.nn import functional

from rows import Goal, Measure, Setting, xla
from rows.kernels import Kernel, Spec, Tensor, against_peers

TITLE = "products: the best peer's time / ours"
APART = False
FLOAT8 = torch.float8_e4m3fn


def rows(setting: Setting) -> dict[str, Measure]:
    goals = {"bf16": Goal(0.96, 1.02), "fp8": Goal(1.1, 1.17), "linear + GELU": Goal(1.0, 1.25),
             "linear bf16": Goal(1.0, 1.3)}
    return {name: against_peers(kernel, next(g for n, g in goals.items() if name.startswith(n)),
                                "products") for name, kernel in kernels().items()}


def kernels() -> dict[str, Kernel]:
    fused = Kernel(lambda x, w, b: functional.gelu(functional.linear(x, w, b)),
                   (Spec((8192, 1024)),), (Spec((4096, 1024), scale=0.03), Spec((4096,))),
                   xla=xla.linear_gelu)
    few = {m: Kernel(functional.linear, (Spec((m, 4096)),), (Spec((4096, 4096), scale=0.02),))
           for m in (1, 16)}
    return {
        **{f"bf16 {n}x{n}x{n}": product(n) for n in (4096, 8192)},
        "fp8 8192x8192x8192": float8(8192, "f32"),
        "fp8 fast 8192x8192x8192": float8(8192, "fast"),
        "linear + GELU bf16 8192x4096x1024": fused,
        **{f"linear bf16 {m}x4096x4096": kernel for m, kernel in few.items()}}


def product(n: int) -> Kernel:
    return Kernel(torch.matmul, (Spec((n, n)), Spec((n, n))), xla=xla.product)


def float8(n: int, precision: str) -> Kernel:
    """Exact products. The right factor lies by columns, as cuBLAS wants it.

    Sums have all bits of f32 in precision f32, and fewer in others, as cuBLAS's fast ones have.
    """
    rival = partial(scaled, fast=precision != "f32")
    return Kernel(_widened, (Spec((n, n), FLOAT8), Spec((n, n), FLOAT8)),
                  rivals={"cuBLAS": rival}, compiled=False, exact=torch.float32,
                  precision=precision)


def _widened(a: Tensor, b: Tensor) -> Tensor:
    product = a.to(torch.float32) @ b.to(torch.float32).t()
    return product.to(torch.bfloat16) if a.dtype == FLOAT8 else product


def scaled(a: Tensor, b: Tensor, fast: bool) -> Tensor:
    one = _one(a.device)
    return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16,
                            use_fast_accum=fast)


@cache
def _one(device: torch.device) -> Tensor:
    return torch.ones((), device=device)
