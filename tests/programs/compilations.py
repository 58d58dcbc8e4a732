"""Counts compilations, with a cache that is on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compiler.pipeline.driver import Compiler


def count_compilations(patch: pytest.MonkeyPatch, count: Callable[[], None]) -> None:
    """Call `count` for each compilation, in an environment that keeps programs."""
    prepare = Compiler.prepare

    def counted(self: Compiler) -> Any:
        count()
        return prepare(self)

    patch.setattr(Compiler, "prepare", counted)
    for name in ("STRATA_DEBUG", "STRATA_CACHE_SIZE"):
        patch.delenv(name, raising=False)
