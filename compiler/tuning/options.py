"""The options of a tuning run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from numbers import Real
from pathlib import Path
from typing import Any

from compiler.diagnostics import StrataError
from compiler.option_values import MOST_THREADS, shown, threads_of, truth_of


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
        if not _is_number(self.seconds) or not self.seconds > 0:
            raise StrataError(f"seconds is {shown(self.seconds)}; tuning takes some time")
        if threads_of(self.jobs) is None:
            raise StrataError(f"jobs is {shown(self.jobs)}; it must be a number from 1 to "
                              f"{MOST_THREADS}")
        if truth_of(self.again) is None:
            raise StrataError(f"again is {shown(self.again)}; it must be True or False")
        if self.output is not None and self.output.is_dir():
            raise StrataError(f"output is {shown(str(self.output))}, which is a folder")

    @staticmethod
    def of(jobs: int | None, **others: Any) -> TuneOptions:
        """Options with the default number of jobs if none is given."""
        return TuneOptions(**others) if jobs is None else TuneOptions(jobs=jobs, **others)

    def names(self, kernel: str) -> bool:
        """Whether a kernel is to be tuned."""
        return not self.kernels or any(fnmatchcase(kernel, p) for p in self.kernels)


def processes_of(workers: str | None, jobs: int | None) -> int | None:
    """How many processes compile, from `--workers local:N` or `--jobs N`; None for the default.

    Raises StrataError for another place than this machine, and where both are given.
    """
    if workers is None:
        return jobs
    if jobs is not None:
        raise StrataError("workers and jobs both say how many processes compile: leave out one")
    place, _, count = workers.partition(":")
    if place != "local" or not count.isdecimal() or threads_of(int(count)) is None:
        raise StrataError(f"workers is {shown(workers)}; it must be local:N, for N processes of "
                          f"this machine, from 1 to {MOST_THREADS}")
    return int(count)


def _is_number(value: object) -> bool:
    return truth_of(value) is None and isinstance(value, Real)
