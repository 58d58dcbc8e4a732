"""Times candidates of a task in turns with the rules' choice, and compares what they compute.

Loading and comparing keep the processor busy, running and timing the device: so these are methods
of their own, and while one process holds the device, others may do the former.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from compiler.comparison import worst
from compiler.driver import Compiler
from compiler.signature import Signature
from compiler.tuning.jobs import Job, Timed, Unfit
from dialects.syntax import size_symbol
from dialects.types import element_of, is_float

if TYPE_CHECKING:
    from dialects.types import Array
    from targets.interface import Executable, Timer

TURN_SECONDS = 5e-4
"""What a turn of a candidate takes at least, of calls in a row."""
MOST_IN_A_TURN = 50
SURELY_SLOWER, PROBABLY_SLOWER = 1.5, 1.12
"""How many times as slow as the best a candidate is, after two turns and after some, to be left."""
FEW_TURNS = 3
KEPT = 2
"""So many candidates stay loaded, of those that were about the best when they were timed."""
BLOCK = 1_000_003
"""So many elements of an input are random, and then repeat: a prime, which no dim divides."""


class Contestant:
    """A loaded module. `first` runs it, and makes what times it."""

    def __init__(self, job: Job):
        self.job = job
        self.executable, self.signature = job.load()
        self.outputs: Sequence[Array] = ()
        self.timer: Timer | None = None
        self.checked = False

    def first(self, inputs: Sequence[Array], footprint: int) -> Timer:
        if self.timer is None:
            self.outputs = self.executable.run(inputs)
            self.timer = _timer(self.executable, self.job, inputs, footprint)
            self.timer(1)
        return self.timer


def _timer(
    executable: Executable, job: Job, inputs: Sequence[Array], footprint: int
) -> Timer:
    target = Compiler(job.path, job.options).target
    return target.timer(executable, inputs, footprint, job.options.target_options())


class Bench:
    """The kernel of a task with the rules' schedule, and what it computes: what others are
    measured against."""

    def __init__(self, job: Job, indices: Collection[str], footprint: int):
        """Load it, and make its inputs."""
        self.footprint, self.rules = footprint, Contestant(job)
        self.inputs = random_inputs(self.rules.signature, job.sizes, indices)
        self.loaded: OrderedDict[str, Contestant] = OrderedDict()
        """By the paths of jobs, the last one last."""

    def time_rules(self) -> float:
        """Run what the rules chose; the seconds of a call."""
        timer = self.rules.first(self.inputs, self.footprint)
        first = max(timer(1), 1e-9)
        self.calls = int(np.clip(math.ceil(TURN_SECONDS / first), 1, MOST_IN_A_TURN))
        return statistics.median(timer(self.calls) for _ in range(FEW_TURNS))

    def check_rules(self) -> None:
        """Raises Unfit where nothing can be compared with what the rules' choice computes."""
        self.outputs = [np.array(a) for a in self.rules.outputs]
        self.rules.outputs = ()
        if any(_has_nan(a) for a in self.outputs):
            raise Unfit("it computes NaN on random inputs, so that nothing can be compared")

    def load(self, job: Job) -> None:
        """Load a candidate, unless it is."""
        if job.path not in self.loaded:
            self.loaded[job.path] = Contestant(job)

    def measure(self, job: Job, best: float, turns: int, seconds: float) -> Timed:
        """Take turns with a candidate that is loaded. `best`: the ratio so far."""
        timer = self.loaded[job.path].first(self.inputs, self.footprint)
        rules = self.rules.first(self.inputs, self.footprint)
        found = take_turns((timer, rules), self.calls, best, turns, time.monotonic() + seconds)
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
        outputs, candidate.outputs, candidate.checked = candidate.outputs, (), True
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
    signature: Signature, sizes: Mapping[str, int], indices: Collection[str]
) -> list[Array]:
    """Positive numbers, of which roots and logarithms are numbers; as indices zeros, which are
    valid everywhere."""
    symbols = {size_symbol(name): value for name, value in sizes.items()}
    found: list[Array] = []
    for k, (name, type_) in enumerate(
            zip(signature.input_names, signature.input_types, strict=True)):
        shape = [int(size.evaluate(symbols)) for size in type_.shape]
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
