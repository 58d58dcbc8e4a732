"""The backward pass of attention on a GPU, beside PyTorch's kernels.

    python benchmarks/cuda/attention_gradients.py [--only 64] [--kernels]

Contestants are FlashAttention and cuDNN as PyTorch calls them, and Strata through `torch.compile`.
The time is what the device needs for the kernels of one backward pass: the median over passes, in
turns of contestants. TFLOP/s count five products of the scores' size, half of that under a causal
mask. Errors are distances from gradients in f64 on the same inputs, relative to their norm.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from compiler.torch.backend import strata

SHAPES: Sequence[tuple[int, int, int, int]] = (
    (8, 12, 1024, 64), (32, 12, 128, 64), (64, 12, 197, 64), (4, 16, 2048, 64), (4, 20, 1024, 80),
    (4, 16, 2048, 128), (1, 16, 8192, 128))
"""Batch, heads, length, and size of a head."""
PEERS: Mapping[str, SDPBackend] = {
    "flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def contestants(causal: bool) -> dict[str, Callable[..., Tensor]]:
    def attention(*heads: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*heads, is_causal=causal)

    def by(backend: SDPBackend) -> Callable[..., Tensor]:
        def call(*heads: Tensor) -> Tensor:
            with sdpa_kernel(backend):
                return attention(*heads)
        return call

    torch._dynamo.reset()
    ours = torch.compile(attention, backend=strata, dynamic=False, options={"cache": "off"})
    return {**{name: by(backend) for name, backend in PEERS.items()}, "strata": ours}


def backward(run: Callable[..., Tensor], heads: Sequence[Tensor]) -> Callable[[], Any]:
    """A function that computes the gradients, once the forward pass has run."""
    given = [v.detach().clone().requires_grad_() for v in heads[:3]]
    made = run(*given)
    return lambda: torch.autograd.grad(made, given, heads[3].to(made.dtype), retain_graph=True)


def device_time(pass_: Callable[[], Any]) -> tuple[float, list[tuple[str, float]]]:
    """Milliseconds of all kernels, and of each."""
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        pass_()
        torch.cuda.synchronize()
    each = [(e.key[:48], e.self_device_time_total / 1e3) for e in found.key_averages()]
    return sum(t for _, t in each), each


def distance(found: Sequence[Tensor], true: Sequence[Tensor]) -> float:
    return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(found, true, strict=True))


def row(shape: tuple[int, int, int, int], causal: bool, options: argparse.Namespace) -> str:
    heads = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    passes = dict[str, Callable[[], Any]]()
    notes = list[str]()
    for name, run in contestants(causal).items():
        try:
            passes[name] = backward(run, heads)
            passes[name]()
        except RuntimeError as error:
            notes.append(f"{name}: {str(error).splitlines()[0][:60]}")
            passes.pop(name, None)
    times: dict[str, list[float]] = {name: [] for name in passes}
    for _ in range(options.turns):
        for name, pass_ in passes.items():
            times[name].append(device_time(pass_)[0])
    ms = {name: statistics.median(t) for name, t in times.items()}
    best = min((t for name, t in ms.items() if name != "strata"), default=0.0)
    batch, count, length, size = shape
    flops = 10 * batch * count * length**2 * size / (2 if causal else 1)
    errors = {}
    if length <= 2048:
        true = backward(lambda *v: F.scaled_dot_product_attention(*v, is_causal=causal),
                        [v.double() for v in heads])()
        errors = {name: distance(pass_(), true) for name, pass_ in passes.items()}
    if options.kernels and "strata" in passes:
        notes += [f"{k}: {t:.3f}" for k, t in device_time(passes["strata"])[1]]
    cells = [str(shape), "causal" if causal else "all", *(
        f"{ms[n]:.3f}" if n in ms else "" for n in ("flash", "cudnn", "strata")),
        f"{best / ms['strata']:.2f}" if "strata" in ms else "",
        f"{flops / ms['strata'] / 1e9:.0f}" if "strata" in ms else "",
        " ".join(f"{e:.1e}" for e in errors.values()), "; ".join(notes)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="shapes whose text holds this")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--kernels", action="store_true", help="show the time of each kernel")
    options = parser.parse_args()
    columns = ["shape", "mask", "flash ms", "cuDNN ms", "strata ms", "best / strata", "TFLOP/s",
               "errors", "notes"]
    print(f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", sep="\n", flush=True)
    for shape in SHAPES:
        if options.only in str(shape):
            for causal in (False, True):
                print(row(shape, causal, options), flush=True)


if __name__ == "__main__":
    main()
