"""PyTorch's modules, imported when they are first needed.

To type checkers they are anything, so that these need no PyTorch.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


def torch_module(name: str = "torch") -> Any:
    """The module `torch`, or one of its own."""
    return importlib.import_module(name)


@contextmanager
def quiet() -> Generator[None]:
    """Keeps PyTorch from logging tracebacks and warnings where its errors are caught."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
