"""Times candidates of a task in turns with the rules' choice, and compares their results.

Loading a candidate, running it once and comparing its results use the processor; timing uses the
device. These are therefore separate methods, so that other processes can do the former while one
process times.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from compiler.io.signature import Signature
from compiler.measuring.comparison import worst
from compiler.pipeline.driver import Compiler
from compiler.tuning.jobs import Job, Timed, Unfit
from dialects.strata.types import element_of, is_float
from dialects.symbolic.symbol import Symbol

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from targets.interface import Timer

TURN_SECONDS = 5e-4
"""The least number of seconds of a turn, which consists of consecutive calls."""
MOST_IN_A_TURN = 50
SURELY_SLOWER, PROBABLY_SLOWER = 1.5, 1.12
"""The slowdown at which a candidate is abandoned after two turns, and after several."""
FEW_TURNS = 3
KEPT = 2
"""The number of candidates that stay loaded, among those close to the best when timed."""
BLOCK = 1_000_003
"""The period in elements of random inputs: a prime, which no dim divides."""


class Contestant:
    """A loaded module that has run once. `timer` is created on first use."""

    def __init__(self, job: Job, inputs: Sequence[Array] | None, indices: Collection[str] = ()):
        """Without `inputs` they are made."""
        self.job, (self.executable, signature) = job, job.load()
        made = random_inputs(signature, job.sizes, indices) if inputs is None else inputs
        self.inputs, self.outputs = made, self.executable.run(made)
        self.checked, self._timer = False, None

    def timer(self, footprint: int) -> Timer:
        if self._timer is None:
            running = Compiler(self.job.path, self.job.options).parts.running
            self._timer = running.timer(self.executable, self.inputs, footprint)
            self._timer(1)
        return self._timer


class Bench:
    """The kernel of a task with the rules' schedule and its results: the baseline of candidates."""

    def __init__(self, job: Job, indices: Collection[str], footprint: int):
        """Raises Unfit if the results of the rules' choice cannot be compared."""
        self.footprint, self.rules = footprint, Contestant(job, None, indices)
        self.outputs = [np.array(a) for a in self.rules.outputs]
        self.rules.outputs = []
        if any(_has_nan(a) for a in self.outputs):
            raise Unfit("it computes NaN on random inputs, so that nothing can be compared")
        self.loaded: OrderedDict[str, Contestant] = OrderedDict()
        """By the paths of jobs, the last one last."""

    def time_rules(self) -> float:
        """The seconds of a call with the rules' choice."""
        timer = self.rules.timer(self.footprint)
        first = max(timer(1), 1e-9)
        self.calls = int(np.clip(math.ceil(TURN_SECONDS / first), 1, MOST_IN_A_TURN))
        return statistics.median(timer(self.calls) for _ in range(FEW_TURNS))

    def load(self, job: Job) -> None:
        """Load a candidate, unless it is already loaded, and run it."""
        if job.path not in self.loaded:
            self.loaded[job.path] = Contestant(job, self.rules.inputs)

    def measure(self, job: Job, best: float, turns: int, seconds: float) -> Timed:
        """Time a loaded candidate in turns with the baseline. `best`: the best ratio so far."""
        pair = self.loaded[job.path].timer(self.footprint), self.rules.timer(self.footprint)
        found = take_turns(pair, self.calls, best, turns, time.monotonic() + seconds)
        if found.ratio > PROBABLY_SLOWER * best:
            del self.loaded[job.path]
        while len(self.loaded) > KEPT:
            self.loaded.popitem(last=False)
        return found

    def check(self, job: Job) -> None:
        """Raises Unfit for a candidate with wrong results."""
        candidate = self.loaded[job.path]
        if candidate.checked:
            return
        outputs, candidate.outputs, candidate.checked = candidate.outputs, [], True
        if any(_has_nan(a) for a in outputs) or worst(outputs, self.outputs)[1] is not None:
            del self.loaded[job.path]
            raise Unfit("it computes something else")


def take_turns(
    pair: tuple[Timer, Timer], calls: int, best: float, turns: int, until: float,
    clock: Callable[[], float] = time.monotonic,
) -> Timed:
    """Time a candidate and the rules' choice in turns; fewer if it is hopeless or time is short."""
    found = Timed([], [])
    for turn in range(1, turns + 1):
        found = _one_more(found, pair, calls, swapped=turn % 2 == 0)
        if turn == 2 and min(found.seconds) > SURELY_SLOWER * best * min(found.rules_seconds):
            break
        if turn >= FEW_TURNS and (found.ratio > PROBABLY_SLOWER * best or clock() > until):
            break
    return found


def _one_more(timed: Timed, pair: tuple[Timer, Timer], calls: int, swapped: bool) -> Timed:
    """Add one turn, in which the rules' choice comes first if `swapped`."""
    second = pair[1](calls) if swapped else 0.0
    first = pair[0](calls)
    second = second if swapped else pair[1](calls)
    return Timed([*timed.seconds, first], [*timed.rules_seconds, second])


def random_inputs(
    signature: Signature, sizes: Mapping[Symbol, int], indices: Collection[str]
) -> list[Array]:
    """Random inputs: positive numbers, which have roots and logarithms, and zeros as indices.

    Zero is a valid index everywhere.
    """
    found: list[Array] = []
    for k, (name, type_) in enumerate(
            zip(signature.input_names, signature.input_types, strict=True)):
        shape = [int(size.evaluate(sizes)) for size in type_.shape]
        source, count = np.random.default_rng(k), min(math.prod(shape), BLOCK)
        if name in indices:
            found.append(np.zeros(shape, type_.dtype))
        elif type_.is_float:
            block = source.uniform(0.25, 1.0, count).astype(type_.dtype)
            found.append(np.resize(block, shape))
        else:
            found.append(np.resize(source.integers(0, 2, count).astype(type_.dtype), shape))
    return found


def _has_nan(array: Array) -> bool:
    floats = is_float(element_of(array.dtype))
    return floats and bool(np.isnan(array.astype(np.float32)).any())
