"""What native functions are given: the structures that Python fills, and the barrier.

`Table` follows `targets.cpu.runtime.threads`, and `Heap` the words of `targets.cpu.runtime.heap`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from targets.cpu.llvm.layout import (
    I32,
    I64,
    U32,
    U64,
    Array,
    Atomic32,
    Atomic64,
    Count,
    Inside,
    Struct,
    place,
)
from targets.cpu.llvm.native import native
from targets.cpu.runtime.heap import EXCHANGE_WORD, INTERRUPT_WORD, PYTHON_WORD, RAISED_WORD
from targets.cpu.runtime.threads import SCHEDULER_ENTRY, TURNS_ENTRY

LINE_BYTES = 128
"""The bytes of each thread in the work-sharing memory."""


# ---------------------------------------------------------------------- memory
class Memory(Struct):
    """Bytes that a model or a call uses."""


class Link(Struct):
    """Where the address of a list's next block is."""

    following: Block | None


class Block(Link):
    """The first bytes of a block of the heap; the memory that it is for comes after them."""

    BYTES = 64
    before: Block | None
    size: U64


class Stack(Struct):
    """A tensor to which a loop appends, in the first bytes of memory of its own."""

    base: Memory | None
    capacity: U64


class Raised(Struct):
    """The type, value and traceback of what a signal's handler raised."""

    type: Memory
    value: Memory
    trace: Memory


class Heap(Struct):
    """The heap of one call."""

    aligned_alloc: Callable[[U64, U64], Block | None]
    free: Callable[[Block], None]
    blocks: Annotated[Link, Inside()]
    passed: Memory | None
    """An address that thread 0 passes to the others."""
    spares: Annotated[Link, Inside()]
    spare_count: U64
    interrupted: U64 = place(8 * INTERRUPT_WORD)
    raised: Annotated[Raised, Inside()] = place(8 * RAISED_WORD)
    clock_gettime: Callable[[I32, Time], I32] = place(8 * PYTHON_WORD)
    take_lock: Callable[[], I32]
    check_signals: Callable[[], I32]
    fetch_raised: Callable[[Raised, Struct, Struct], None]
    release_lock: Callable[[I32], None]
    exchange: Callable[[U64, Memory, Memory, U64, U64], I32] = place(8 * EXCHANGE_WORD)
    exchanged: I32
    """What `exchange` returned last: 0 unless it failed."""


class Time(Struct):
    """What the clock shows."""

    seconds: U64
    nanoseconds: U64


# ---------------------------------------------------------------------- threads
class Line(Struct):
    """What a thread keeps while it shares work (see `turns.py`, `spread.py`, `interrupt.py`)."""

    BYTES = LINE_BYTES
    given: Annotated[Array[Atomic64], Count(2)]
    """How much of its part has been handed out, in even and in odd launches."""
    processor: Atomic32
    """The number of the processor on which it runs, plus 1; 0 until it has started."""
    odd: U64 = place(64)
    """Which of the two counts is current."""
    at: U64
    """How many parts it has found to be handed out."""
    iteration: U64 = place(88)
    left: I64
    """The iterations until the next look at the clock."""
    looked: U64
    asked: U64
    """When it last looked at the clock, and when it last asked for signals, in nanoseconds."""


class Processors(Struct):
    """A set of processors, one bit each."""

    BYTES = LINE_BYTES


class Table(Struct):
    """The addresses that all native functions need."""

    fork: Callable[[Callable[[Context], None], Context, I32, I32], None]
    barrier: Callable[[], None]
    thread_number: Callable[[], I32]
    thread_count: Callable[[], I32]
    heap: Heap
    turns: Array[Line] = place(8 * TURNS_ENTRY)
    processor: Callable[[], U32] | None = place(8 * SCHEDULER_ENTRY)
    read_affinity: Callable[[I32, U64, Struct], I32]
    set_affinity: Callable[[I32, U64, Struct], I32]


class Call(Struct):
    """The argument of the entry."""

    arena: Memory
    table: Table
    sizes: Array[U64]
    threads: I32


class Context(Struct):
    """What the entry passes to all threads, and what thread 0 returns."""

    arena: Memory
    table: Table
    sizes: Array[U64]
    status: I32


@native
def barrier(table: Table, threads: U64) -> None:
    """Wait for all threads."""
    if threads > 1:
        table.barrier()
