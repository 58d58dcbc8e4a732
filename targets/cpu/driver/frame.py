"""The fixed part of every driver: the entry, the parallel region, barriers, memory, flush-to-zero.

    strata_entry -> [GOMP_parallel ->] strata_task -> strata_run -> strata_body (see module.py)

The table starts with the addresses of `targets.cpu.runtime.threads.FUNCTIONS`. Then come the
address of the heap (64-bit words that `targets.cpu.runtime.heap` defines and reads) and that of the
work-sharing counters, which are on the entry's stack (see `turns.py`). The functions return 0, or 1
if a check failed, with the same result on every thread.

`strata_allocate` returns the same new memory to every thread, or null if there is none. It reuses a
spare block of exactly that size if there is one; `strata_tidy` frees spare blocks when a run ends.
`strata_release` and `strata_append` work on thread 0 and do not wait. `%calls` is the number of
times that a loop appends, 0 if unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from targets.cpu.driver.interrupt import INTERRUPT
from targets.cpu.driver.spread import SPREAD
from targets.cpu.driver.turns import LINE_BYTES, TURNS
from targets.cpu.machine import Machine
from targets.cpu.runtime.threads import TURNS_ENTRY

ENTRY = "strata_entry"

_SPARE_BLOCKS, _SPARE_BYTES = 8, 1 << 20
"""The most released blocks that are kept for reuse, and the most bytes of each."""

_FRAME = """\
define i32 @{entry}(ptr %call) nounwind {{
entry:
  %call1 = getelementptr ptr, ptr %call, i64 1
  %call2 = getelementptr ptr, ptr %call, i64 2
  %call3 = getelementptr ptr, ptr %call, i64 3
  %arena = load ptr, ptr %call
  %table = load ptr, ptr %call1
  %sizes = load ptr, ptr %call2
  %threads = load i32, ptr %call3
{condition}
  %several = icmp sgt i32 %threads, 1
  %shared = and i1 %several, %parallel
  %count32 = select i1 %shared, i32 %threads, i32 1
  %count = zext i32 %count32 to i64
  %lines = add i64 %count, 1
  %turns = alloca [{line} x i8], i64 %lines, align 64
  %turnbytes = mul i64 %lines, {line}
  call void @llvm.memset.p0.i64(ptr %turns, i8 0, i64 %turnbytes, i1 false)
  %turnsplace = getelementptr ptr, ptr %table, i64 {turns}
  store ptr %turns, ptr %turnsplace
  br i1 %shared, label %region, label %alone
alone:
  %status = call i32 @strata_run(ptr %arena, ptr %table, ptr %sizes, i64 0, i64 1)
{tidy}
  ret i32 %status
region:
  %context = alloca [4 x ptr], align 8
  %context1 = getelementptr ptr, ptr %context, i64 1
  %context2 = getelementptr ptr, ptr %context, i64 2
  %context3 = getelementptr ptr, ptr %context, i64 3
  store ptr %arena, ptr %context
  store ptr %table, ptr %context1
  store ptr %sizes, ptr %context2
  call void @strata_note(ptr %table, ptr %turns, i64 %count)
  %fork = load ptr, ptr %table
  call void %fork(ptr @strata_task, ptr %context, i32 %threads, i32 0)
  %found = load i32, ptr %context3
{tidy}
  ret i32 %found
}}
define internal void @strata_task(ptr %context) nounwind {{
  %context1 = getelementptr ptr, ptr %context, i64 1
  %context2 = getelementptr ptr, ptr %context, i64 2
  %context3 = getelementptr ptr, ptr %context, i64 3
  %arena = load ptr, ptr %context
  %table = load ptr, ptr %context1
  %sizes = load ptr, ptr %context2
  %table2 = getelementptr ptr, ptr %table, i64 2
  %table3 = getelementptr ptr, ptr %table, i64 3
  %number = load ptr, ptr %table2
  %count = load ptr, ptr %table3
  %thread32 = call i32 %number()
  %threads32 = call i32 %count()
  %thread = zext i32 %thread32 to i64
  %threads = zext i32 %threads32 to i64
  %turnsplace = getelementptr ptr, ptr %table, i64 {turns}
  %turns = load ptr, ptr %turnsplace
  call void @strata_spread(ptr %table, ptr %turns, i64 %thread, i64 %threads)
  %status = call i32 @strata_run(ptr %arena, ptr %table, ptr %sizes, i64 %thread, i64 %threads)
  %first = icmp eq i64 %thread, 0
  br i1 %first, label %report, label %done
report:
  store i32 %status, ptr %context3
  br label %done
done:
  ret void
}}
define internal void @strata_barrier(ptr %table, i64 %threads) nounwind {{
  %several = icmp sgt i64 %threads, 1
  br i1 %several, label %wait, label %done
wait:
  %table1 = getelementptr ptr, ptr %table, i64 1
  %barrier = load ptr, ptr %table1
  call void %barrier()
  br label %done
done:
  ret void
}}
define internal i32 @strata_run(ptr %arena, ptr %table, ptr %sizes, i64 %thread, i64 %threads) \
nounwind {{
{before}
  %status = call i32 @strata_body(ptr %arena, ptr %table, ptr %sizes, i64 %thread, i64 %threads)
{after}
  ret i32 %status
}}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"""

_HEAP = """
define internal ptr @strata_heap(ptr %table) nounwind alwaysinline {
  %place = getelementptr ptr, ptr %table, i64 4
  %heap = load ptr, ptr %place
  ret ptr %heap
}
define internal ptr @strata_take(ptr %heap, i64 %bytes) nounwind {
  %huge = icmp ugt i64 %bytes, 140737488355328
  br i1 %huge, label %none, label %ask
none:
  ret ptr null
ask:
  %padded = add i64 %bytes, 128
  %whole = and i64 %padded, -64
  %spares = getelementptr i64, ptr %heap, i64 4
  br label %look
look:
  %place = phi ptr [ %spares, %ask ], [ %spare, %compare ]
  %spare = load ptr, ptr %place
  %end = icmp eq ptr %spare, null
  br i1 %end, label %new, label %compare
compare:
  %sizeplace = getelementptr i64, ptr %spare, i64 2
  %size = load i64, ptr %sizeplace
  %fits = icmp eq i64 %size, %whole
  br i1 %fits, label %again, label %look
again:
  %others = load ptr, ptr %spare
  store ptr %others, ptr %place
  %countplace = getelementptr i64, ptr %heap, i64 5
  %count = load i64, ptr %countplace
  %less = add i64 %count, -1
  store i64 %less, ptr %countplace
  br label %link
new:
  %allocate = load ptr, ptr %heap
  %fresh = call ptr %allocate(i64 64, i64 %whole)
  %failed = icmp eq ptr %fresh, null
  br i1 %failed, label %none, label %measure
measure:
  %freshsize = getelementptr i64, ptr %fresh, i64 2
  store i64 %whole, ptr %freshsize
  br label %link
link:
  %block = phi ptr [ %spare, %again ], [ %fresh, %measure ]
  %head = getelementptr i64, ptr %heap, i64 2
  %next = load ptr, ptr %head
  store ptr %next, ptr %block
  %before = getelementptr ptr, ptr %block, i64 1
  store ptr null, ptr %before
  store ptr %block, ptr %head
  %alone = icmp eq ptr %next, null
  br i1 %alone, label %done, label %back
back:
  %nextbefore = getelementptr ptr, ptr %next, i64 1
  store ptr %block, ptr %nextbefore
  br label %done
done:
  %memory = getelementptr i8, ptr %block, i64 64
  ret ptr %memory
}
define internal void @strata_drop(ptr %heap, ptr %memory) nounwind {
  %block = getelementptr i8, ptr %memory, i64 -64
  %beforeplace = getelementptr ptr, ptr %block, i64 1
  %next = load ptr, ptr %block
  %before = load ptr, ptr %beforeplace
  %first = icmp eq ptr %before, null
  %head = getelementptr i64, ptr %heap, i64 2
  %link = select i1 %first, ptr %head, ptr %before
  store ptr %next, ptr %link
  %last = icmp eq ptr %next, null
  br i1 %last, label %done, label %back
back:
  %nextbefore = getelementptr ptr, ptr %next, i64 1
  store ptr %before, ptr %nextbefore
  br label %done
done:
  %sizeplace = getelementptr i64, ptr %block, i64 2
  %size = load i64, ptr %sizeplace
  %small = icmp ule i64 %size, SPARE_BYTES
  %countplace = getelementptr i64, ptr %heap, i64 5
  %count = load i64, ptr %countplace
  %few = icmp ult i64 %count, SPARE_BLOCKS
  %keeps = and i1 %small, %few
  br i1 %keeps, label %keep, label %give
keep:
  %more = add i64 %count, 1
  store i64 %more, ptr %countplace
  %spares = getelementptr i64, ptr %heap, i64 4
  %others = load ptr, ptr %spares
  store ptr %others, ptr %block
  store ptr %block, ptr %spares
  ret void
give:
  %freeplace = getelementptr i64, ptr %heap, i64 1
  %free = load ptr, ptr %freeplace
  call void %free(ptr %block)
  ret void
}
define internal void @strata_tidy(ptr %table) nounwind {
  %heap = call ptr @strata_heap(ptr %table)
  %spares = getelementptr i64, ptr %heap, i64 4
  %countplace = getelementptr i64, ptr %heap, i64 5
  store i64 0, ptr %countplace
  %freeplace = getelementptr i64, ptr %heap, i64 1
  %free = load ptr, ptr %freeplace
  br label %look
look:
  %spare = load ptr, ptr %spares
  %end = icmp eq ptr %spare, null
  br i1 %end, label %done, label %drop
drop:
  %others = load ptr, ptr %spare
  store ptr %others, ptr %spares
  call void %free(ptr %spare)
  br label %look
done:
  ret void
}
define internal ptr @strata_allocate(ptr %table, i64 %bytes, i64 %thread, i64 %threads) nounwind {
  %heap = call ptr @strata_heap(ptr %table)
  %slot = getelementptr i64, ptr %heap, i64 3
  %first = icmp eq i64 %thread, 0
  br i1 %first, label %take, label %share
take:
  %mine = call ptr @strata_take(ptr %heap, i64 %bytes)
  store ptr %mine, ptr %slot
  br label %share
share:
  call void @strata_barrier(ptr %table, i64 %threads)
  %memory = load ptr, ptr %slot
  call void @strata_barrier(ptr %table, i64 %threads)
  ret ptr %memory
}
define internal void @strata_release(ptr %table, ptr %memory, i64 %thread) nounwind {
  %first = icmp eq i64 %thread, 0
  br i1 %first, label %drop, label %done
drop:
  %heap = call ptr @strata_heap(ptr %table)
  call void @strata_drop(ptr %heap, ptr %memory)
  br label %done
done:
  ret void
}
define internal void @strata_append(ptr %table, ptr %stack, i64 %count, ptr %source, i64 %bytes, \
i64 %calls, i64 %thread) nounwind {
  %first = icmp eq i64 %thread, 0
  br i1 %first, label %begin, label %done
begin:
  %heap = call ptr @strata_heap(ptr %table)
  %capacityplace = getelementptr i64, ptr %stack, i64 1
  %base = load ptr, ptr %stack
  %capacity = load i64, ptr %capacityplace
  %used = mul i64 %count, %bytes
  %needed = add i64 %used, %bytes
  %lost = icmp eq ptr %base, null
  br i1 %lost, label %done, label %check
check:
  %enough = icmp ule i64 %needed, %capacity
  br i1 %enough, label %copy, label %grow
grow:
  %double = shl i64 %needed, 1
  %all = mul i64 %bytes, %calls
  %most = icmp ugt i64 %all, %double
  %wanted = select i1 %most, i64 %all, i64 %double
  %new = call ptr @strata_take(ptr %heap, i64 %wanted)
  store ptr %new, ptr %stack
  store i64 %wanted, ptr %capacityplace
  %none = icmp eq ptr %new, null
  br i1 %none, label %done, label %move
move:
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %base, i64 %used, i1 false)
  call void @strata_drop(ptr %heap, ptr %base)
  br label %copy
