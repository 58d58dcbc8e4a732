"""A cache of compiled models, which other tests do without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.driver import Compiler
from targets.files import warn_unkept
from tests.faults.models import X, save_model


class Bench:
    """A model file and a cache folder of its own. `compiled` counts compilations."""

    def __init__(self, folder: Path):
        self.folder, self.model, self.cache = folder, folder / "model.onnx", folder / "cache"
        self.compiled = 0
        save_model(self.model)

    def compile(self, **options: Any) -> compiler.Executable:
        return compiler.compile(self.model, **{"threads": 1, "cache": self.cache, **options})

    def check(self, scale: float = 1.0, **options: Any) -> compiler.Executable:
        """The model answers right."""
        exe = self.compile(**options)
        np.testing.assert_array_equal(exe(X)[0], np.full((2, 300), 8 * scale, np.float32))
        return exe

    def files(self, kind: str) -> list[Path]:
        folder = self.cache / ("cpu" if kind == "cpu" else f"programs/{kind}")
        return sorted(path for path in folder.glob("*") if path.suffix != ".whole")

    @property
    def entry(self) -> Path:
        [found] = self.files("entries")
        return found


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
