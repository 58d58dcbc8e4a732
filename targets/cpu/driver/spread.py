"""Thread placement: threads that woke on one processor move apart, and let each other start.

An idle processor of a virtual machine may count as busy, because its host has lent it to others.
Linux then wakes a thread on the processor of the thread that wakes it. The two share it for
milliseconds, and each waits for the other at every barrier. Each thread therefore records in its
line of the work-sharing memory on which processor it runs. A helper that finds itself on another
thread's processor restricts its affinity to the calling thread's processors that no thread uses,
which moves it at once. It stays restricted until it clashes again. The calling thread is never
moved. A thread that runs out of work for the first time in a call yields to those that have not
started.

Nothing is done if the C library lacks these functions (`targets.cpu.runtime.threads.SCHEDULER`).
"""

from __future__ import annotations

import re

from targets.cpu.driver.turns import LINE_BYTES
from targets.cpu.runtime.threads import FIRST_ARGUMENT, SCHEDULER_ENTRY

_YIELDS = 200
"""How often a thread yields to one that has not started: for a few tenths of a millisecond."""

_TEXT = """
define internal void @strata_note(ptr %table, ptr %turns, i64 %threads) nounwind {
  %whereplace = getelementptr ptr, ptr %table, i64 GETCPU
  %where = load ptr, ptr %whereplace
  %unknown = icmp eq ptr %where, null
  br i1 %unknown, label %done, label %note
note:
  %cpu = call i32 %where()
  %mark = add i32 %cpu, 1
  %markplace = getelementptr i32, ptr %turns, i64 4
  store atomic i32 %mark, ptr %markplace monotonic, align 4
  %askplace = getelementptr ptr, ptr %table, i64 GETAFFINITY
  %ask = load ptr, ptr %askplace
  %allowed = getelementptr [LINE x i8], ptr %turns, i64 %threads
  %refused = call i32 %ask(i32 0, i64 LINE, ptr %allowed)
  br label %done
done:
  ret void
}
define internal void @strata_spread(ptr %table, ptr %turns, i64 %thread, i64 %threads) nounwind {
entry:
  %wanted = alloca [LINE x i8], align 8
  %whereplace = getelementptr ptr, ptr %table, i64 GETCPU
  %where = load ptr, ptr %whereplace
  %unknown = icmp eq ptr %where, null
  %caller = icmp eq i64 %thread, 0
  %nothing = or i1 %unknown, %caller
  br i1 %nothing, label %done, label %look
look:
  %cpu = call i32 %where()
  %mark = add i32 %cpu, 1
  %own = getelementptr [LINE x i8], ptr %turns, i64 %thread
  %ownplace = getelementptr i32, ptr %own, i64 4
  %allowed = getelementptr [LINE x i8], ptr %turns, i64 %threads
  call void @llvm.memcpy.p0.p0.i64(ptr %wanted, ptr %allowed, i64 LINE, i1 false)
  br label %other
other:
  %k = phi i64 [ 0, %look ], [ %following, %next ]
  %clashes = phi i1 [ false, %look ], [ %clash, %next ]
  %following = add i64 %k, 1
  %line = getelementptr [LINE x i8], ptr %turns, i64 %k
  %place = getelementptr i32, ptr %line, i64 4
  %taken = load atomic i32, ptr %place monotonic, align 4
  %beside = icmp eq i32 %taken, %mark
  %clash = or i1 %clashes, %beside
  %number = sub i32 %taken, 1
  %known = icmp ult i32 %number, BITS
  br i1 %known, label %remove, label %next
remove:
  %byte = lshr i32 %number, 3
  %bit32 = and i32 %number, 7
  %bit = trunc i32 %bit32 to i8
  %one = shl i8 1, %bit
  %others = xor i8 %one, -1
  %byteplace = getelementptr i8, ptr %wanted, i32 %byte
  %old = load i8, ptr %byteplace
  %new = and i8 %old, %others
  store i8 %new, ptr %byteplace
  br label %next
next:
  %more = icmp ult i64 %following, %threads
  br i1 %more, label %other, label %decide
decide:
  br i1 %clash, label %move, label %begin
move:
  %setplace = getelementptr ptr, ptr %table, i64 SETAFFINITY
  %set = load ptr, ptr %setplace
  %refused = call i32 %set(i32 0, i64 LINE, ptr %wanted)
  %now = call i32 %where()
  %new_mark = add i32 %now, 1
  br label %begin
begin:
  %final = phi i32 [ %mark, %decide ], [ %new_mark, %move ]
  store atomic i32 %final, ptr %ownplace monotonic, align 4
  br label %done
done:
  ret void
}
define internal void @strata_gather(ptr %table, ptr %turns, i64 %thread, i64 %threads) nounwind {
entry:
  %own = getelementptr [LINE x i8], ptr %turns, i64 %thread
  %flagplace = getelementptr i64, ptr %own, i64 10
  %flag = load i64, ptr %flagplace
  %known = icmp ne i64 %flag, 0
  br i1 %known, label %done, label %first
first:
  store i64 1, ptr %flagplace
  %yieldplace = getelementptr ptr, ptr %table, i64 YIELD
  %yield = load ptr, ptr %yieldplace
  %unknown = icmp eq ptr %yield, null
  br i1 %unknown, label %done, label %look
look:
  %k = phi i64 [ 0, %first ], [ %following, %there ], [ %k, %absent ]
  %tries = phi i64 [ 0, %first ], [ %tries, %there ], [ %tried, %absent ]
  %line = getelementptr [LINE x i8], ptr %turns, i64 %k
  %place = getelementptr i32, ptr %line, i64 4
  %mark = load atomic i32, ptr %place monotonic, align 4
  %late = icmp eq i32 %mark, 0
  br i1 %late, label %wait, label %there
wait:
  %tried = add i64 %tries, 1
  %patient = icmp ult i64 %tries, TRIES
  br i1 %patient, label %absent, label %done
absent:
  %result = call i32 %yield()
  br label %look
there:
  %following = add i64 %k, 1
  %more = icmp ult i64 %following, %threads
  br i1 %more, label %look, label %done
done:
  ret void
}"""

_ENTRIES = dict(zip(("GETCPU", "GETAFFINITY", "SETAFFINITY", "YIELD"),
                    range(SCHEDULER_ENTRY, FIRST_ARGUMENT), strict=True))
_NUMBERS = _ENTRIES | {"LINE": LINE_BYTES, "BITS": 8 * LINE_BYTES, "TRIES": _YIELDS}

SPREAD = re.sub("|".join(_NUMBERS), lambda found: str(_NUMBERS[found[0]]), _TEXT)
"""LLVM IR of three functions. The calling thread runs `strata_note` before it asks for help. Every
thread starts with `strata_spread`. A thread without work runs `strata_gather`. One more line
follows the lines of all threads: the processors that the caller may use."""
