"""Memory for intermediate values of runs on tensors: one arena for each stream of the process.

An arena holds nothing between runs, and work on a stream is done in its order. So all programs that
run on a stream have the same arena, such as the forward and the backward pass of a training step:

    forward: 0.2 GB, backward: 0.9 GB, of a model in evaluation: 0.1 GB     -->     0.9 GB

An arena that is too small for a program is replaced. Others use the new one from their next runs
on, and the last of them frees the old one. When the program that needed most is gone, the others
get a smaller one likewise. So they do where the device has no room for what it needs.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

from targets.cuda.errors import DeviceMemoryError
from targets.cuda.runtime.memory.device import Memory
from targets.locks import SafeLock


class Need:
    """The bytes that each run of a program at certain sizes needs, as long as this object exists.

    `streams`: those on which it has run.
    """

    def __init__(self, size: int, arenas: Arenas) -> None:
        self.size, self.streams, self._arenas = size, set[int](), arenas

    def arena(self, stream: int) -> Memory:
        """The arena for a run on a stream. Raises DeviceMemoryError if the device is full."""
        return self._arenas.of(self, stream)

    def __del__(self) -> None:
        self._arenas.end(self)


class Arenas:
    """The arenas by streams, and how much programs need there."""

    def __init__(self) -> None:
        self._known: dict[int, Memory] = {}
        self._needs = defaultdict[int, list[int]](list)
        self._changing = SafeLock()

    def of(self, need: Need, stream: int) -> Memory:
        """The stream's arena, which is large enough for this need from now on."""
        found = self._known.get(stream)
        if found is not None and found.size >= need.size and stream in need.streams:
            return found
        with self._changing:
            if stream not in need.streams:
                self._needs[stream].append(need.size)
                need.streams.add(stream)
            found = self._known.get(stream)
            if found is None or found.size < need.size:
                self._known.pop(stream, None)  # it may make room for the new one
                found = self._known[stream] = self._made(need, stream)
        return found

    def _made(self, need: Need, stream: int) -> Memory:
        """An arena for all needs on the stream, or for this one where that is too large for the
        device, as after a program that has failed for it. Where the device is full even so, other
        streams' arenas make room, which their next runs make anew."""
        for size in dict.fromkeys((max(self._needs[stream]), need.size)):
            with suppress(DeviceMemoryError):
                return Memory(size)
        self._known.clear()
        return Memory(need.size)

    def end(self, need: Need) -> None:
        """The end of a need: drop arenas that are larger than others need."""
        with self._changing:
            for stream in need.streams:
                self._needs[stream].remove(need.size)
                found = self._known.get(stream)
                if found is not None and found.size > max(self._needs[stream], default=-1):
                    self._known.pop(stream, None)  # the end of another need may have done it

    @property
    def sizes(self) -> dict[int, int]:
        """The bytes of each stream's arena."""
        return {stream: arena.size for stream, arena in self._known.items()}


ARENAS = Arenas()
