"""Processes large arrays in several threads: NumPy and hashlib release the GIL.

`in_threads` waits for its results. An array of which only type and shape are needed for now is
filled in the background instead (`Arrays.begin`), while passes continue.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from dialects.strata.types import Array

T = TypeVar("T")
R = TypeVar("R")

MOST_THREADS = 8
"""More threads do not speed up copying and hashing, which memory bandwidth limits."""

WORTH_A_THREAD = 64 << 10
"""The least number of bytes for which another thread fills an array."""


def in_threads(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Apply `work` to each item in threads. Results are in order; the first error is raised.

    Each item should be worth starting a thread, for instance megabytes of data. The caller is one
    of the threads; the others inherit its context variables, such as NumPy's error state. After an
    error, no further item is begun.
    """
    todo = list(items)
    count = min(len(todo), MOST_THREADS, _processors())
    if count < 2:
        return [work(item) for item in todo]
    shared = _Shared(work, todo)
    others = [threading.Thread(target=copy_context().run, args=(shared.run,))
              for _ in range(count - 1)]
    for thread in others:
        thread.start()
    try:
        shared.run()  # the caller is one of the threads: starting one takes longer than a piece
    finally:
        shared.left.clear()  # after an interrupt between two items
        for thread in others:
            thread.join()
    if shared.errors:  # an interrupt rather than the error of an item
        raise min(shared.errors.items(), key=lambda e: (isinstance(e[1], Exception), e[0]))[1]
    return [shared.found[k] for k in range(len(todo))]


class _Shared(Generic[T, R]):
    """Items that several threads take one after the other, and what they became."""

    def __init__(self, work: Callable[[T], R], items: Sequence[T]) -> None:
        self.work = work
        self.left = deque(enumerate(items))
        self.found: dict[int, R] = {}
        self.errors: dict[int, BaseException] = {}

    def run(self) -> None:
        while True:
            try:
                number, item = self.left.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                self.found[number] = self.work(item)
            except BaseException as error:  # the caller raises it once all threads have ended
                self.errors[number] = error
                self.left.clear()


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


# ---------------------------------------------------------------------- in the background
class Begun(NamedTuple):
    """An array that has its type and shape, but not its contents before `fill` has run."""

    array: Array
    fill: Callable[[], None]


class _Fill:
    """An array's filling: it is done once `ended` is set, with the error if there was one."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work, self.ended = work, threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # whoever needs the array must know
            self.error = error
        finally:
            del self.work  # and the source that it holds
            self.ended.set()

    def wait(self) -> None:
        self.ended.wait()
        if self.error is not None:
            raise self.error


class _Filler:
    """A thread that fills arrays in the order in which they were begun. It ends without work."""

    def __init__(self) -> None:
        self._waiting: deque[_Fill] = deque()
        self._lock = threading.Lock()
        self._runs = False

    def start(self, work: Callable[[], None]) -> _Fill:
        fill = _Fill(work)
        with self._lock:
            self._waiting.append(fill)
            starts, self._runs = not self._runs, True
        if starts:
            threading.Thread(target=self._run, daemon=True).start()
        return fill

    def _run(self) -> None:
        while (fill := self._next()) is not None:
            fill.run()

    def _next(self) -> _Fill | None:
        with self._lock:
            self._runs = bool(self._waiting)
            return self._waiting.popleft() if self._waiting else None


class Arrays(dict[str, "Array"]):
    """Arrays by key, of which some are still being filled: who looks at one waits for that.

    Only what copies the dict without looking, such as `{**arrays}`, must call `settle` first.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._filler = _Filler()
        self._fills: dict[str, _Fill] = {}

    def begin(self, key: str, begun: Begun, sources: Sequence[str] = ()) -> None:
        """Add an array that another thread fills, if there is a processor for it.

        `sources`: what it is filled from. What is begun earlier is filled earlier, so the thread
        waits for none of them, but finds out if one could not be filled.
        """
        super().__setitem__(key, begun.array)

        def fill() -> None:
            for source in sources:
                self._wait(source)
            begun.fill()

        if begun.array.nbytes < WORTH_A_THREAD or _processors() < 2:
            fill()
            return
        context = copy_context()
        self._fills[key] = self._filler.start(lambda: context.run(fill))

    def unfilled(self, key: str) -> Array:
        """An array of which only type and shape are looked at."""
        return super().__getitem__(key)

    def settle(self) -> None:
        """Wait for all arrays. Raises the first error of a filling."""
        for key in [*self._fills]:
            self._wait(key)

    def _wait(self, key: str) -> None:
        fill = self._fills.get(key)
        if fill is not None:
            fill.wait()
            self._fills.pop(key, None)

    # ------------------------------------------------------------------ as a dict
    def __getitem__(self, key: str) -> Array:
        self._wait(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._wait(key)
        return super().get(key, default)

    def __setitem__(self, key: str, array: Array) -> None:
        self._wait(key)
        super().__setitem__(key, array)

    def __delitem__(self, key: str) -> None:
        self._fills.pop(key, None)
        super().__delitem__(key)

    def items(self) -> Any:
        self.settle()
        return super().items()

    def values(self) -> Any:
        self.settle()
        return super().values()
