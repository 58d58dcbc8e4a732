"""A cache of compiled models, which other tests do without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compiler.pipeline.driver import Compiler
from targets.files import warn_unkept
from tests.faults.models import Bench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(tmp_path)
    prepare: Callable[[Compiler], Any] = Compiler.prepare

    def counted(self: Compiler) -> Any:
        bench.compiled += 1
        return prepare(self)

    monkeypatch.setattr(Compiler, "prepare", counted)
    monkeypatch.setenv("STRATA_CACHE_SIZE", "1G")
    monkeypatch.delenv("STRATA_DEBUG", raising=False)
    warn_unkept.cache_clear()
    return bench
