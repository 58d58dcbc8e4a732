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
from compiler.tuning.jobs import plain
from compiler.tuning.laboratory import Machinery
from compiler.tuning.processes import Workers
from compiler.tuning.report import Report, Row
from compiler.tuning.search import MODES, Mode, Search, Trial
from compiler.tuning.tasks import Task, tasks_of
from compiler.tuning.whole import whole_model
from compiler.tuning.work import Work, in_lanes, worthwhile
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
OPEN = 1 << 29
"""Elements of all tasks that stay loaded between the first look and the search."""
MEASURERS = 4
"""Processes that load and compare while another times, where that disturbs nobody."""
COMPILATIONS = 2
"""So often the model is compiled in the end, with code that is there by then, to time it."""


@dataclass(frozen=True)
class TuneOptions:
    """`seconds`: about how long, all in all. `jobs`: processes that compile. `kernels`: patterns of
    names, empty for all. `output`: the file of winners, None for the one in the cache. `sizes`: at
    which to measure what the model leaves open. `again`: also what was tuned before. `whole`:
    whether the model itself is timed in the end, too."""

    seconds: float = 120.0
    jobs: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    kernels: tuple[str, ...] = ()
    output: Path | None = None
    mode: str = "default"
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    again: bool = False
    whole: bool = False

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
        self.model, self.wanted, self.clock = model, wanted, clock
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
        ending = COMPILATIONS * (self.clock() - started) if self.wanted.whole else 0.0
        until = started + max(self.wanted.seconds - ending, self.wanted.seconds / 2)
        tasks = self._tasks(state)
        with tempfile.TemporaryDirectory(prefix="strata-tune-") as folder:
            shared = self._machinery(state, Path(folder))
            works = [Work.of(task, shared) for task in tasks]
            with shared.compilers, shared.measurers:
                self._look(works, known, started)
                self._search_all(works, mode, until)
            whole = self._whole(shared.options.cache) if self.wanted.whole else ""
        rows = sorted((work.row for work in works), key=lambda row: -row.total)
        return Report(self.database.path, rows, shared.faults, self.notes,
                      self.clock() - started, whole)

    def _whole(self, code: str) -> str:
        """The model's own time without and with what was found. `code`: where kernels lie."""
        self.compilation.tell(f"timing {self.compilation.model}")
        return whole_model(self.model, replace(self.options, cache=code), self.database.path,
                           self.wanted.sizes, self.wanted.jobs)

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
        measurers = Workers(min(self.lanes, MEASURERS), str(folder))
        return Machinery(folder, options, Workers(self.wanted.jobs, str(folder)), measurers,
                         footprint, self.lanes)

    @property
    def lanes(self) -> int:
        """How many kernels are worked on at a time."""
        return max(1, self.wanted.jobs // 2) if self.target.measures_apart() else 1

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
        self, works: Sequence[Work], known: Mapping[str, Winner], started: float
    ) -> None:
        """Time each kernel as the rules have it; what was tuned before has its figures."""
        until, opened = started + FIRST_LOOK * self.wanted.seconds, 0
        fresh: list[Work] = []
        for work in sorted(works, key=lambda w: -w.task.elements):
            if work.task.key in known:
                work.recall(known[work.task.key])
            elif work.task.elements > LARGEST:
                work.row.note = "its tensors are too large"
            else:
                fresh.append(work)
                work.stays = opened + work.task.elements <= OPEN
                opened += work.task.elements * work.stays
        in_lanes(self.lanes, lambda w: self._look_at(w, until), fresh)

    def _look_at(self, work: Work, until: float) -> None:
        if self.clock() > until:
            work.row.note = "there was no time"
            return
        self.compilation.tell(f"timing {work.task.name}")
        with work.told():
            work.start()
        if not work.stays:
            work.laboratory.close()

    def _search_all(self, works: Sequence[Work], mode: Mode, until: float) -> None:
        """Give each kernel that is worth it its share of the time that is left in all lanes."""
        left = worthwhile(works, mode)
        choosing = threading.Lock()

        def next_one(_: Work) -> None:
            with choosing:
                weights = [w.row.total for w in left]
                work, seconds = left.pop(0), until - self.clock()
            share = min(1.0, self.lanes * weights[0] / (sum(weights) or 1.0))
            if seconds <= 0:
                work.row.note = "there was no time"
                return
            with work.told():
                self._search(work, mode, seconds * share)
            work.laboratory.close()

        in_lanes(self.lanes, next_one, list(left))

    def _search(self, work: Work, mode: Mode, seconds: float) -> None:
        """Raises WorkerError."""
        self.compilation.tell(f"tuning {work.task.name}")
        options, kernel = self.compilation.target_options, work.task.kernel
        rules, until = work.start(), self.clock() + seconds
        search = Search(lambda s: self.target.candidates(kernel, s, options), work.laboratory,
                        rules, mode, until, self.clock)
        self._keep(work.task, work.row, search, search.run())

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
