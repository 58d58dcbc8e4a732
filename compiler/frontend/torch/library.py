"""PyTorch's modules, imported when they are first needed.

Their type is Any, so that type checkers do not need PyTorch.
"""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

FOREIGN = "triton_kernel_wrapper_functional"
"""The operator in which PyTorch records the launch of a user's kernel."""


def torch_module(name: str = "torch") -> Any:
    """The module `torch`, or one of its submodules."""
    found: Any = sys.modules.get(name)
    is_ready = found is not None and not getattr(found.__spec__, "_initializing", False)
    return found if is_ready else importlib.import_module(name)


@contextmanager
def quiet() -> Generator[None]:
    """Suppress PyTorch's logged tracebacks and warnings where its errors are caught."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
