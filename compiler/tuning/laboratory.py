"""Compiles the candidates of a task in several processes, and times them against the rules.

While something is timed, nothing is compiled, unless compilation does not disturb the target's
timer. In that case several tasks are processed concurrently: candidates of one are compiled while
those of another are timed, and one process loads or compares while another holds the device
(`turn`). A candidate with wrong results, or one that crashes its process, is rejected and recorded
in `faults`.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import Any

from compiler.options import CompileOptions
from compiler.tuning.jobs import Compiled, Job, Timed
from compiler.tuning.processes import TooLate, Worker, WorkerError, Workers
from compiler.tuning.search import Prepared
from compiler.tuning.tasks import Task, write_task
from dialects.strata.schedule import Schedule, parse_schedule

PATIENCE = 60.0
"""The time limit in seconds for loading a candidate or starting a task."""
SLACK = 10.0
"""Seconds that compiling may take after the end of a task's time."""
LONGEST = 3.0
"""The maximum number of seconds for measuring one candidate."""


@dataclass
class Machinery:
    """The processes that all tasks of a model share.

    `measurers`: processes of which one may use the device at a time, while `turn` is held for it.
    `lanes`: the number of tasks that are processed concurrently.
    """

    folder: Path
    options: CompileOptions
    compilers: Workers
    measurers: Workers
    lanes: int = 1
    turn: threading.Lock = field(default_factory=threading.Lock)
    faults: list[str] = field(default_factory=list[str])
    _used: Iterator[Worker] = field(init=False)

    def __post_init__(self) -> None:
        self._used = cycle(self.measurers.all)

    def measurer(self) -> Worker:
        """The process for the next task."""
        return next(self._used)


class TaskLaboratory:
    """The laboratory of one task: `start` it, and `close` it at the end.

    `seconds`: the time of the rules' choice. Lanes may share the measuring process, so requests
    hold its lock.
    """

    def __init__(self, shared: Machinery, task: Task):
        self.shared, self.task, self.bench = shared, task, shared.measurer()
        self.folder = shared.folder / task.key
        self.number, self.begun = 0, -1
        self.seconds = 0.0
        self.rules: Prepared | None = None
        self.jobs: dict[str, Job] = {}

    def start(self) -> Prepared:
        """Compile and time the rules' choice, unless that is done. Raises WorkerError."""
        if self.rules is None:
            write_task(self.task, self.folder)
            self.rules_job = self._job(None)
            ask = self.shared.compilers.ask_all
            [done] = ask("compile", [self.rules_job], PATIENCE, PATIENCE)
            if not isinstance(done, Compiled):
                raise done
            with self.bench.lock:
                self._begin()
            self.rules = Prepared(parse_schedule(done.schedule), done.code)
        return self.rules

    def close(self) -> None:
        """Release memory and files. It can be started again."""
        self.rules = None
        with self.bench.lock, contextlib.suppress(WorkerError):
            if self._is_there():
                self._ask("end", self.task.key)
        shutil.rmtree(self.folder, ignore_errors=True)

    def renew(self) -> None:
        """See `search.Laboratory`. Placement in memory only affects timings on processors."""
        if self.shared.lanes == 1:
            with self.bench.lock:
                self._begin()

    def _begin(self) -> None:
        self._ask("start", self.rules_job, self.task.indices, self.task.footprint)
        with self.shared.turn:
            self.seconds = self._ask("time_rules", self.task.key)
        self.begun = self.bench.starts

    def _is_there(self) -> bool:
        """Whether the process is still the one that started the task."""
        return self.bench.is_running and self.begun == self.bench.starts

    def _ask(self, name: str, *arguments: Any) -> Any:
        return self.bench.ask(name, arguments, PATIENCE)

    def _job(self, schedule: Schedule | None) -> Job:
        path = self.folder / f"{self.task.name}-{self.number}.mlir"
        self.number += 1
        path.write_text(self.task.text(schedule), encoding="utf-8")
        options = replace(self.shared.options, weights=self.folder / "weights.npz")
        return Job(self.task.key, str(path), self.task.name, options, dict(self.task.sizes))

    # ------------------------------------------------------------------ candidates
    def prepare(self, schedules: Sequence[Schedule], seconds: float) -> list[Prepared]:
        """Compile candidates, and return those that succeeded and are worth timing."""
        jobs = [self._job(s) for s in schedules]
        patience = min(PATIENCE, max(0.0, seconds) + SLACK)
        results = self.shared.compilers.ask_all("compile", jobs, seconds, patience)
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
        with self.bench.lock:
            if not self._is_there():
                self._begin()
            try:
                return self._ratio(self.jobs[candidate.code], best, turns, min(seconds, LONGEST))
            except WorkerError as error:
                self._fault(candidate.schedule, error)
                return None

    def _ratio(self, job: Job, best: float, turns: int, seconds: float) -> float:
        """Raises WorkerError."""
        self._ask("load", job)
        try:
            with self.shared.turn:
                timed: Timed = self._ask("measure", job, best, turns, seconds)
        except WorkerError:
            self.bench.stop()  # a device may be unusable after an error
            raise
        if timed.ratio < best:  # slower ones are rejected anyway, and comparing takes long
            self._ask("check", job)
        return timed.ratio

    def _fault(self, schedule: Schedule, error: WorkerError) -> None:
        self.shared.faults.append(f"@{self.task.name} with {schedule}: {error}")
