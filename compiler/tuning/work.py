"""The work for each kernel: its order and concurrency."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from compiler.tuning.database import Winner
from compiler.tuning.laboratory import Machinery, TaskLaboratory
from compiler.tuning.processes import WorkerError
from compiler.tuning.report import Row
from compiler.tuning.search import Mode, Prepared
from compiler.tuning.tasks import Task
from dialects.strata.schedule import parse_schedule
from passes.scripts.printing import script_of


@dataclass
class Work:
    """A task with its row of the report.

    `launches`: the launches in each model. `stays`: whether it stays loaded until it is searched.
    `share`: its share of the remaining time.
    """

    task: Task
    row: Row
    laboratory: TaskLaboratory
    launches: dict[int, int] = field(default_factory=dict[int, int])
    stays: bool = False
    share: float = 0.0

    @staticmethod
    def of(task: Task, shared: Machinery) -> Work:
        return Work(task, Row(task.name, 0), TaskLaboratory(shared, task))

    def start(self) -> Prepared:
        """Time the rules' choice, unless that is done. Raises WorkerError."""
        rules = self.laboratory.start()
        self.row.seconds = self.laboratory.seconds
        return rules

    @contextmanager
    def noting_failure(self) -> Generator[None]:
        """Record in the row why the task could not be tuned."""
        try:
            yield
        except WorkerError as error:
            self.row.note = str(error)

    def recall(self, winner: Winner) -> None:
        """Restore a result that was found before."""
        schedule = winner.choice.schedule
        own = None if schedule is None else self.task.canonical.own(schedule)
        self.row.seconds, self.row.note = winner.seconds, "from before"
        if own is not None:
            self.row.gain, self.row.schedule = winner.choice.gain, str(own)


def script_of_work(work: Work) -> str:
    """The winner as a script for the kernel, and for those that are like it; empty without one."""
    if not work.row.schedule:
        return ""
    task = work.task
    neutral = task.canonical.neutral(parse_schedule(work.row.schedule))
    found = {c.kernel.sym_name.data: c for c in (task.canonical, *task.alike)}
    scripts = [(c.kernel, c.own(neutral)) for c in found.values()]
    return "".join(script_of(kernel, own, early=True) for kernel, own in scripts if own)


def works_of(tasks: Sequence[Sequence[Task]], shared: Machinery) -> list[Work]:
    """The work for the tasks of several models; a task that they share is tuned once."""
    works: dict[str, Work] = {}
    for model, found in enumerate(tasks):
        for task in found:
            work = works.setdefault(task.key, Work.of(task, shared))
            work.launches[model] = task.launches
            work.row.launches += task.launches
    return list(works.values())


def worthwhile(works: Sequence[Work], mode: Mode) -> list[Work]:
    """The kernels still to be tuned that take enough of a model's time, the longest first."""
    totals: defaultdict[int, float] = defaultdict(float)
    for work in works:
        for model, launches in work.launches.items():
            totals[model] += launches * work.row.seconds
    for work in works:
        parts = [n * work.row.seconds / (totals[m] or 1.0) for m, n in work.launches.items()]
        work.share = sum(parts)
        if not work.row.note and max(parts) < mode.least:
            work.row.note = "it takes little time"
    return sorted((w for w in works if not w.row.note), key=lambda w: -w.share)


def in_lanes(lanes: int, work: Callable[[Work], None], works: Sequence[Work]) -> None:
    """Process all works in order, `lanes` at a time."""
    pool = ThreadPoolExecutor(lanes)
    try:
        list(pool.map(work, works))
    finally:
        pool.shutdown(cancel_futures=True)
