"""The options of a tuning run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from compiler.diagnostics import StrataError


@dataclass(frozen=True)
class TuneOptions:
    """The options of a tuning run.

    `seconds`: the approximate total time. `jobs`: the number of compiling processes. `kernels`:
    patterns of names, empty for all. `output`: the file of winners, None for the one in the cache.
    `sizes`: the values of open sizes at which to measure. `again`: also tune kernels that were
    tuned before. `whole`: whether to time the whole models at the end.
    """

    seconds: float = 120.0
    jobs: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    kernels: tuple[str, ...] = ()
    output: Path | None = None
    mode: str = "default"
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    again: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        """Raises StrataError for invalid options: no time, or no process."""
        if not self.seconds > 0:
            raise StrataError(f"seconds is {self.seconds!r}; tuning takes some time")
        if isinstance(self.jobs, bool) or self.jobs < 1:
            raise StrataError(f"jobs is {self.jobs!r}; it must be a number from 1 on")

    @staticmethod
    def of(jobs: int | None, **others: Any) -> TuneOptions:
        """Options with the default number of jobs if none is given."""
        return TuneOptions(**others) if jobs is None else TuneOptions(jobs=jobs, **others)

    def names(self, kernel: str) -> bool:
        """Whether a kernel is to be tuned."""
        return not self.kernels or any(fnmatchcase(kernel, p) for p in self.kernels)
