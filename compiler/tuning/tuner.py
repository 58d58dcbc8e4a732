"""Tunes models: finds their kernels, assigns each its share of the time, and stores winners.

Kernels that take most of a model's time come first. Each winner is written when it is found, so
that an interrupted run loses nothing, and a restarted one continues with the remaining kernels.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.diagnostics import Problem, StrataError
from compiler.options import OFF, CompileOptions
from compiler.programs.collection import rare_collections
from compiler.tuning.database import Database, Unreadable, Winner, unreadable, with_library
from compiler.tuning.files import default_file, shipped_file
from compiler.tuning.jobs import plain
from compiler.tuning.laboratory import Machinery
from compiler.tuning.options import TuneOptions
from compiler.tuning.processes import Workers
from compiler.tuning.report import Report, Row
from compiler.tuning.search import MODES, Mode, Search, Trial
from compiler.tuning.subject import Subject
from compiler.tuning.tasks import Task
from compiler.tuning.whole import whole_model
from compiler.tuning.work import Work, in_lanes, script_of_work, works_of, worthwhile
from dialects.loop import KernelOp
from passes.contract import Choice

if TYPE_CHECKING:
    from compiler.frontend import MemoryModel
    from compiler.instrument import Instrument

FIRST_LOOK = 0.4
"""The share of the time for timing each kernel with the rules' schedule."""
LARGEST = 1 << 28
"""The maximum number of elements of a task's tensors, which must fit into memory several times."""
OPEN = 1 << 29
"""The maximum number of elements of the tasks that stay loaded until they are searched."""
MEASURERS = 8
"""The number of measuring processes, if they do not disturb each other's timings."""
COMPILATIONS = 2
"""The number of final compilations of the model, from cached code, in order to time it."""


