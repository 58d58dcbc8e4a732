"""What is to be done for a kernel, in which order, and several at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from compiler.tuning.database import Winner
from compiler.tuning.laboratory import Machinery, TaskLaboratory
from compiler.tuning.processes import WorkerError
from compiler.tuning.report import Row
from compiler.tuning.search import Mode, Prepared
from compiler.tuning.tasks import Task


@dataclass
class Work:
    """A task with its row of the report. `stays`: whether it stays loaded until it is searched."""

    task: Task
    row: Row
    laboratory: TaskLaboratory
    stays: bool = False

    @staticmethod
    def of(task: Task, shared: Machinery) -> Work:
        return Work(task, Row(task.name, task.launches), TaskLaboratory(shared, task))

    def start(self) -> Prepared:
        """Time what the rules choose, unless that is done. Raises WorkerError."""
        rules = self.laboratory.start()
        self.row.seconds = self.laboratory.seconds
        return rules

    @contextmanager
    def told(self) -> Generator[None]:
        """What keeps the task from being tuned is told in its row."""
        try:
            yield
        except WorkerError as error:
            self.row.note = str(error)

    def recall(self, winner: Winner) -> None:
        """What was found before."""
        schedule = winner.choice.schedule
        own = None if schedule is None else self.task.canonical.own(schedule)
        self.row.seconds, self.row.note = winner.seconds, "from before"
        if own is not None:
            self.row.gain, self.row.schedule = winner.choice.gain, str(own)


def worthwhile(works: Sequence[Work], mode: Mode) -> list[Work]:
    """What is still to be tuned, and takes its part of the model's time; the longest first."""
    total = sum(work.row.total for work in works)
    fresh = [work for work in works if not work.row.note]
    for work in fresh:
        if work.row.total < mode.least * total:
            work.row.note = "it takes little time"
    return sorted((w for w in fresh if not w.row.note), key=lambda w: -w.row.total)


def in_lanes(lanes: int, work: Callable[[Work], None], works: Sequence[Work]) -> None:
    """Do all, so many at a time, begun in their order."""
    pool = ThreadPoolExecutor(lanes)
    try:
        list(pool.map(work, works))
    finally:
        pool.shutdown(cancel_futures=True)
