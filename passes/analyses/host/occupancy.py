"""When launches and exchanges end that share the multiprocessors of a device.

A launch is a number of turns of multiprocessors, each of the same length. As the hardware does, a
launch that waits for nothing any more takes whichever multiprocessor is free, in the order in which
launches have become ready, and exchanges come first. An exchange holds some multiprocessors until
it is done, and its time begins when it has all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from dialects.records import dataclass


@dataclass(frozen=True)
class Task:
    """A launch or an exchange. `turns`: of multiprocessors, `seconds` each; for an exchange, how
    many it holds. `after`: the earlier tasks that must be done before. `delay`: the seconds until
    the first turn begins then. `most`: the most multiprocessors that it takes at a time; 0: all.
    """

    turns: int
    seconds: float
    after: Sequence[int]
    delay: float = 0.0
    most: int = 0
    is_exchange: bool = False


def seconds_of(tasks: Sequence[Task], multiprocessors: int) -> float:
    """The seconds until all tasks are done, which begin in their order where they may."""
    device = _Device(tasks, multiprocessors)
    while device.step():
        pass
    return device.now


_READY = -1


class _Device:
    def __init__(self, tasks: Sequence[Task], free: int) -> None:
        self.tasks, self.free, self.now = tasks, free, 0.0
        self.left = [t.turns for t in tasks]
        self.running = [0] * len(tasks)
        self.awaited = [len(set(t.after)) for t in tasks]
        self.ready = list[int]()
        """The tasks with turns that have not begun, in the order in which they became ready."""
        self.events: list[tuple[float, int, int]] = []
        """Ends of turns: when, of which task, and how many; `_READY`: its delay is over."""
        for k, task in enumerate(tasks):
            if not task.after:
                self._become_ready(k)

    def _become_ready(self, number: int) -> None:
        heappush(self.events, (self.now + self.tasks[number].delay, number, _READY))

    def step(self) -> bool:
        """Go on to the next time at which something ends. Returns whether there is any."""
        if not self.events:
            return False
        self.now = self.events[0][0]
        while self.events and self.events[0][0] <= self.now:
            _, number, turns = heappop(self.events)
            if turns == _READY:
                self.ready.append(number)
            else:
                self._end(number, turns)
        self.ready.sort(key=lambda k: not self.tasks[k].is_exchange)  # stable
        self.ready = [number for number in self.ready if not self._begin(number)]
        return True

    def _begin(self, number: int) -> bool:
        """Begin as many turns as there is room for. Returns whether all have begun."""
        task = self.tasks[number]
        most = task.most or task.turns
        turns = min(self.left[number], self.free, most - self.running[number])
        self.free -= turns
        self.left[number] -= turns
        self.running[number] += turns
        is_whole = not self.left[number]
        if task.is_exchange and is_whole:
            heappush(self.events, (self.now + task.seconds, number, task.turns))
        elif not task.is_exchange and turns:
            heappush(self.events, (self.now + task.seconds, number, turns))
        return is_whole

    def _end(self, number: int, turns: int) -> None:
        self.free += turns
        self.running[number] -= turns
        if self.left[number] or self.running[number]:
            return
        for k, task in enumerate(self.tasks):
            if number in task.after:
                self.awaited[k] -= 1
                if not self.awaited[k]:
                    self._become_ready(k)
