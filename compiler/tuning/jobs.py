"""The messages between the tuner's processes: jobs, compilation results and timings."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from compiler.io.signature import Signature, signature_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.strategies import ONE_LAUNCH
from dialects.symbolic.symbol import Symbol

if TYPE_CHECKING:
    from targets.interface import Executable


@dataclass(frozen=True)
class Job:
    """A task's module with a schedule, or with the rules' own, in a file. `task`: its key. `name`:
    the kernel's name. `sizes`: the sizes at which it is measured.
    """

    task: str
    path: str
    name: str
    options: CompileOptions
    sizes: Mapping[Symbol, int]

    def load(self) -> tuple[Executable, Signature]:
        """Load the module as an executable; its code may be in the cache."""
        compilation = Compiler(self.path, self.options)
        state = compilation.lower()
        return compilation.load(state), signature_of(state.module)


@dataclass(frozen=True)
class Compiled:
    """`code`: a hash of the target code. `schedule`: the final schedule of the kernel. `hopeless`:
    why it need not be timed, or empty.
    """

    code: str
    schedule: str
    hopeless: str = ""


@dataclass(frozen=True)
class Timed:
    """The seconds of a call in each turn, and those of the baseline in the turns between."""

    seconds: Sequence[float]
    rules_seconds: Sequence[float]

    @property
    def ratio(self) -> float:
        """The time relative to the rules' choice.

        Disturbances affect both calls of a turn alike, or only some turns. The ratio is therefore
        the median of turns, or that of the best turns if these show that it is slower.
        """
        pairs = zip(self.seconds, self.rules_seconds, strict=True)
        return max(statistics.median(a / b for a, b in pairs),
                   min(self.seconds) / min(self.rules_seconds))


class Unfit(Exception):
    """A candidate or task is rejected; the message says why."""


def plain(options: CompileOptions, cache: str, weights: Any) -> CompileOptions:
    """The options of a model, adapted for the modules of its tasks, each of which is launched at
    once."""
    without = tuple(name for name in options.without_groups if name != ONE_LAUNCH)
    return replace(options, shapes={}, dims={}, constants={}, start=None, passes="default", mesh="",
                   rank=None,
                   schedule=None, dump_dir=None, specialize=None, threads=1, cache=cache,
                   tuned="off", weights=weights,
                   with_groups=(*options.with_groups, ONE_LAUNCH), without_groups=without)
