"""The clock of a profile: where the time of a run goes, on thread 0.

Code that is compiled for a profile calls `stamp` before each launch, once all threads have arrived.
The time since the last stamp belongs to what ran since then, so that all times together are the
time of the run. Other programs have no such calls.

`Counts`: the last time, the number of what runs, and for each number its time and how often it ran.
Number OUTSIDE is what runs between two calls of the entry, HOST what runs before the first launch;
launches follow. Times are those of the processor's constant counter.
"""

from __future__ import annotations

from targets.cpu.llvm.layout import U64, Array
from targets.cpu.llvm.native import external, native

OUTSIDE, HOST, LAUNCHES = 0, 1, 2
"""The numbers of what is no launch, and of the first launch."""
HEAD, WORDS = 2, 2
"""The words before the times, and the words of each number."""


@external("llvm.readcyclecounter")
def ticks() -> U64:
    """The processor's counter."""
    ...


@native
def stamp(counts: Array[U64], number: U64, thread: U64) -> None:
    """From now on `number` runs."""
    if thread == 0:
        now = ticks()
        place = HEAD + counts[1] * WORDS
        counts[place] = counts[place] + (now - counts[0])
        counts[place + 1] = counts[place + 1] + 1
        counts[0] = now
        counts[1] = number
