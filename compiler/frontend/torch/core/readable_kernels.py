"""Triton without a GPU, as far as PyTorch needs it to read users' kernels.

Programs that are kept on disk import this and no compiler, so that it imports nothing of xDSL.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from compiler.frontend.torch.library import torch_module


class _Named:
    """In the place of Triton's driver: the GPU whose instructions Triton's IR would become."""

    def get_current_target(self) -> Any:
        return torch_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)


@contextmanager
def readable_kernels() -> Generator[None]:
    """While PyTorch finds what users' kernels write, from their IR in Triton, which does not depend
    on the GPU. Triton makes it only if it knows one; without, all operands would count as written.
    """
    driver = torch_module("triton.runtime").driver if "triton" in sys.modules else None
    if driver is None or _has_gpu(driver):
        yield
        return
    driver.set_active(_Named())
    try:
        yield
    finally:
        driver.set_active(None)


def _has_gpu(driver: Any) -> bool:
    try:
        return driver.active is not None
    except RuntimeError:  # there are no drivers, or several
        return False
