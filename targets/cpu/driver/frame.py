"""The fixed part of every driver: the entry, the parallel region, memory, flush-to-zero.

    strata_entry -> [GOMP_parallel ->] strata_task -> strata_run -> strata_body (see module.py)

`Call`, the argument of the entry, is what `runtime/calls.py` passes. The work-sharing counters are
on the entry's stack. The functions return 0, or 1 if a check failed, with the same result on every
thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from targets.cpu.driver.heap import tidy
from targets.cpu.driver.spread import note, spread
from targets.cpu.driver.table import LINE_BYTES, Array, Call, Context, Line, Memory, Table
from targets.cpu.llvm.layout import I32, U8, U32, U64, Struct
from targets.cpu.llvm.modules import ModuleText, definitions
from targets.cpu.llvm.native import (
    Native,
    Setting,
    exported,
    external,
    local,
    local_array,
    native,
    u64,
)
from targets.cpu.machine import Machine

ENTRY = "strata_entry"
PARALLEL, BODY = "strata_is_parallel", "strata_body"
"""The functions that differ between models; `module.py` writes them."""
FLUSHED = 0x8040
"""Flush-to-zero and denormals-are-zero, in the register of SSE's modes."""

SSE, FPCR, HAS_HEAP = Setting(), Setting(), Setting()
"""How floats are flushed: by SSE's modes, by ARM's control register; and whether there is a heap.
"""


CONTROLLED_BITS = 1 << 24
"""Flush-to-zero, in ARM's control register of floats."""


class Mode(Struct):
    """The register of SSE's modes."""

    bits: U32


@external(PARALLEL)
def is_parallel(sizes: Array[U64]) -> bool:
    """Whether threads share any launch."""
    ...


@external(BODY)
def body(arena: Memory, table: Table, sizes: Array[U64], thread: U64, threads: U64) -> I32:
    """The main function, on one thread."""
    ...


@external("llvm.memset.p0.i64")
def fill(target: Struct, byte: U8, count: U64, volatile: bool) -> None:
    """Fill bytes."""
    ...


@external("llvm.x86.sse.stmxcsr")
def read_mode(mode: Mode) -> None:
    """Copy the modes from the register."""
    ...


@external("llvm.x86.sse.ldmxcsr")
def set_mode(mode: Mode) -> None:
    """Copy the modes into the register."""
    ...


@external("llvm.aarch64.get.fpcr")
def read_control() -> U64:
    """ARM's control register."""
    ...


@external("llvm.aarch64.set.fpcr")
def set_control(bits: U64) -> None:
    """Set ARM's control register."""
    ...


@exported(ENTRY)
def entry(call: Call) -> I32:
    """One call of the model."""
    table = call.table
    shared = is_parallel(call.sizes) & (call.threads > 1)
    count = u64(call.threads) if shared else 1
    turns = local_array(Line, count + 1, 64)
    fill(turns, 0, (count + 1) * LINE_BYTES, False)
    table.turns = turns
    status: I32 = 0
    if shared:
        context = local(Context)
        context.arena = call.arena
        context.table = table
        context.sizes = call.sizes
        note(table, turns, count)
        table.fork(task, context, call.threads, 0)
        status = context.status
    else:
        status = run(call.arena, table, call.sizes, 0, 1)
    if HAS_HEAP:
        tidy(table)
    return status


@native
def task(context: Context) -> None:
    """What each thread of the parallel region does."""
    table = context.table
    thread = u64(table.thread_number())
    threads = u64(table.thread_count())
    spread(table, table.turns, thread, threads)
    status = run(context.arena, table, context.sizes, thread, threads)
    if thread == 0:
        context.status = status


@native
def run(arena: Memory, table: Table, sizes: Array[U64], thread: U64, threads: U64) -> I32:
    """The main function, with denormal floats as zeros if the machine code flushes."""
    if FPCR:
        control = read_control()
        set_control(control | CONTROLLED_BITS)
        found = body(arena, table, sizes, thread, threads)
        set_control(control)
        return found
    if SSE:
        saved = local(Mode)
        flushing = local(Mode)
        read_mode(saved)
        flushing.bits = saved.bits | FLUSHED
        set_mode(flushing)
        status = body(arena, table, sizes, thread, threads)
        set_mode(saved)
        return status
    return body(arena, table, sizes, thread, threads)


def frame(machine: Machine, used: Iterable[Native[..., Any]], has_heap: bool) -> ModuleText:
    """The fixed functions, and those of the runtime that are `used`, with what they call."""
    settings = {SSE: machine.is_x86 and machine.flushes, HAS_HEAP: has_heap,
                FPCR: machine.architecture == "aarch64" and machine.flushes}
    return definitions([entry, *used], settings)
