"""Compiles mutants in processes of limited memory, and tells how each ended.

    python -m tests.fuzz.mutants 0 10000          the mutants of these numbers; prints the faults
    python -m tests.fuzz.mutants --show 4711      one of them, here, with its traceback

A worker process compiles one after another and reports each, so that a crash, a hang, or memory
that grows without bound can be told of the very mutant. Every eighth becomes native code that runs.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import processes

ROOT = Path(__file__).parents[2]
SECONDS = 20
"""Processor time that a mutant may take."""
PATIENCE = 240.0
"""Seconds after which a process that reports nothing has hung."""
MEMORY = 1 << 30
"""Bytes that a worker may get beyond those that it has at its start."""
NATIVE = 8
"""One mutant of so many is made native code, and runs."""
MAX_ELEMENTS = 1 << 20
"""Inputs of more elements are not made."""


class TooSlow(BaseException):
    """The mutant's time is over. Nothing in the compiler catches it."""


@dataclass(frozen=True)
class Outcome:
    """How a mutant ended: `refused`, `block`, `ran`; all else is a fault."""

    number: int
    kind: str
    detail: str

    @property
    def is_fault(self) -> bool:
        return self.kind not in ("refused", "block", "ran")


# ---------------------------------------------------------------------- in the worker
def attempt(number: int) -> Outcome:
    """Compile one mutant in this process."""
    from compiler.diagnostics import StrataError

    try:
        return Outcome(number, _compile(number), "")
    except StrataError as error:
        message = str(error)
        if message.startswith("out of memory"):
            return Outcome(number, "memory", message)
        return Outcome(number, "refused" if message else "silent", message)
    except TooSlow:
        return Outcome(number, "slow", f"more than {SECONDS} s\n{traceback.format_exc()}")
    except BaseException as error:
        return Outcome(number, "fault", "".join(traceback.format_exception(error)))


def _compile(number: int) -> str:
    from compiler.executable import compile_with
    from compiler.frontend import MemoryModel
    from compiler.io.signature import DEFAULT_SIZE
    from compiler.options import CompileOptions
    from compiler.pipeline.driver import Compiler
    from tests.fuzz.mutations import mutant

    model = MemoryModel(str(Path.cwd() / "mutant.onnx"), mutant(number))
    options = CompileOptions(target="cpu", cache="off", threads=1)
    if number % NATIVE:
        Compiler(model, options).lower()
        return "block"
    program = compile_with(model, options)
    counts = [t.count for t in program.signature.input_types]
    if sum(c.evaluate(dict.fromkeys(c.symbols, DEFAULT_SIZE)) for c in counts) > MAX_ELEMENTS:
        return "block"
    try:
        program.run(list(program.signature.random(0, {}).values()))
    except (ValueError, MemoryError):  # NumPy refuses at once what does not fit
        return "refused"
    return "ran"


def _too_slow(signum: int, frame: object) -> None:
    raise TooSlow


def _work(first: int, stop: int) -> None:
    """Try the mutants, each in its time, and write a line per start and end."""
    from compiler.pipeline import driver  # what every case needs counts as memory at the start
    from targets.cpu import target
    from tests.fuzz.seed_models import WEIGHTS_BYTES, WEIGHTS_FILE, seed_models

    del driver, target
    seed_models()
    Path(WEIGHTS_FILE).write_bytes(bytes(WEIGHTS_BYTES))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _too_slow)
    for number in range(first, stop):
        print("start", number, flush=True)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        outcome = attempt(number)
        signal.setitimer(signal.ITIMER_PROF, 0)
        detail = outcome.detail.encode("utf-8", "replace").hex()
        print("end", number, outcome.kind, detail, flush=True)


# ---------------------------------------------------------------------- outside
def run(first: int, stop: int) -> Iterator[Outcome]:
    """How each mutant ended; a worker that a mutant takes down is replaced."""
    while first < stop:
        with tempfile.TemporaryDirectory() as folder:
            for outcome in _one_worker(first, stop, Path(folder)):
                yield outcome
                first = outcome.number + 1


def _one_worker(first: int, stop: int, folder: Path) -> Iterator[Outcome]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "tests.fuzz.mutants", "--work", str(first), str(stop)]
    limit = PATIENCE * (stop - first)
    with processes.start(words, limit, cwd=folder, env=environment, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None and worker.stderr is not None
        current = first
        while True:
            if not select.select([worker.stdout], [], [], PATIENCE)[0]:
                worker.kill()
                yield Outcome(current, "hang", f"no answer in {PATIENCE} s")
                return
            line = worker.stdout.readline().split()
            if not line:
                break
            if line[0] == "end":
                detail = bytes.fromhex(line[3] if len(line) > 3 else "").decode("utf-8", "replace")
                yield Outcome(int(line[1]), line[2], detail)
                current = int(line[1]) + 1
        if current < stop:
            worker.wait()
            yield Outcome(current, "crash", f"status {worker.returncode}: {worker.stderr.read()}")


def main() -> None:
    words = sys.argv[1:]
    if words[0] == "--work":
        _work(int(words[1]), int(words[2]))
    elif words[0] == "--show":
        print(attempt(int(words[1])))
    else:
        counts: Counter[str] = Counter()
        for outcome in run(int(words[0]), int(words[1])):
            counts[outcome.kind] += 1
            if outcome.is_fault:
                print(f"--- {outcome.number}: {outcome.kind}\n{outcome.detail}", flush=True)
        print(dict(counts))


if __name__ == "__main__":
    main()
