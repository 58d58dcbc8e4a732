"""Tasks that share the process that measures, and what becomes of them when it is lost."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, cast

from compiler.options import CompileOptions
from compiler.tuning.jobs import Compiled, Job, Timed
from compiler.tuning.laboratory import Machinery, TaskLaboratory
from compiler.tuning.options import TuneOptions
from compiler.tuning.processes import Worker, WorkerError, Workers
from compiler.tuning.search import Prepared
from compiler.tuning.subject import Subject
from compiler.tuning.tasks import Task
from compiler.tuning.work import Work, in_lanes
from dialects.strata.schedule import Schedule

MODEL = """builtin.module {
  strata.func @main(%x: f32[4, 12], %w: f32[12, 5]) -> (f32[4, 5], f32[4, 12])
      inputs ["x", "w"] outputs ["p", "y"] {
    %p = graph.matmul %x, %w : f32[4, 5]
    %y = graph.softmax %x {axis = 1} : f32[4, 12]
    strata.return %p, %y
  }
}
"""


@dataclass
class StubProcess:
    """Compiles all, and times until it is asked for what ends it. `log`: what it was asked for."""

    starts: int = 0
    is_running: bool = False
    fatal: str = ""
    wrong: str = "wrong = 1"
    log: list[str] = field(default_factory=list[str])
    lock: Any = field(default_factory=Lock)

    def ask(self, name: str, arguments: Sequence[Any], seconds: float) -> Any:
        if not self.is_running:
            self.starts, self.is_running = self.starts + 1, True
        first = arguments[0]
        kernel = first.task if isinstance(first, Job) else first
        self.log.append(f"{name} {kernel}")
        text = Path(first.path).read_text() if isinstance(first, Job) else ""
        if name == "measure" and self.fatal in text:
            raise WorkerError("the device is lost")
        if name == "check" and self.wrong in text:
            raise WorkerError("it computes something else")
        return {"time_rules": 0.5, "measure": Timed([0.2], [0.4])}.get(name)

    def stop(self) -> None:
        self.is_running = False


class StubCompilers:
    def ask_all(self, name: str, jobs: Sequence[Job], *_: float) -> list[Compiled]:
        return [Compiled(job.path, "<>", "spills" if "warps = 99" in Path(job.path).read_text()
                         else "") for job in jobs]


def machinery(folder: Path) -> tuple[Machinery, StubProcess, list[Task]]:
    path = folder / "model.mlir"
    path.write_text(MODEL)
    tasks = Subject(str(path), CompileOptions()).tasks(TuneOptions())
    process, measurers = StubProcess(fatal="fatal = 1"), Workers(1, str(folder))
    measurers.all = [cast(Worker, process)]
    shared = Machinery(folder, CompileOptions(), cast(Workers, StubCompilers()), measurers)
    return shared, process, tasks


def schedule(**options: int) -> Schedule:
    return Schedule((), tuple(options.items()))


@contextmanager
def started(shared: Machinery, task: Task) -> Generator[TaskLaboratory]:
    with closing(TaskLaboratory(shared, task)) as laboratory:
        laboratory.start()
        yield laboratory


BEGUN = ("start", "time_rules")


def test_tasks_begin_again_when_the_process_that_measures_was_lost(tmp_path: Path) -> None:
    shared, process, (a, b) = machinery(tmp_path)
    with started(shared, a) as first, started(shared, b) as second:
        assert first.seconds == second.seconds == 0.5
        [good], [bad] = first.prepare([schedule(good=1)], 9.0), second.prepare(
            [schedule(fatal=1)], 9.0)
        assert first.measure(good, 1.0, 3, 9.0) == 0.5
        assert second.measure(bad, 1.0, 3, 9.0) is None and not process.is_running
        process.log.clear()
        assert first.measure(good, 1.0, 3, 9.0) == 0.5 and process.starts == 2
        assert process.log == [f"{w} {a.key}" for w in (*BEGUN, "load", "measure", "check")]
    assert process.log[-1] == f"end {a.key}"  # the other one is of the process before
    assert len(shared.faults) == 1 and "the device is lost" in shared.faults[0]


def test_what_is_wrong_is_out_and_what_is_slower_is_not_compared(tmp_path: Path) -> None:
    shared, process, (a, _) = machinery(tmp_path)
    with started(shared, a) as laboratory:
        [wrong] = laboratory.prepare([schedule(wrong=1)], 9.0)
        assert laboratory.measure(wrong, 0.4, 3, 9.0) == 0.5 and "check" not in process.log[-1]
        assert laboratory.measure(wrong, 1.0, 3, 9.0) is None
        assert process.is_running and "something else" in shared.faults[0]


def test_what_is_started_stays_until_it_is_closed(tmp_path: Path) -> None:
    shared, process, (a, _) = machinery(tmp_path)
    laboratory = TaskLaboratory(shared, a)
    assert laboratory.start() is laboratory.start()
    laboratory.close()
    assert not laboratory.folder.exists()
    laboratory.start()
    assert process.log.count(f"start {a.key}") == 2
    laboratory.close()


def test_only_what_processors_time_is_loaded_again(tmp_path: Path) -> None:
    shared, process, (a, _) = machinery(tmp_path)
    for lanes, starts in ((1, 2), (4, 3)):
        shared.lanes = lanes
        with started(shared, a) as laboratory:
            laboratory.renew()
        assert process.log.count(f"start {a.key}") == starts


def test_what_is_hopeless_is_no_fault(tmp_path: Path) -> None:
    shared, _, (a, _) = machinery(tmp_path)
    with started(shared, a) as laboratory:
        wanted = schedule(warps=4)
        found = laboratory.prepare([schedule(warps=99), wanted], 9.0)
        assert [p.schedule for p in found] == [wanted] and isinstance(found[0], Prepared)
    assert not shared.faults


def test_lanes_begin_in_order(tmp_path: Path) -> None:
    shared, _, tasks = machinery(tmp_path)
    begun: list[str] = []
    in_lanes(1, lambda work: begun.append(work.task.name), [Work.of(t, shared) for t in tasks])
    assert begun == [t.name for t in tasks]
