"""Processes that compile candidates, and what becomes of their jobs when one of them dies."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from compiler.__main__ import main
from compiler.diagnostics import StrataError
from compiler.tuning.options import processes_of
from compiler.tuning.processes import Lost, Worker, Workers

MODEL = """builtin.module {
  strata.func @main(%x: f32[64, 48], %w: f32[48, 80]) -> (f32[64, 80]) inputs ["x", "w"] \
outputs ["y"] {
    %y = graph.matmul %x, %w : f32[64, 80]
    strata.return %y
  }
}
"""


class Dying(Worker):
    """A process that is lost at some requests, by their numbers. `asked`: what it has done."""

    def __init__(self, lost: frozenset[int]) -> None:
        super().__init__(".")
        self.lost, self.asked = lost, 0

    def ask(self, name: str, arguments: Any, seconds: float) -> Any:
        self.asked += 1
        if self.asked in self.lost:
            raise Lost("its process ended")
        time.sleep(0.01)
        return arguments[0]


def two(*lost: frozenset[int]) -> Workers:
    workers = Workers(0, ".")
    for numbers in lost:
        workers.all.append(Dying(numbers))
        workers._free.put(workers.all[-1])
    return workers


def test_jobs_of_a_process_that_dies_are_done_by_another() -> None:
    workers = two(frozenset([1, 3]), frozenset())
    assert workers.ask_all("compile", [*range(10)], 60, 60) == [*range(10)]


def test_a_job_that_ends_two_processes_is_at_fault() -> None:
    workers = two(frozenset(range(100)), frozenset(range(100)))
    results = workers.ask_all("compile", [0, 1], 60, 60)
    assert [type(r) for r in results] == [Lost, Lost]
    assert sum(w.asked for w in workers.all if isinstance(w, Dying)) == 4


def test_tuning_goes_on_when_one_of_two_processes_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, made, killed = tmp_path / "model.mlir", list[Workers](), list[int]()
    file.write_text(MODEL)
    monkeypatch.setenv("STRATA_CACHE", str(tmp_path))
    begin = Workers.__init__

    def noted(self: Workers, count: int, folder: str) -> None:
        begin(self, count, folder)
        made.append(self)

    def kill() -> None:
        """Kill the first process that compiles, in the middle of its work."""
        ends = time.monotonic() + 60
        while time.monotonic() < ends and not killed:
            for worker in [w for pool in made if len(pool.all) == 2 for w in pool.all]:
                process = worker._process
                if process is not None:
                    time.sleep(0.2)
                    process.kill()
                    killed.append(process.pid)
                    break
            time.sleep(0.01)

    monkeypatch.setattr(Workers, "__init__", noted)
    thread = threading.Thread(target=kill)
    thread.start()
    status = main(["tune", str(file), "--workers", "local:2", "--seconds", "6",
                   "-o", str(tmp_path / "found.json")])
    thread.join()
    told = "".join(capsys.readouterr())
    assert status == 0 and killed, told
    assert "its process ended" not in told
    assert sum(w.starts for pool in made for w in pool.all if len(pool.all) == 2) >= 2


@pytest.mark.parametrize(("workers", "jobs", "told"), [
    ("local:0", None, "it must be local:N"), ("local", None, "it must be local:N"),
    ("ray://head:10001", None, "for N processes of this machine"),
    ("local:2", 2, "both say how many processes compile"),
])
def test_other_workers_are_refused(workers: str, jobs: int | None, told: str) -> None:
    with pytest.raises(StrataError, match=told):
        processes_of(workers, jobs)


def test_workers_are_counted() -> None:
    assert processes_of("local:3", None) == 3 and processes_of(None, 4) == 4
    assert processes_of(None, None) is None
