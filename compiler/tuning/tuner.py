"""Tunes a model: finds its kernels, gives each its share of the time, and keeps the winners.

What takes most of a model's time comes first. Each winner is written when it is found, so that an
interrupted run has lost nothing, and one that is started again goes on with what is left.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.collection import rare_collections
from compiler.diagnostics import Problem, StrataError, some_of
from compiler.driver import Compiler, State
from compiler.options import CompileOptions
from compiler.signature import DEFAULT_SIZE, signature_of
from compiler.source import weight_labels
from compiler.tuning.database import Database, Unreadable, Winner, unreadable
from compiler.tuning.files import OFF, default_file
from compiler.tuning.laboratory import Machinery, TaskLaboratory
from compiler.tuning.processes import WorkerError, Workers
from compiler.tuning.report import Report, Row
from compiler.tuning.search import MODES, Mode, Search, Trial
from compiler.tuning.tasks import Task, tasks_of
from compiler.tuning.worker import plain
from dialects.syntax import size_symbol
from passes.loop.apply_tuned import LoopApplyTuned
from passes.loop.choices import Choice

if TYPE_CHECKING:
    from compiler.frontend import MemoryModel
    from compiler.instrument import Instrument

FIRST_LOOK = 0.4
"""The share of the time for timing each kernel with the rules' schedule."""
LARGEST = 1 << 27
"""Elements of a task's tensors, at most: it must fit memory several times."""


@dataclass(frozen=True)
class TuneOptions:
    """`seconds`: about how long, all in all. `jobs`: processes that compile. `kernels`: patterns of
    names, empty for all. `output`: the file of winners, None for the one in the cache. `sizes`: at
    which to measure what the model leaves open. `again`: also what was tuned before."""

    seconds: float = 120.0
    jobs: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    kernels: tuple[str, ...] = ()
    output: Path | None = None
    mode: str = "default"
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    again: bool = False

    @staticmethod
    def of(jobs: int | None, **others: Any) -> TuneOptions:
        """With the default number of jobs where none is named."""
        return TuneOptions(**others) if jobs is None else TuneOptions(jobs=jobs, **others)


