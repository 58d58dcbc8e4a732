"""Several ranks in one process, which exchange arrays as the processes of a distributed program do.

A collective operation needs the operands of other ranks. `Peers` is how one rank gets them.
`run_ranks` calls a function once per rank, each in a thread, so that a whole distributed program
can be evaluated without devices. Nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from threading import Barrier, BrokenBarrierError, Lock
from typing import TYPE_CHECKING, Protocol, TypeVar

from dialects.ranks.collectives import Collective
from dialects.records import dataclass
from dialects.strata.binding import EvaluationError

if TYPE_CHECKING:
    from dialects.strata.types import Array

T = TypeVar("T")

PATIENCE = 60.0
"""The seconds after which a rank gives up waiting for others."""


class Peers(Protocol):
    """One rank among others."""

    @property
    def rank(self) -> int: ...

    def run(self, how: Collective, array: Array) -> Array:
        """The result of a collective operation on this rank. Raises EvaluationError if the ranks
        do not meet."""
        ...


@dataclass
class _Meeting:
    """Where the members of a group leave their arrays, and wait for each other."""

    arrays: list[Array | None]
    barrier: Barrier

    @staticmethod
    def of(count: int) -> _Meeting:
        return _Meeting([None] * count, Barrier(count))

    def exchange(self, place: int, array: Array) -> list[Array]:
        """The arrays of all members, in their order."""
        self.arrays[place] = array
        self.barrier.wait(PATIENCE)
        found = [a for a in self.arrays if a is not None]
        self.barrier.wait(PATIENCE)
        return found


@dataclass
class World:
    """Ranks in threads of this process."""

    size: int
    _meetings: dict[tuple[int, ...], _Meeting] = field(
        default_factory=dict[tuple[int, ...], _Meeting])
    _lock: Lock = field(default_factory=Lock)
    _ended: bool = False

    def meeting(self, ranks: tuple[int, ...]) -> _Meeting:
        with self._lock:
            found = self._meetings.setdefault(ranks, _Meeting.of(len(ranks)))
            if self._ended:
                found.barrier.abort()
            return found

    def end(self) -> None:
        """Wake all ranks that wait, because one of them has failed."""
        with self._lock:
            self._ended = True
            for meeting in self._meetings.values():
                meeting.barrier.abort()


@dataclass(frozen=True)
class LocalPeers:
    """A rank in a thread."""

    rank: int
    world: World

    def run(self, how: Collective, array: Array) -> Array:
        """See `Peers.run`."""
        ranks = how.group.members(self.rank)
        if max(ranks) >= self.world.size:
            raise EvaluationError(f"{how} needs rank {max(ranks)}, but there are only "
                                  f"{self.world.size} ranks")
        place = ranks.index(self.rank)
        try:
            arrays = self.world.meeting(ranks).exchange(place, array)
        except BrokenBarrierError as error:
            raise EvaluationError(f"{how}: rank {self.rank} waited for ranks that do not come"
                                  ) from error
        return how.combine(arrays, place)


def run_ranks(count: int, function: Callable[[Peers], T]) -> list[T]:
    """The results of a function on each rank. The first failure of a rank ends all, and is raised.
    """
    from concurrent.futures import ThreadPoolExecutor

    world, failures = World(count), list[BaseException]()

    def call(rank: int) -> T | None:
        try:
            return function(LocalPeers(rank, world))
        except BaseException as error:
            failures.append(error)
            world.end()
            return None

    with ThreadPoolExecutor(count) as threads:
        results = list(threads.map(call, range(count)))
    if failures:
        raise failures[0]
    return [r for r in results if r is not None]


def sole(arrays: Sequence[Array], how: Collective) -> Array:
    """The result of a collective in a group of one rank. Raises EvaluationError for more ranks."""
    if how.group.size > 1:
        raise EvaluationError(f"{how} needs the other ranks of its group, and there are none")
    return how.combine(arrays, 0)
