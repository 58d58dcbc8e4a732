"""Work sharing (work stealing): each thread starts with its part of a launch, then helps others.

A launch's programs are divided into one part per thread. The division is the same for launches of
the same size, so that a thread finds in its caches what it wrote. A thread takes its part piece by
piece, and once it is done, it takes pieces of other parts. A thread that started late, or that
another process has interrupted, thus delays a launch by at most one piece of work.

Every thread has two cache lines, a `Line`. Other threads read from them how much of its part has
been handed out, in separate counts for even and odd launches, and on which processor it is (see
`spread.py`). The thread itself records which of the two counts is current, and whose part it works
on. Loops use a few more words of the line to count their iterations (see `interrupt.py`). At the
start of a launch each thread resets its count for the next launch. That is safe, because all
threads have passed the barrier after the previous launch, and none has passed the next.
"""

from __future__ import annotations

from targets.cpu.driver.table import Array, Line, Table
from targets.cpu.llvm.layout import U64
from targets.cpu.llvm.native import native

_PIECES = 8
"""The number of pieces of a part, if each is enough work."""


@native
def begin(turns: Array[Line], thread: U64) -> None:
    """Start a launch; every thread calls this."""
    own = turns[thread]
    before = own.odd
    own.given[before].store(0)
    own.odd = before ^ 1
    own.at = 0


@native
def next_range(
    table: Table, turns: Array[Line], total: U64, least: U64, thread: U64, threads: U64,
) -> tuple[U64, U64]:
    """A range of programs to run: from the first number to below the second.

    It is empty once the whole launch has been handed out. `least`: the fewest programs that are
    worth a request.
    """
    own = turns[thread]
    odd = own.odd
    at = own.at
    while at < threads:
        owner = (thread + at) % threads
        low = owner * total // threads
        high = (owner + 1) * total // threads
        part = high - low
        if part != 0:
            piece = (part + (_PIECES - 1)) // _PIECES if threads > 1 else part
            size = max(piece, least)
            first = low + turns[owner].given[odd].add(size)
            if first < high:
                return first, min(first + size, high)
        at += 1
        own.at = at
    return 0, 0
