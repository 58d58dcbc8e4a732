"""Signals in loops of host functions: Ctrl-C ends a call even in the middle of 2**48 iterations.

After each iteration every thread counts it in its line of the work-sharing memory, and thread 0
looks at the clock: after every iteration if iterations are slow, else after `_TRIPS` of them. Once
`_NANOSECONDS` have passed, it takes Python's global lock and runs the handlers of pending signals.
Like the interpreter itself, Python does that only in the main thread. If a handler raises, the
exception is stored, and thread 0 writes the iteration's number into the heap before the barrier
that ends the iteration. All threads read the number there. A thread that reads late, when thread 0
is already in the next iteration, finds a number other than that of its own iteration. Thus all
threads leave at the same barrier.
"""

from __future__ import annotations

import time

from targets.cpu.driver.table import Heap, Memory, Table, Time
from targets.cpu.llvm.layout import U64
from targets.cpu.llvm.native import local, moved, native

_TRIPS = 16
"""The most iterations between two looks at the clock."""
_SLOW = 20_000_000
"""Nanoseconds between two looks above which the clock is read after every iteration."""
_NANOSECONDS = 100_000_000
"""Nanoseconds between two checks for Python's signals."""
_SECOND = 1_000_000_000
_CLOCK = time.CLOCK_MONOTONIC


@native
def poll(table: Table, thread: U64) -> U64:
    """Count an iteration, and return its number; thread 0 may look at the clock."""
    own = table.turns[thread]
    number = own.iteration + 1
    own.iteration = number
    if thread == 0:
        left = own.left - 1
        own.left = left
        if left < 0:
            now = read_clock(table.heap)
            between = now - own.looked
            own.looked = now
            own.left = 0 if between > _SLOW else _TRIPS - 1
            asked = own.asked
            if asked == 0:
                own.asked = now
            elif now - asked > _NANOSECONDS:
                own.asked = now
                ask_python(table.heap, number)
    return number


@native
def read_clock(heap: Heap) -> U64:
    """The time in nanoseconds."""
    time = local(Time)
    heap.clock_gettime(_CLOCK, time)
    return time.seconds * _SECOND + time.nanoseconds


@native
def ask_python(heap: Heap, number: U64) -> None:
    """Run the handlers of pending signals. If one raises, the iteration is the last one."""
    held = heap.take_lock()
    if heap.check_signals() != 0:
        raised = heap.raised
        heap.fetch_raised(raised, moved(raised, 8, Memory), moved(raised, 16, Memory))
        heap.interrupted = number
    heap.release_lock(held)


@native
def goes_on(table: Table, number: U64) -> bool:
    """Whether the iteration is not the last one; called after the barrier."""
    return table.heap.interrupted != number
