"""Collective operations: native code calls Python, which calls torch.distributed.

Thread 0 calls while all other threads wait; all of them then read whether it failed.
"""

from __future__ import annotations

from targets.cpu.driver.table import Memory, Table
from targets.cpu.llvm.layout import U64
from targets.cpu.llvm.native import native


@native
def exchange(
    table: Table, number: U64, source: Memory, target: Memory, given: U64, got: U64, thread: U64,
) -> None:
    """Perform the collective operation of this number on buffers of so many elements."""
    if thread == 0:
        table.heap.exchanged = table.heap.exchange(number, source, target, given, got)


@native
def failed(table: Table) -> U64:
    """Whether the last collective operation failed; called after a barrier."""
    if table.heap.exchanged != 0:
        return 1
    return 0
