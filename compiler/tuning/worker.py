"""What the tuner's other processes do: compile a candidate, or time candidates against the rules.

A process reads pickled pairs (name of a function, arguments) from standard input, and writes for
each the pair (whether it was done, the result or the reason). Whatever else prints goes to standard
error.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import statistics
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.comparison import worst
from compiler.driver import Compiler
from compiler.options import CompileOptions
from compiler.signature import Signature, signature_of
from dialects.block import KernelOp
from dialects.syntax import size_symbol
from dialects.types import element_of, is_float

if TYPE_CHECKING:
    from compiler.driver import State
    from dialects.types import Array
    from targets.base import Build, TargetOptions
    from targets.interface import Executable, Timer

TURN_SECONDS = 5e-4
"""What a turn of a candidate takes at least, of calls in a row."""
MOST_IN_A_TURN = 50
SURELY_SLOWER, PROBABLY_SLOWER = 1.5, 1.12
"""How many times as slow as the best a candidate is, after two turns and after some, to be left."""
FEW_TURNS = 3


@dataclass(frozen=True)
class Job:
    """A task's module with a schedule, or with the rules' own, in a file. `name`: of the kernel.
    `sizes`: those that it is measured at."""

    path: str
    name: str
    options: CompileOptions
    sizes: Mapping[str, int]


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


# ---------------------------------------------------------------------- compiling
class Builders:
    """What compiles candidates. Code stays in the cache, where `start` and `measure` find it."""

    def __init__(self) -> None:
        self.known: dict[TargetOptions, Build] = {}

    def compile(self, job: Job) -> Compiled:
        """Compile the job's module for its sizes."""
        compilation = Compiler(job.path, job.options)
        state = compilation.lower()
        code = compilation.emit(state, compilation.target.levels[0])
        build = self.of(compilation)
        with compilation.guard("load", state=state):
            hopeless = build(state.module, state.context.weights, dict(job.sizes))
        kernel = _kernel(state, job.name)
        schedule = "" if kernel.schedule is None else kernel.schedule.text
        return Compiled(hashlib.sha256(code.encode()).hexdigest(), schedule, "; ".join(hopeless))

    def of(self, compilation: Compiler) -> Build:
        """That of the options: it may hold processes."""
        options = compilation.target_options
        if options not in self.known:
            self.known[options] = compilation.target.builder(options)
        return self.known[options]


def _kernel(state: State, name: str) -> KernelOp:
    return next(op for op in state.module.body.block.ops
                if isinstance(op, KernelOp) and op.sym_name.data == name)


def _loaded(job: Job) -> tuple[Executable, Signature]:
    compilation = Compiler(job.path, job.options)
    state = compilation.lower()
    return compilation.load(state), signature_of(state.module)


# ---------------------------------------------------------------------- measuring
class Bench:
    """The kernel of a task with the rules' schedule, and what it computes: what others are
    measured against."""

    def __init__(self, job: Job, indices: Collection[str], footprint: int):
        self.footprint = footprint
        self.target = Compiler(job.path, job.options).target
        executable, signature = _loaded(job)
        self.inputs = random_inputs(signature, job.sizes, indices)
        self.outputs = [np.array(a) for a in executable.run(self.inputs)]
        if any(_has_nan(a) for a in self.outputs):
            raise Unfit("it computes NaN on random inputs, so that nothing can be compared")
        self.timer = self._timer(executable, job.options)
        first = max(self.timer(1), 1e-9)
        self.calls = int(np.clip(math.ceil(TURN_SECONDS / first), 1, MOST_IN_A_TURN))
        self.seconds = statistics.median(self.timer(self.calls) for _ in range(FEW_TURNS))

    def _timer(self, executable: Executable, options: CompileOptions) -> Timer:
        return self.target.timer(executable, self.inputs, self.footprint, options.target_options())

    def measure(self, job: Job, best: float, turns: int, seconds: float) -> Timed:
        """Take turns with a candidate. `best`: the ratio so far. Raises Unfit for wrong results."""
        executable, _ = _loaded(job)
        outputs = executable.run(self.inputs)
        pair = self._timer(executable, job.options), self.timer
        pair[0](1)
        found = take_turns(pair, self.calls, best, turns, time.monotonic() + seconds)
        if found.ratio < best:  # what is slower is out anyway, and comparing takes long
            self._compare(outputs)
        return found

    def _compare(self, outputs: Sequence[Array]) -> None:
        if any(_has_nan(a) for a in outputs) or worst(outputs, self.outputs)[1] is not None:
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
        source = np.random.default_rng(k)
        if name in indices:
            found.append(np.zeros(shape, type_.dtype))
        elif type_.is_float:
            found.append(source.uniform(0.25, 1.0, shape).astype(type_.dtype))
        else:
            found.append(source.integers(0, 2, shape).astype(type_.dtype))
    return found


def _has_nan(array: Array) -> bool:
    floats = is_float(element_of(array.dtype))
    return floats and bool(np.isnan(array.astype(np.float32)).any())


# ---------------------------------------------------------------------- the process
class Server:
    """The functions that can be asked for."""

    def __init__(self) -> None:
        self.builders = Builders()
        self.benches: dict[str, Bench] = {}
        """By the names of kernels."""

    def compile(self, job: Job) -> Compiled:
        return self.builders.compile(job)

    def start(self, job: Job, indices: Collection[str], footprint: int) -> float:
        """Begin with a task; the seconds of a call with the rules' schedule."""
        self.end(job.name)  # its memory is free before more is asked for
        self.benches[job.name] = Bench(job, indices, footprint)
        return self.benches[job.name].seconds

    def measure(self, job: Job, best: float, turns: int, seconds: float) -> Timed:
        return self.benches[job.name].measure(job, best, turns, seconds)

    def end(self, name: str) -> None:
        """A task is done."""
        self.benches.pop(name, None)

    def answer(self, name: str, arguments: Sequence[Any]) -> tuple[bool, Any]:
        try:
            return True, getattr(self, name)(*arguments)
        except Exception as error:  # whatever it is, this candidate is out, and the rest goes on
            return False, _reason(error)


def _reason(error: Exception) -> str:
    """What to tell, in a line."""
    if isinstance(error, Unfit):
        return str(error)
    lines = str(error).splitlines()
    return " ".join([f"{type(error).__name__}:", *lines[:2]])


def main() -> None:
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        server = Server()
        while True:
            try:
                name, arguments = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            pickle.dump(server.answer(name, arguments), answers)
            answers.flush()


def plain(options: CompileOptions, cache: str, weights: Any) -> CompileOptions:
    """The options of a model, for the modules of its tasks."""
    return replace(options, shapes={}, dims={}, constants={}, start=None, passes="default",
                   schedule=None, dump_dir=None, specialize=None, threads=1, cache=cache,
                   tuned="off", weights=weights)
