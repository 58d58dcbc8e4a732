"""The fixed part of every driver: the entry, the parallel region, barriers, flush-to-zero.

    strata_entry -> [GOMP_parallel ->] strata_task -> strata_run -> strata_body (see driver.py)

The first four table entries are the addresses of `targets.cpu.threads.FUNCTIONS`.
"""

from __future__ import annotations

from collections.abc import Sequence

from targets.cpu.machine import Machine

ENTRY = "strata_entry"

_FRAME = """\
define void @{entry}(ptr %arena, ptr %table, ptr %sizes, i32 %threads) nounwind {{
entry:
{condition}
  %several = icmp sgt i32 %threads, 1
  %shared = and i1 %several, %parallel
  br i1 %shared, label %region, label %alone
alone:
  call void @strata_run(ptr %arena, ptr %table, ptr %sizes, i64 0, i64 1)
  ret void
region:
  %context = alloca [3 x ptr], align 8
  %context1 = getelementptr ptr, ptr %context, i64 1
  %context2 = getelementptr ptr, ptr %context, i64 2
  store ptr %arena, ptr %context
  store ptr %table, ptr %context1
  store ptr %sizes, ptr %context2
  %fork = load ptr, ptr %table
  call void %fork(ptr @strata_task, ptr %context, i32 %threads, i32 0)
  ret void
}}
define internal void @strata_task(ptr %context) nounwind {{
  %context1 = getelementptr ptr, ptr %context, i64 1
  %context2 = getelementptr ptr, ptr %context, i64 2
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
  call void @strata_run(ptr %arena, ptr %table, ptr %sizes, i64 %thread, i64 %threads)
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
define internal void @strata_run(ptr %arena, ptr %table, ptr %sizes, i64 %thread, i64 %threads) \
nounwind {{
{before}
  call void @strata_body(ptr %arena, ptr %table, ptr %sizes, i64 %thread, i64 %threads)
{after}
  ret void
}}"""

_FLUSH = """\
  %saved = alloca i32, align 4
  %flushing = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %saved)
  %mode = load i32, ptr %saved
  %flush = or i32 %mode, 32832
  store i32 %flush, ptr %flushing
  call void @llvm.x86.sse.ldmxcsr(ptr %flushing)"""  # 0x8040: flush-to-zero, denormals-are-zero

_RESTORE = "  call void @llvm.x86.sse.ldmxcsr(ptr %saved)"

_X86_DECLARATIONS = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)"""


def frame(machine: Machine, condition: Sequence[str]) -> str:
    """The fixed functions; `condition` is text that defines `%parallel` in the entry."""
    before, after = (_FLUSH, _RESTORE) if machine.is_x86 else ("", "")
    text = _FRAME.format(entry=ENTRY, condition="\n".join(condition), before=before, after=after)
    return text + (_X86_DECLARATIONS if machine.is_x86 else "")
