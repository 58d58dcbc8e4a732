"""Times candidates of a task in turns with the rules' choice, and compares their results.

Loading a candidate, one run of it, and comparing keep the processor busy, timing the device: so
these are methods of their own, and while one process times, others may do the former.
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
"""What a turn of a candidate takes at least, of calls in a row."""
MOST_IN_A_TURN = 50
SURELY_SLOWER, PROBABLY_SLOWER = 1.5, 1.12
"""The slowdown at which a candidate is abandoned after two turns, and after several."""
FEW_TURNS = 3
KEPT = 2
"""The number of candidates that stay loaded, among those close to the best when timed."""
BLOCK = 1_000_003
"""The period in elements of random inputs: a prime, which no dim divides."""


class Contestant:
    """A loaded module, which has run once. `timer` is made when it is first asked for."""

    def __init__(self, job: Job, inputs: Sequence[Array] | None, indices: Collection[str] = ()):
        """Without `inputs` they are made."""
        self.job, (self.executable, signature) = job, job.load()
        made = random_inputs(signature, job.sizes, indices) if inputs is None else inputs
        self.inputs, self.outputs = made, self.executable.run(made)
        self.checked, self._timer = False, None

    def timer(self, footprint: int) -> Timer:
        if self._timer is None:
            target = Compiler(self.job.path, self.job.options).target
            self._timer = target.timer(self.executable, self.inputs, footprint,
                                       self.job.options.target_options())
            self._timer(1)
        return self._timer


class Bench:
    """The kernel of a task with the rules' schedule, and what it computes: what others are
    measured against."""

    def __init__(self, job: Job, indices: Collection[str], footprint: int):
        """Raises Unfit where nothing can be compared with what the rules' choice computes."""
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
        """Load a candidate, unless it is, and run it."""
        if job.path not in self.loaded:
            self.loaded[job.path] = Contestant(job, self.rules.inputs)

    def measure(self, job: Job, best: float, turns: int, seconds: float) -> Timed:
        """Take turns with a candidate that is loaded. `best`: the ratio so far."""
        pair = self.loaded[job.path].timer(self.footprint), self.rules.timer(self.footprint)
        found = take_turns(pair, self.calls, best, turns, time.monotonic() + seconds)
        if found.ratio > PROBABLY_SLOWER * best:
            del self.loaded[job.path]
        while len(self.loaded) > KEPT:
            self.loaded.popitem(last=False)
        return found

    def check(self, job: Job) -> None:
        """Raises Unfit for a candidate that computes something else."""
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
    """A candidate and the rules in turns; fewer of them where it is hopeless or late."""
    found = Timed([], [])
    for turn in range(1, turns + 1):
        found = _one_more(found, pair, calls, swapped=turn % 2 == 0)
        if turn == 2 and min(found.seconds) > SURELY_SLOWER * best * min(found.rules_seconds):
            break
        if turn >= FEW_TURNS and (found.ratio > PROBABLY_SLOWER * best or clock() > until):
            break
    return found


def _one_more(timed: Timed, pair: tuple[Timer, Timer], calls: int, swapped: bool) -> Timed:
    """One turn more, begun by the rules if `swapped`."""
    second = pair[1](calls) if swapped else 0.0
    first = pair[0](calls)
    second = second if swapped else pair[1](calls)
    return Timed([*timed.seconds, first], [*timed.rules_seconds, second])


def random_inputs(
    signature: Signature, sizes: Mapping[Symbol, int], indices: Collection[str]
) -> list[Array]:
    """Positive numbers, of which roots and logarithms are numbers; as indices zeros, which are
    valid everywhere."""
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
