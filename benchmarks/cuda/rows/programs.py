"""Programs of a PyTorch module: ours, PyTorch's own, and how far their results are off."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

import compiler
from compiler.api import model_of_argument
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text
from rows import Setting

Tensor = torch.Tensor
OURS = "strata"
EAGER = "eager"
AUTO = "auto"
NOISE = 4.0
"""A result may be so many times as far off as eager PyTorch's in the same types ..."""
LONGEST_NOTE = 200
ROUNDING = 4.0
"""... or so many times the rounding of its type."""


@dataclass(frozen=True)
class Compiled:
    """A callable, and the seconds until its first result, caches empty."""

    call: Callable[..., Any]
    seconds: float


def ours(
    module: torch.nn.Module, inputs: Sequence[Tensor], setting: Setting,
    given: Sequence[Tensor] | None = None, precision: str = "f32",
) -> Compiled:
    """Our program, as users get it: exported, compiled without a cache, called with tensors.

    `given`: what it is called with, where the module is exported elsewhere than it runs.
    """
    program = torch.export.export(module, tuple(inputs), strict=False)
    return _compiled(program, inputs if given is None else given, setting, precision)


def with_library(
    module: torch.nn.Module, inputs: Sequence[Tensor], setting: Setting,
    given: Sequence[Tensor] | None = None, precision: str = "f32",
) -> Compiled | None:
    """Our program whose kernels may be calls of a library; None where none is."""
    if setting.smoke or setting.beside:
        return None
    program = torch.export.export(module, tuple(inputs), strict=False)
    options = CompileOptions(target="cuda", cache="off", library="auto", precision=precision)
    text = lower_to_text(Compiler(model_of_argument(program), options), "loop", locations=False)
    if " library = " not in text:
        return None
    given = inputs if given is None else given
    return _compiled(program, given, setting, precision, "auto")


def _compiled(
    program: Any, inputs: Sequence[Tensor], setting: Setting, precision: str,
    library: str = "never",
) -> Compiled:
    started = time.perf_counter()
    target = "cuda" if setting.interpret or not setting.smoke else "cpu"
    executable = compiler.compile(program, target=target, cache="off", library=library,
                                  interpret=setting.interpret, precision=precision)
    executable(*inputs)
    return Compiled(executable, time.perf_counter() - started)


@contextmanager
def empty_cache() -> Generator[None]:
    """`torch.compile` finds no code of before inside, but what it made there."""
    from torch._inductor.utils import fresh_cache

    with tempfile.TemporaryDirectory() as folder, fresh_cache(dir=folder):
        yield


def inductor(function: Callable[..., Any], inputs: Sequence[Tensor], mode: str) -> Compiled:
    """`torch.compile` in one of its modes."""
    started = time.perf_counter()
    compiled = torch.compile(function, dynamic=False, mode=mode)
    compiled(*inputs)
    seconds = time.perf_counter() - started
    for _ in range(3):  # some modes record graphs then
        compiled(*inputs)
    return Compiled(compiled, seconds)


# ---------------------------------------------------------------------- results
def off(found: Tensor, exact: Tensor) -> float:
    """The largest deviation over the largest magnitude; infinite for another shape or NaN."""
    if found.shape != exact.shape:
        return float("inf")
    if not exact.numel():
        return 0.0
    wide = exact.dtype
    error = (found.to(exact.device, wide) - exact).abs().max() / exact.abs().max().clamp_min(1e-30)
    return float(error) if bool(torch.isfinite(error)) else float("inf")


def allowed(eager: float, dtype: torch.dtype) -> float:
    """How far off a result may be, for how far eager PyTorch's is."""
    return max(NOISE * eager, ROUNDING * torch.finfo(dtype).eps)


def told(error: Exception) -> str:
    """What a peer raised, in a line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:LONGEST_NOTE]
