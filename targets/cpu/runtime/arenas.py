"""Memory for intermediate values, which all programs of a process share.

An arena holds nothing between calls. A call therefore takes one that no other call uses, and gives
it back at its end. One that is too small is replaced. So there are only as many arenas as calls
have been in progress at once, and the forward and backward programs of a training step, which run
in turn, have the same one. It is freed with the last program that needs as much.

Taking and giving back are atomic operations of a deque. There is no lock on which a signal handler
could hang, and a forked child has its own copy of the pages.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from targets.locks import SafeLock
from targets.memory import aligned_bytes

LARGE = 1 << 20
"""Size in bytes from which an arena is shared. The memory of smaller ones costs less than looking
for one at each call."""


class Arena:
    """Uninitialized memory, and its address."""

    __slots__ = ("address", "memory")

    def __init__(self, size: int):
        self.memory = aligned_bytes(size)
        self.address = self.memory.ctypes.data

    @property
    def size(self) -> int:
        return self.memory.size


class Arenas:
    """The arenas that no call uses."""

    def __init__(self) -> None:
        self._idle = deque[Arena]()
        self._needs, self._most = list[int](), 0
        self._changing = SafeLock()

    def take(self, size: int) -> Arena:
        """An arena of at least so many bytes, for a single call."""
        try:
            found = self._idle.pop()
        except IndexError:
            return Arena(size)
        return found if found.size >= size else Arena(size)

    def give(self, arena: Arena) -> None:
        """Put an arena back; free it if no program needs that much."""
        if arena.size <= self._most:
            self._idle.append(arena)

    @property
    def idle(self) -> list[int]:
        """The sizes of the arenas that no call uses."""
        return [arena.size for arena in tuple(self._idle)]

    def need(self, size: int) -> None:
        """Keep arenas of this size for a program."""
        with self._changing:
            self._needs.append(size)
            self._most = max(self._needs)

    def need_no_more(self, size: int) -> None:
        """The end of such a need: free larger arenas than the other programs need."""
        with self._changing:
            self._needs.remove(size)
            self._most = max(self._needs, default=0)
        for _ in range(len(self._idle)):
            with suppress(IndexError):  # another call has taken it by now
                self.give(self._idle.popleft())


ARENAS = Arenas()


class Need:
    """The bytes that each call of a program needs, as long as the program exists."""

    def __init__(self, size: int, arenas: Arenas = ARENAS):
        self.size, self.arenas = size, arenas
        arenas.need(size)

    def __del__(self) -> None:
        self.arenas.need_no_more(self.size)

    def take(self) -> Arena:
        return self.arenas.take(self.size)
