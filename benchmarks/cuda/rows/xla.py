"""XLA through jax, where it is installed: the same kernels, written for jax.

It works on streams of its own, where events of PyTorch's see nothing. So its time is wall time of
calls in a row, which wait for nothing between them; inputs are larger than caches.
"""

from __future__ import annotations

import importlib
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from rows import Setting
from rows.timing import LEAST, turn

Function = Callable[[Any], Callable[..., Any]]
"""Takes the module jax, and gives the function of its arrays."""
IN_A_ROW = 30


@cache
def library() -> Any:
    """jax, which shall leave memory to others. Raises ImportError."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return importlib.import_module("jax")


def milliseconds_of(
    function: Function, inputs: Sequence[torch.Tensor], setting: Setting
) -> tuple[float, torch.Tensor]:
    """The median milliseconds of a call, and its result."""
    jax = library()
    arrays = [jax.dlpack.from_dlpack(tensor) for tensor in inputs]
    call = jax.jit(function(jax))
    with turn(setting):  # it tries kernels on the device as it compiles
        result = jax.block_until_ready(call(*arrays))
        taken = [_taken(jax, lambda: call(*arrays)) for _ in range(1 if setting.smoke else LEAST)]
    return statistics.median(taken), torch.from_dlpack(result)


def _taken(jax: Any, call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    for _ in range(IN_A_ROW):
        result = call()
    jax.block_until_ready(result)
    return 1e3 * (time.perf_counter() - started) / IN_A_ROW


# ---------------------------------------------------------------------- kernels
def softmax(jax: Any) -> Callable[..., Any]:
    return lambda x: jax.nn.softmax(x.astype("float32"), -1).astype(x.dtype)


def layer_norm(jax: Any) -> Callable[..., Any]:
    def run(x: Any, gain: Any, shift: Any) -> Any:
        wide = x.astype("float32")
        mean = wide.mean(-1, keepdims=True)
        spread = ((wide - mean) ** 2).mean(-1, keepdims=True)
        return ((wide - mean) * jax.lax.rsqrt(spread + 1e-5) * gain + shift).astype(x.dtype)

    return run


def rms_norm(jax: Any) -> Callable[..., Any]:
    def run(x: Any, gain: Any) -> Any:
        wide = x.astype("float32")
        squares = (wide * wide).mean(-1, keepdims=True)
        return (wide * jax.lax.rsqrt(squares + 1e-6) * gain).astype(x.dtype)

    return run


def bias_gelu(jax: Any) -> Callable[..., Any]:
    return lambda x, r, b: jax.nn.gelu(x + b, approximate=False) + r


def gelu_chain(jax: Any) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        h = jax.nn.gelu(x, approximate=False) * 1.5 + 0.25
        return jax.nn.gelu(h, approximate=False) * jax.nn.sigmoid(x)

    return run


def product(jax: Any) -> Callable[..., Any]:
    return jax.numpy.matmul


def linear_gelu(jax: Any) -> Callable[..., Any]:
    return lambda x, w, b: jax.nn.gelu(x @ w.T + b, approximate=False)