class Tuner:
    """One tuning run for several models, which share the time evenly. `clock`: a time in seconds.
    """

    def __init__(
        self, models: Sequence[str | MemoryModel], options: CompileOptions, wanted: TuneOptions,
        instruments: Sequence[Instrument] = (), clock: Callable[[], float] = time.monotonic,
    ):
        self.wanted, self.clock = wanted, clock
        self.written = 0
        """The number of kernels whose results have been written."""
        if wanted.mode not in MODES:
            raise StrataError(f"no mode '{wanted.mode}'; there are: {', '.join(MODES)}")
        self.options = replace(options, tuned=OFF, specialize=None)
        self.subjects = [Subject(model, self.options, instruments) for model in models]
        self.compilation = self.subjects[0].compilation
        self.target, self.parts = self.compilation.target, self.compilation.parts
        self.plain, self.by_library = self._databases(options)

    def _databases(self, options: CompileOptions) -> tuple[Database, Mapping[str, Database]]:
        """The database of winners, and those with library calls, by the library's key.

        Raises StrataError for a target that cannot be tuned, and if there is no place for a
        database.
        """
        key = self.parts.tuning.key()
        if key is None:
            raise StrataError(f"target {self.target.name} cannot be tuned: it offers no schedules "
                              "to choose from besides those of its rules")
        path = self.wanted.output or default_file(options.cache)
        if path is None:
            raise StrataError("tuned schedules cannot be stored, because the cache is off",
                              [Problem("no file is named", hint="name one with -o FILE")])
        path = os.path.abspath(path)
        libraries = self.parts.tuning.library_keys()
        if not libraries and self.options.library == "auto":
            raise StrataError(f"target {self.target.name} has no library to call on this machine")
        return Database(path, key), {x: Database(path, with_library(key, x)) for x in libraries}

    def _database_of(self, kernel: KernelOp) -> Database:
        """The database for a kernel: that of a library that may implement it, otherwise the plain
        one.
        """
        library = self.parts.tuning.library_of(kernel)
        return self.plain if library is None else self.by_library[library]

    def kept(self) -> str:
        """A description of what remains if the run is interrupted."""
        return (f"what was found for {self.written} kernels is kept in {self.plain.path}; the same "
                "command goes on from there" if self.written else "nothing was found yet")

    # ------------------------------------------------------------------ all of it
    @rare_collections()
    def run(self) -> Report:
        """Tune. Raises StrataError."""
        started = self.clock()
        mode = MODES[self.wanted.mode]
        known = {d: self._known(d) for d in (self.plain, *self.by_library.values())}
        tasks = [subject.tasks(self.wanted) for subject in self.subjects]
        ending = COMPILATIONS * (self.clock() - started) if self.wanted.whole else 0.0
        until = started + max(self.wanted.seconds - ending, self.wanted.seconds / 2)
        with tempfile.TemporaryDirectory(prefix="strata-tune-") as folder:
            shared = self._machinery(Path(folder))
            works = works_of(tasks, shared)
            with shared.compilers, shared.measurers:
                self._recall(works, known)
                self._look([w for w in works if not w.row.note], started)
                self._search_all(works, mode, until)
            whole = self._whole(shared.options.cache) if self.wanted.whole else []
        rows = sorted((work.row for work in works), key=lambda row: -row.total)
        notes = [note for subject in self.subjects for note in subject.notes]
        return Report(self.plain.path, rows, shared.faults, notes, self.clock() - started,
                      whole, "".join(map(script_of_work, works)))

    def _whole(self, code: str) -> list[str]:
        """Time the whole models without and with the winners. `code`: the folder of compiled code.
        """
        lines: list[str] = []
        for subject in self.subjects:
            self.compilation.report(f"timing {subject.compilation.model}")
            lines.append(whole_model(subject.model, replace(self.options, cache=code),
                                     self.plain.path, self.wanted.sizes, self.wanted.jobs))
        return lines

    def _known(self, database: Database) -> Mapping[str, Winner]:
        """The winners found before, then those that ship with the target if they are used as well.

        Raises StrataError for a file that is not a database.
        """
        try:
            database.make()
            found = database.read()
        except Unreadable as error:
            raise unreadable(database.path, error) from None
        if self.wanted.output is None:
            with contextlib.suppress(Unreadable):
                shipped = Database(shipped_file(self.options.target), database.description)
                found = shipped.read() | found
        weaker = {"default": (), "max-autotune": ("default",)}[self.wanted.mode]
        return {} if self.wanted.again else {
            k: w for k, w in found.items() if w.mode not in weaker}

    def _recall(
        self, works: Sequence[Work], known: Mapping[Database, Mapping[str, Winner]]
    ) -> None:
        """Fill in the results of kernels that were tuned before."""
        for work in works:
            winner = known[self._database_of(work.task.kernel)].get(work.task.key)
            if winner is not None:
                work.recall(winner)

    def _machinery(self, folder: Path) -> Machinery:
        options = plain(self.options, str(folder / "code"), None)
        measurers = Workers(min(self.lanes, MEASURERS), str(folder))
        return Machinery(folder, options, Workers(self.wanted.jobs, str(folder)), measurers,
                         self.lanes)

    @property
    def lanes(self) -> int:
        """The number of kernels that are processed concurrently."""
        return self.wanted.jobs if self.parts.running.measures_apart else 1

    # ------------------------------------------------------------------ times
    def _look(self, works: Sequence[Work], started: float) -> None:
        """Time each kernel with the rules' schedule."""
        until, opened = started + FIRST_LOOK * self.wanted.seconds, 0
        fresh: list[Work] = []
        for work in sorted(works, key=lambda w: -w.task.elements):
            if work.task.elements > LARGEST:
                work.row.note = "its tensors are too large"
            else:
                fresh.append(work)
                work.stays = opened + work.task.elements <= OPEN
                opened += work.task.elements * work.stays
        end, numbers = started + self.wanted.seconds, itertools.count()

        def look_at(work: Work) -> None:
            self.compilation.count(next(numbers), len(fresh), end - self.clock())
            self._look_at(work, until)

        in_lanes(self.lanes, look_at, fresh)

    def _look_at(self, work: Work, until: float) -> None:
        if self.clock() > until:
            work.row.note = "there was no time"
            return
        self.compilation.report(f"timing {work.task.name}")
        with work.noting_failure():
            work.start()
        if not work.stays:
            work.laboratory.close()

    def _search_all(self, works: Sequence[Work], mode: Mode, until: float) -> None:
        """Search each worthwhile kernel for its share of the time that is left in all lanes."""
        left = worthwhile(works, mode)
        choosing, kernels = threading.Lock(), len(left)

        def next_one(_: Work) -> None:
            with choosing:
                total = sum(w.share for w in left)
                work, seconds = left.pop(0), until - self.clock()
                self.compilation.count(kernels - len(left) - 1, kernels, seconds)
            share = min(1.0, self.lanes * work.share / (total or 1.0))
            if seconds <= 0:
                work.row.note = "there was no time"
                return
            with work.noting_failure():
                self._search(work, mode, seconds * share)
            work.laboratory.close()

        in_lanes(self.lanes, next_one, list(left))

    def _search(self, work: Work, mode: Mode, seconds: float) -> None:
        """Raises WorkerError."""
        self.compilation.report(f"tuning {work.task.name}")
        candidates, kernel = self.parts.scheduling.candidates, work.task.kernel
        rules, until = work.start(), self.clock() + seconds
        search = Search(lambda s: candidates(kernel, s), work.laboratory,
                        rules, mode, until, self.clock)
        self._keep(work.task, work.row, search, search.run())

    def _keep(self, task: Task, row: Row, search: Search, found: Trial | None) -> None:
        """Write the result. That the rules' choice is the best is only written after a complete
        search.
        """
        row.tried = len(search.trials)
        choice = Choice(None)
        if found is not None:
            row.gain, row.schedule = 1 / found.ratio, str(found.schedule)
            choice = Choice(task.canonical.neutral(found.schedule), row.gain)
        elif search.left() <= 0:
            row.note = f"{row.tried} others tried, then time was up"
            return
        winner = Winner(task.key, choice, row.seconds, self.wanted.mode, task.name)
        database = self._database_of(task.kernel)
        try:
            database.write(winner)
            self.written += 1
        except Unreadable as error:
            raise unreadable(database.path, error) from None
