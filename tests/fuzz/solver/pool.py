"""Worker processes that survive what they are given: a crash or a hang costs one model's result.

A worker is a process of its own that answers one number after another. When it dies, or takes too
long and is ended, the number it had gets the outcome `crash` or `timeout`, and another takes over.
A crash is `peer-crash` where onnxruntime alone crashes, and all else is right.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

FINE = ("", "unusable", "explained", "peer-crash")
"""Outcomes that are no failures."""
WORN = 400
"""After so many models a worker is replaced."""


@dataclass(frozen=True)
class Outcome:
    """`kind`: empty where nothing is wrong; see `FINE` for others that are no failure."""

    number: int
    kind: str = ""
    text: str = ""
    operators: tuple[str, ...] = ()
    seconds: float = 0.0
    runs: int = 0

    @property
    def fails(self) -> bool:
        return self.kind not in FINE


class Worker:
    """One process, and what it is at: a number, or anything else that `work` takes."""

    def __init__(self, work: Callable[[Any], Any], folder: str):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work, folder), daemon=True)
        self.process.start()
        theirs.close()
        self.number: Any = None
        self.started, self.done = 0.0, 0

    def give(self, number: Any) -> None:
        self.number, self.started = number, time.monotonic()
        self.connection.send(number)

    def take(self) -> Any:
        """The answer, or the outcome `crash`."""
        assert self.number is not None
        number, self.number, self.done = self.number, None, self.done + 1
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join(5)
            return Outcome(number, "crash", f"the process ended with {self.process.exitcode}")

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


def _serve(connection: Connection, work: Callable[[Any], Any], folder: str) -> None:
    """Answer until the other end closes. `folder`: where reproducers may be written."""
    import os
    import sys

    os.chdir(folder)
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    while True:
        try:
            number = connection.recv()
        except EOFError:
            return
        connection.send(work(number))


def outcomes(
    numbers: Iterable[int], work: Callable[[int], Outcome], jobs: int, limit: float, folder: str
) -> Iterator[Outcome]:
    """What becomes of each number, in the order in which they are done. `limit`: seconds each."""
    waiting = iter(numbers)
    workers = [Worker(work, folder) for _ in range(jobs)]
    try:
        for place in range(jobs):
            _feed(workers, place, waiting, work, folder)
        while any(w.number is not None for w in workers):
            yield from _round(workers, waiting, work, limit, folder)
    finally:
        for worker in workers:
            worker.end()


def whose(
    crash: Outcome, peer: Callable[[int], Outcome], ours: Callable[[int], Outcome], limit: float,
    folder: str,
) -> Outcome:
    """What a crash is, found by two more processes. `peer` runs the model in onnxruntime alone, and
    `ours` judges it without onnxruntime.
    """
    [alone] = outcomes([crash.number], peer, 1, limit, folder)
    if alone.kind != "crash":
        return crash
    [rest] = outcomes([crash.number], ours, 1, limit, folder)
    return rest if rest.fails else replace(rest, kind="peer-crash", text=alone.text)


def _round(
    workers: list[Worker], waiting: Iterator[int], work: Callable[[int], Outcome], limit: float,
    folder: str,
) -> Iterator[Outcome]:
    """Take what is ready, and end what is late."""
    busy: dict[Any, int] = {w.connection: k for k, w in enumerate(workers)
                            if w.number is not None}
    for connection in wait(list(busy), timeout=0.5):
        place = busy[connection]
        outcome = workers[place].take()
        yield outcome
        if outcome.kind == "crash" or workers[place].done >= WORN:
            _replace(workers, place, work, folder)
        _feed(workers, place, waiting, work, folder)
    for place, worker in enumerate(workers):
        if worker.number is not None and time.monotonic() - worker.started > limit:
            yield Outcome(worker.number, "timeout", f"still at it after {limit:.0f} s")
            _replace(workers, place, work, folder)
            _feed(workers, place, waiting, work, folder)


def _feed(
    workers: list[Worker], place: int, waiting: Iterator[int], work: Callable[[int], Outcome],
    folder: str,
) -> None:
    number = next(waiting, None)
    if number is None:
        return
    try:
        workers[place].give(number)
    except OSError:  # it died between two numbers
        _replace(workers, place, work, folder)
        workers[place].give(number)


def _replace(
    workers: list[Worker], place: int, work: Callable[[int], Outcome], folder: str
) -> None:
    workers[place].end()
    workers[place] = Worker(work, folder)