class Tuner:
    """One run. `clock`: seconds that pass."""

    def __init__(
        self, model: str | MemoryModel, options: CompileOptions, wanted: TuneOptions,
        instruments: Sequence[Instrument] = (), clock: Callable[[], float] = time.monotonic,
    ):
        self.wanted, self.clock = wanted, clock
        if wanted.mode not in MODES:
            raise StrataError(f"no mode '{wanted.mode}'; there are: {', '.join(MODES)}")
        self.options = replace(options, tuned=OFF, specialize=None)
        self.compilation = Compiler(model, self.options, instruments)
        self.target = self.compilation.target
        self.database = self._database(options)
        self.notes: list[str] = []

    def _database(self, options: CompileOptions) -> Database:
        """Raises StrataError for a target that cannot be tuned, and where there is no place."""
        key = self.target.tuning_key(self.compilation.target_options)
        if key is None:
            raise StrataError(f"target {self.target.name} cannot be tuned: it offers no schedules "
                              "to choose from besides those of its rules")
        path = self.wanted.output or default_file(options.cache)
        if path is None:
            raise StrataError("there is no place for what tuning finds: the cache is off",
                              [Problem("no file is named", hint="name one with -o FILE")])
        return Database(os.path.abspath(path), key)

    # ------------------------------------------------------------------ all of it
    @rare_collections()
    def run(self) -> Report:
        """Tune. Raises StrataError."""
        started = self.clock()
        mode, known = MODES[self.wanted.mode], self._known()
        state = self._kernels_of_model()
        tasks = self._tasks(state)
        with tempfile.TemporaryDirectory(prefix="strata-tune-") as folder:
            shared = self._machinery(state, Path(folder))
            with shared.compilers, shared.measurers:
                rows = {t.key: Row(t.name, t.launches) for t in tasks}
                self._look(shared, tasks, rows, known, started)
                self._search_all(shared, tasks, rows, mode, started + self.wanted.seconds)
        ordered = sorted(rows.values(), key=lambda row: -row.total)
        return Report(self.database.path, ordered, shared.faults, self.notes,
                      self.clock() - started)

    def _known(self) -> Mapping[str, Winner]:
        """What was found before and counts. Raises StrataError for a file that is no database."""
        try:
            self.database.make()
            found = self.database.read()
        except Unreadable as error:
            raise unreadable(self.database.path, error) from None
        weaker = {"default": (), "max-autotune": ("default",)}[self.wanted.mode]
        return {} if self.wanted.again else {
            k: w for k, w in found.items() if w.mode not in weaker}

    def _machinery(self, state: State, folder: Path) -> Machinery:
        arrays = state.context.weights.arrays
        keys = {key for key, _ in weight_labels(state.module)}
        footprint = sum(arrays[key].nbytes for key in keys if key in arrays)
        options = plain(self.options, str(folder / "code"), None)
        lanes = max(1, self.wanted.jobs // 2) if self.target.measures_apart() else 1
        return Machinery(folder, options, Workers(self.wanted.jobs, str(folder)),
                         Workers(1, str(folder)), footprint, lanes)

    # ------------------------------------------------------------------ kernels
    def _kernels_of_model(self) -> State:
        """The module as tasks are cut from it."""
        state = self.compilation.read()
        planned = self.compilation.plan(state, None)
        labels = [step.label for step in planned]
        if LoopApplyTuned.name not in labels:
            raise StrataError("kernels are tuned at loop level before they are packed, and the "
                              "passes that run do not come by there")
        self.compilation.run(state, planned[:labels.index(LoopApplyTuned.name)])
        return state

    def _tasks(self, state: State) -> list[Task]:
        """The kernels that are wanted. Raises StrataError where there are none."""
        signature = signature_of(state.module)
        sizes = {size_symbol(name): value for name, value in self.wanted.sizes.items()}
        open_sizes = signature.unsized(sizes)
        if open_sizes:
            self.notes.append(f"sizes set to {DEFAULT_SIZE} for measuring: "
                              f"{', '.join(open_sizes)}; --open and --dim "
                              f"{open_sizes[0]}=N set another")
        sizes = {s: sizes.get(s, DEFAULT_SIZE) for s in signature.symbols()}
        tasks, unknown = tasks_of(state.module, state.context.weights, sizes)
        if unknown:
            self.notes.append(f"{len(unknown)} kernels have sizes that only a run knows, and are "
                              f"left to the rules: {some_of(unknown)}")
        wanted = [t for t in tasks if self._is_wanted(t.name)]
        if tasks and not wanted:
            raise StrataError("--kernels names no kernel of the model", [Problem(
                f"it has {some_of([t.name for t in tasks], 20)}")])
        return wanted

    def _is_wanted(self, name: str) -> bool:
        patterns = self.wanted.kernels
        return not patterns or any(fnmatchcase(name, p) for p in patterns)

    # ------------------------------------------------------------------ times
    def _look(
        self, shared: Machinery, tasks: Sequence[Task], rows: Mapping[str, Row],
        known: Mapping[str, Winner], started: float,
    ) -> None:
        """Time each kernel as the rules have it; what was tuned before has its figures."""
        until = started + FIRST_LOOK * self.wanted.seconds
        fresh: list[Task] = []
        for task in sorted(tasks, key=lambda t: -t.elements):
            row = rows[task.key]
            if task.key in known:
                _recall(row, task, known[task.key])
            elif task.elements > LARGEST:
                row.note = "its tensors are too large"
            else:
                fresh.append(task)
        in_lanes(shared.lanes, lambda t: self._look_at(shared, t, rows[t.key], until), fresh)

    def _look_at(self, shared: Machinery, task: Task, row: Row, until: float) -> None:
        if self.clock() > until:
            row.note = "there was no time"
            return
        self.compilation.tell(f"timing {task.name}")
        try:
            with TaskLaboratory(shared, task) as laboratory:
                laboratory.start()
                row.seconds = laboratory.seconds
        except WorkerError as error:
            row.note = str(error)

    def _search_all(
        self, shared: Machinery, tasks: Sequence[Task], rows: Mapping[str, Row], mode: Mode,
        until: float,
    ) -> None:
        """Give each kernel that is worth it its share of the time that is left in all lanes."""
        left = self._worthwhile(tasks, rows, mode)
        choosing = threading.Lock()

        def next_one(_: Task) -> None:
            with choosing:
                weights = [rows[t.key].total for t in left]
                task, seconds = left.pop(0), until - self.clock()
            share = min(1.0, shared.lanes * weights[0] / (sum(weights) or 1.0))
            if seconds <= 0:
                rows[task.key].note = "there was no time"
            else:
                self._search(shared, task, rows[task.key], mode, seconds * share)

        in_lanes(shared.lanes, next_one, list(left))

    def _worthwhile(
        self, tasks: Sequence[Task], rows: Mapping[str, Row], mode: Mode
    ) -> list[Task]:
        """What is still to be tuned, and takes its part of the model's time; the longest first."""
        total = sum(row.total for row in rows.values())
        fresh = [t for t in tasks if not rows[t.key].note]
        for task in fresh:
            if rows[task.key].total < mode.least * total:
                rows[task.key].note = "it takes little time"
        return sorted((t for t in fresh if not rows[t.key].note),
                      key=lambda t: -rows[t.key].total)

    def _search(
        self, shared: Machinery, task: Task, row: Row, mode: Mode, seconds: float
    ) -> None:
        self.compilation.tell(f"tuning {task.name}")
        options = self.compilation.target_options
        try:
            with TaskLaboratory(shared, task) as laboratory:
                rules = laboratory.start()
                row.seconds = laboratory.seconds
                search = Search(lambda s: self.target.candidates(task.kernel, s, options),
                                laboratory, rules, mode, self.clock() + seconds, self.clock)
                self._keep(task, row, search, search.run())
        except WorkerError as error:
            row.note = str(error)

    def _keep(self, task: Task, row: Row, search: Search, found: Trial | None) -> None:
        """Write what was found; that there is nothing better, only after a whole search."""
        row.tried = len(search.trials)
        choice = Choice(None)
        if found is not None:
            row.gain, row.schedule = 1 / found.ratio, str(found.schedule)
            choice = Choice(task.canonical.neutral(found.schedule), row.gain)
        elif search.left() <= 0:
            row.note = f"{row.tried} others tried, then time was up"
            return
        winner = Winner(task.key, choice, row.seconds, self.wanted.mode, task.name)
        try:
            self.database.write(winner)
        except Unreadable as error:
            raise unreadable(self.database.path, error) from None


def in_lanes(lanes: int, work: Callable[[Task], None], tasks: Sequence[Task]) -> None:
    """Do the work of all tasks, of so many at a time, begun in their order."""
    pool = ThreadPoolExecutor(lanes)
    try:
        list(pool.map(work, tasks))
    finally:
        pool.shutdown(cancel_futures=True)


def _recall(row: Row, task: Task, winner: Winner) -> None:
    """What was found before."""
    own = None if winner.choice.schedule is None else task.canonical.own(winner.choice.schedule)
    row.seconds, row.note = winner.seconds, "from before"
    if own is not None:
        row.gain, row.schedule = winner.choice.gain, str(own)
