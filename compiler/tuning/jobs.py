"""What the tuner's processes tell each other: jobs, what was compiled, and what was timed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from compiler.io.signature import Signature, signature_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.symbolic.symbol import Symbol

if TYPE_CHECKING:
    from targets.interface import Executable


@dataclass(frozen=True)
class Job:
    """A task's module with a schedule, or with the rules' own, in a file. `task`: its key. `name`:
    of the kernel. `sizes`: those that it is measured at."""

    task: str
    path: str
    name: str
    options: CompileOptions
    sizes: Mapping[Symbol, int]

    def load(self) -> tuple[Executable, Signature]:
        """The module as something that runs; its code may lie in the cache."""
        compilation = Compiler(self.path, self.options)
        state = compilation.lower()
        return compilation.load(state), signature_of(state.module)


@dataclass(frozen=True)
class Compiled:
    """`code`: a hash of the target's code. `schedule`: as the kernel has it in the end. `hopeless`:
    why it need not be timed, if so."""

    code: str
    schedule: str
    hopeless: str = ""


@dataclass(frozen=True)
class Timed:
    """Seconds of a call turn by turn, and of a call with the rules' schedule in the turns between.
    """

    seconds: Sequence[float]
    rules_seconds: Sequence[float]

    @property
    def ratio(self) -> float:
        """The time over the rules'. What disturbs hits both of a turn alike, or only some turns: so
        the median of turns counts, or the best turns where these say that it is slower."""
        pairs = zip(self.seconds, self.rules_seconds, strict=True)
        return max(statistics.median(a / b for a, b in pairs),
                   min(self.seconds) / min(self.rules_seconds))


class Unfit(Exception):
    """A candidate, or a whole task, that does not count; says why."""


def plain(options: CompileOptions, cache: str, weights: Any) -> CompileOptions:
    """The options of a model, for the modules of its tasks."""
    return replace(options, shapes={}, dims={}, constants={}, start=None, passes="default",
                   schedule=None, dump_dir=None, specialize=None, threads=1, cache=cache,
                   tuned="off", weights=weights)
