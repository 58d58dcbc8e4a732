"""Python's garbage collector while the compiler works: it looks for garbage less often.

A module is a large graph of objects that live long, and each look walks all of it. With Python's
own settings that took a third of the time of large models.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

THRESHOLDS = (100_000, 20, 20)
"""New objects between looks, and looks between looks at older objects: some 50 MB of garbage."""


@contextmanager
def rare_collections() -> Generator[None]:
    """Let the collector run rarely inside. At the end of the outermost it has much to look at."""
    before = gc.get_threshold()
    gc.set_threshold(*(max(pair) for pair in zip(before, THRESHOLDS, strict=True)))
    try:
        yield
    finally:
        gc.set_threshold(*before)
