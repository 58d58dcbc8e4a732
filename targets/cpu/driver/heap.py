"""Memory whose size is known only at run time, as native functions.

The heap keeps a list of the blocks that are in use, so that Python can free what a call leaves, and
a short list of released blocks for loops, which request the same sizes again and again.
"""

from __future__ import annotations

from targets.cpu.driver.table import Block, Heap, Link, Memory, Stack, Table, barrier
from targets.cpu.llvm.layout import U64, Struct
from targets.cpu.llvm.native import external, moved, native

_SPARE_BLOCKS, _SPARE_BYTES = 8, 1 << 20
"""The most released blocks that are kept for reuse, and the most bytes of each."""
_MOST_BYTES = 1 << 47
_BLOCK_BYTES = 64


@external("llvm.memcpy.p0.p0.i64")
def copy(target: Struct, source: Struct, count: U64, volatile: bool) -> None:
    """Copy bytes."""
    ...


@native
def heap(table: Table) -> Heap:
    """The heap of the call."""
    return table.heap


@native
def allocate(table: Table, count: U64, thread: U64, threads: U64) -> Memory | None:
    """The same new memory on every thread, or null if there is none."""
    if thread == 0:
        table.heap.passed = take(table.heap, count)
    barrier(table, threads)
    memory = table.heap.passed
    barrier(table, threads)
    return memory


@native
def release(table: Table, memory: Memory, thread: U64) -> None:
    """Free memory, on thread 0; no thread waits."""
    if thread == 0:
        drop(table.heap, memory)


@native
def append(
    table: Table, stack: Stack, count: U64, source: Memory, size: U64, calls: U64, thread: U64,
) -> None:
    """Add `size` bytes to the `count` of them in a stack, on thread 0; no thread waits.

    `calls`: how often a loop appends, 0 if that is unknown. Without memory the base becomes null.
    """
    base = stack.base
    if thread == 0 and base is not None:
        used = count * size
        needed = used + size
        if needed > stack.capacity:
            wanted = max(size * calls, needed << 1)
            new = take(table.heap, wanted)
            stack.base = new
            stack.capacity = wanted
            if new is None:
                return
            copy(new, base, used, False)
            drop(table.heap, base)
            base = new
        copy(moved(base, used, Memory), source, size, False)


@native
def take(heap: Heap, count: U64) -> Memory | None:
    """New memory: a spare block of exactly that size if there is one. Null if there is none."""
    if count > _MOST_BYTES:
        return None
    size = (count + 2 * _BLOCK_BYTES) & -_BLOCK_BYTES
    place = heap.spares
    block = place.following
    while block is not None and block.size != size:
        place = block
        block = block.following
    if block is not None:
        place.following = block.following
        heap.spare_count -= 1
    else:
        block = heap.aligned_alloc(_BLOCK_BYTES, size)
        if block is None:
            return None
        block.size = size
    following = heap.blocks.following
    block.following = following
    block.before = None
    heap.blocks.following = block
    if following is not None:
        following.before = block
    return moved(block, _BLOCK_BYTES, Memory)


@native
def drop(heap: Heap, memory: Memory) -> None:
    """Free memory, or keep its block as a spare one."""
    block = moved(memory, -_BLOCK_BYTES, Block)
    following = block.following
    before = block.before
    link: Link = heap.blocks if before is None else before
    link.following = following
    if following is not None:
        following.before = before
    if block.size <= _SPARE_BYTES and heap.spare_count < _SPARE_BLOCKS:
        heap.spare_count += 1
        block.following = heap.spares.following
        heap.spares.following = block
    else:
        heap.free(block)


@native
def tidy(table: Table) -> None:
    """Free all spare blocks at the end of a call."""
    heap = table.heap
    heap.spare_count = 0
    block = heap.spares.following
    while block is not None:
        heap.spares.following = block.following
        heap.free(block)
        block = heap.spares.following