copy:
  %at = load ptr, ptr %stack
  %end = getelementptr i8, ptr %at, i64 %used
  call void @llvm.memcpy.p0.p0.i64(ptr %end, ptr %source, i64 %bytes, i1 false)
  br label %done
done:
  ret void
}"""

MEMCPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"

FLUSH = """\
  %saved = alloca i32, align 4
  %flushing = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %saved)
  %mode = load i32, ptr %saved
  %flush = or i32 %mode, 32832
  store i32 %flush, ptr %flushing
  call void @llvm.x86.sse.ldmxcsr(ptr %flushing)"""  # 0x8040: flush-to-zero, denormals-are-zero

_RESTORE = "  call void @llvm.x86.sse.ldmxcsr(ptr %saved)"

X86_DECLARATIONS = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)"""


def frame(machine: Machine, condition: Sequence[str], has_heap: bool) -> str:
    """The fixed functions; `condition`: text that defines `%parallel` in the entry."""
    flushes = machine.is_x86 and machine.flushes
    before, after = (FLUSH, _RESTORE) if flushes else ("", "")
    tidy = "  call void @strata_tidy(ptr %table)" if has_heap else ""
    text = _FRAME.format(entry=ENTRY, condition="\n".join(condition), before=before, after=after,
                         tidy=tidy, line=LINE_BYTES, turns=TURNS_ENTRY)
    heap = _HEAP.replace("SPARE_BLOCKS", str(_SPARE_BLOCKS)).replace(
        "SPARE_BYTES", str(_SPARE_BYTES))
    parts = [text, TURNS, SPREAD]
    parts += [heap, INTERRUPT] if has_heap else []
    parts += [X86_DECLARATIONS] if flushes else []
    return "".join(parts)
