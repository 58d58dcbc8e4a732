"""Thread placement: threads that woke on one processor move to others, and let each other start.

An idle processor of a virtual machine may count as busy, because its host has lent it to others.
Linux then wakes a thread on the processor of the thread that wakes it. The two share it for
milliseconds, and each waits for the other at every barrier. Each thread therefore records in its
line of the work-sharing memory on which processor it runs. A helper that finds itself on another
thread's processor restricts its affinity to the calling thread's processors that no thread uses,
which moves it at once. It stays restricted until it clashes again. The calling thread is never
moved.

Nothing is done if the C library lacks these functions (`targets.cpu.runtime.threads.SCHEDULER`).
"""

from __future__ import annotations

from targets.cpu.driver.heap import copy
from targets.cpu.driver.table import LINE_BYTES, Array, Line, Processors, Table
from targets.cpu.llvm.layout import U8, U64, Struct
from targets.cpu.llvm.native import local, moved, native, u8, u64

_PROCESSORS = 8 * LINE_BYTES
"""The processors that a set may have."""


class Byte(Struct):
    """Eight processors of a set."""

    bits: U8


@native
def note(table: Table, turns: Array[Line], threads: U64) -> None:
    """Record where the calling thread is, and the processors that it may use.

    It runs this before it asks for help. The processors are in one more line, after the lines of
    all threads.
    """
    processor = table.processor
    if processor is not None:
        turns[0].processor.store(processor() + 1)
        table.read_affinity(0, LINE_BYTES, turns[threads])


@native
def spread(table: Table, turns: Array[Line], thread: U64, threads: U64) -> None:
    """Record where a thread is when it starts; a helper leaves a processor that is taken."""
    processor = table.processor
    if processor is not None and thread != 0:
        mark = processor() + 1
        own = turns[thread]
        wanted = local(Processors)
        copy(wanted, turns[threads], LINE_BYTES, False)
        clashes = False
        k: U64 = 0
        while k < threads:
            taken = turns[k].processor.load()
            clashes = clashes | (taken == mark)
            if taken - 1 < _PROCESSORS:
                remove(wanted, u64(taken - 1))
            k += 1
        if clashes:
            table.set_affinity(0, LINE_BYTES, wanted)
            mark = processor() + 1
        own.processor.store(mark)


@native
def remove(processors: Processors, number: U64) -> None:
    """Take a processor out of a set."""
    byte = moved(processors, number >> 3, Byte)
    bit: U8 = 1
    byte.bits &= (bit << u8(number & 7)) ^ -1
