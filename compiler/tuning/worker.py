"""The tuner's worker processes: they compile candidates, or time them against the rules' choice.

A process reads pickled pairs (function name, arguments) from standard input, and writes for each
the pair (success, result or reason). All other output goes to standard error.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from compiler.diagnostics import kind_and_text
from compiler.pipeline.driver import Compiler
from compiler.tuning.bench import Bench
from compiler.tuning.jobs import Compiled, Job, Timed, Unfit
from dialects.block import KernelOp

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from targets.options import TargetOptions
    from targets.parts import Building


# ---------------------------------------------------------------------- compiling
class Builders:
    """What compiles candidates. Code stays in the cache, where `start` and `measure` find it."""

    def __init__(self) -> None:
        self.known: dict[TargetOptions, Building] = {}

    def compile(self, job: Job) -> Compiled:
        """Compile the job's module for its sizes."""
        compilation = Compiler(job.path, job.options)
        state = compilation.lower()
        code = compilation.emit(state, compilation.target.levels[0])
        building = self.of(compilation)
        with compilation.guard("load", state=state):
            hopeless = building.build(state.module, state.context.weights, dict(job.sizes))
        kernel = _kernel(state, job.name)
        schedule = "" if kernel.schedule is None else kernel.schedule.text
        return Compiled(hashlib.sha256(code.encode()).hexdigest(), schedule, "; ".join(hopeless))

    def of(self, compilation: Compiler) -> Building:
        """That of the options: it may hold processes."""
        parts = compilation.parts
        return self.known.setdefault(parts.options, parts.building)


def _kernel(state: State, name: str) -> KernelOp:
    return next(op for op in state.module.body.block.ops
                if isinstance(op, KernelOp) and op.sym_name.data == name)


# ---------------------------------------------------------------------- the process
class Server:
    """The functions that can be requested."""

    def __init__(self) -> None:
        self.builders = Builders()
        self.benches: dict[str, Bench] = {}
        """By tasks."""

    def compile(self, job: Job) -> Compiled:
        return self.builders.compile(job)

    def start(self, job: Job, indices: Collection[str], footprint: int) -> None:
        """Load and run the rules' choice of a task."""
        self.end(job.task)  # its memory is free before more is asked for
        self.benches[job.task] = Bench(job, indices, footprint)

    def time_rules(self, task: str) -> float:
        """The seconds of a call with it."""
        return self.benches[task].time_rules()

    def load(self, job: Job) -> None:
        """Load and run a candidate."""
        self.benches[job.task].load(job)

    def measure(self, job: Job, best: float, turns: int, seconds: float) -> Timed:
        return self.benches[job.task].measure(job, best, turns, seconds)

    def check(self, job: Job) -> None:
        self.benches[job.task].check(job)

    def end(self, task: str) -> None:
        """End a task."""
        self.benches.pop(task, None)

    def answer(self, name: str, arguments: Sequence[Any]) -> tuple[bool, Any]:
        try:
            return True, getattr(self, name)(*arguments)
        except Exception as error:  # the candidate is rejected, the rest continues
            return False, _reason(error)


def _reason(error: Exception) -> str:
    """The reason, in one line."""
    if isinstance(error, Unfit):
        return str(error)
    return " ".join(kind_and_text(error).splitlines()[:2])


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
