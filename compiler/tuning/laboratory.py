"""Compiles the candidates of a task in several processes, and times them in one, against the rules.

While something is timed nothing is compiled, unless the target's timer does not mind: then several
tasks are worked on at a time, and their candidates are compiled while those of others are timed. A
candidate that computes something else, or that its process does not survive, is out, and is told in
`faults`.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from compiler.options import CompileOptions
from compiler.tuning.processes import TooLate, WorkerError, Workers
from compiler.tuning.search import Prepared
from compiler.tuning.tasks import Task, write_task
from compiler.tuning.worker import Compiled, Job, Timed
from dialects.schedule import Schedule, parse_schedule

PATIENCE = 60.0
"""Seconds for what must be done for any candidate: to load it, or to start with a task."""
LONGEST = 3.0
"""Seconds of measuring one candidate, at most."""


@dataclass
class Machinery:
    """What all tasks of a model share. `measurers`: one process, for which `turn` is held.
    `footprint`: the bytes of the model's constants. `lanes`: tasks that are worked on at a time."""

    folder: Path
    options: CompileOptions
    compilers: Workers
    measurers: Workers
    footprint: int
    lanes: int = 1
    turn: threading.RLock = field(default_factory=threading.RLock)
    faults: list[str] = field(default_factory=list[str])


class TaskLaboratory:
    """For one task: use it in a `with` statement, and `start` it. `seconds`: of the rules' own."""

    def __init__(self, shared: Machinery, task: Task):
        self.shared, self.task = shared, task
        self.bench = shared.measurers.all[0]
        self.folder = shared.folder / task.name
        self.number, self.begun = 0, -1
        self.seconds = 0.0
        self.jobs: dict[str, Job] = {}

    def __enter__(self) -> TaskLaboratory:
        write_task(self.task, self.folder)
        self.rules_job = self._job(None)
        return self

    def __exit__(self, *_: object) -> None:
        with self.shared.turn, contextlib.suppress(WorkerError):
            if self.begun == self.bench.starts and self.bench.is_running:
                self.bench.ask("end", (self.task.name,), PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> Prepared:
        """Compile and time what the rules choose. Raises WorkerError."""
        [done] = self.shared.compilers.ask_all("compile", [self.rules_job], PATIENCE, PATIENCE)
        if not isinstance(done, Compiled):
            raise done
        self._begin()
        return Prepared(parse_schedule(done.schedule), done.code)

    def renew(self) -> None:
        """See `search.Laboratory`. Where code and data lie decides the times of processors only."""
        if self.shared.lanes == 1:
            self._begin()

    def _begin(self) -> None:
        with self.shared.turn:
            arguments = (self.rules_job, self.task.indices, self.shared.footprint)
            self.seconds = self.bench.ask("start", arguments, PATIENCE)
            self.begun = self.bench.starts

    def _job(self, schedule: Schedule | None) -> Job:
        path = self.folder / f"{self.task.name}-{self.number}.mlir"
        self.number += 1
        path.write_text(self.task.text(schedule), encoding="utf-8")
        weights = self.folder / "weights.npz"
        return Job(str(path), self.task.name, replace(self.shared.options, weights=weights),
                   dict(self.task.sizes))

    # ------------------------------------------------------------------ candidates
    def prepare(self, schedules: Sequence[Schedule], seconds: float) -> list[Prepared]:
        """Compile candidates; those that were, and are worth timing."""
        jobs = [self._job(s) for s in schedules]
        results = self.shared.compilers.ask_all("compile", jobs, seconds, PATIENCE)
        found: list[Prepared] = []
        for schedule, job, result in zip(schedules, jobs, results, strict=True):
            if isinstance(result, Compiled):
                if not result.hopeless:
                    self.jobs[result.code] = job
                    found.append(Prepared(schedule, result.code))
            elif not isinstance(result, TooLate):
                self._fault(schedule, result)
        return found

    def measure(
        self, candidate: Prepared, best: float, turns: int, seconds: float
    ) -> float | None:
        """See `search.Laboratory`."""
        arguments = (self.jobs[candidate.code], best, turns, min(seconds, LONGEST))
        with self.shared.turn:
            if self.begun != self.bench.starts:
                self._begin()
            try:
                timed: Timed = self.bench.ask("measure", arguments, PATIENCE)
            except WorkerError as error:
                self._fault(candidate.schedule, error)
                self.bench.stop()  # a device may be of no use after an error
                self._begin()
                return None
            return timed.ratio

    def _fault(self, schedule: Schedule, error: WorkerError) -> None:
        self.shared.faults.append(f"@{self.task.name} with {schedule}: {error}")
