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

import re
import time

from targets.cpu.driver.turns import LINE_BYTES
from targets.cpu.runtime.heap import INTERRUPT_WORD, PYTHON_WORD, RAISED_WORD
from targets.cpu.runtime.threads import TURNS_ENTRY

_TRIPS = 16
"""The most iterations between two looks at the clock."""
_SLOW = 20_000_000
"""Nanoseconds between two looks above which the clock is read after every iteration."""
_NANOSECONDS = 100_000_000
"""Nanoseconds between two checks for Python's signals."""

_TEXT = """
define internal i64 @strata_poll(ptr %table, i64 %thread) nounwind {
entry:
  %time = alloca [2 x i64], align 8
  %turnsplace = getelementptr ptr, ptr %table, i64 TURNS
  %turns = load ptr, ptr %turnsplace
  %own = getelementptr [LINE x i8], ptr %turns, i64 %thread
  %numberplace = getelementptr i64, ptr %own, i64 11
  %before = load i64, ptr %numberplace
  %number = add i64 %before, 1
  store i64 %number, ptr %numberplace
  %first = icmp eq i64 %thread, 0
  br i1 %first, label %count, label %done
count:
  %leftplace = getelementptr i64, ptr %own, i64 12
  %left = load i64, ptr %leftplace
  %less = add i64 %left, -1
  store i64 %less, ptr %leftplace
  %due = icmp slt i64 %less, 0
  br i1 %due, label %look, label %done
look:
  %heap = call ptr @strata_heap(ptr %table)
  %python = getelementptr i64, ptr %heap, i64 PYTHON
  %clock = load ptr, ptr %python
  %failed = call i32 %clock(i32 CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %restplace = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %restplace
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %rest
  %lookedplace = getelementptr i64, ptr %own, i64 13
  %looked = load i64, ptr %lookedplace
  store i64 %now, ptr %lookedplace
  %between = sub i64 %now, %looked
  %slow = icmp ugt i64 %between, SLOW
  %wait = select i1 %slow, i64 0, i64 TRIPS
  store i64 %wait, ptr %leftplace
  %askedplace = getelementptr i64, ptr %own, i64 14
  %asked = load i64, ptr %askedplace
  %never = icmp eq i64 %asked, 0
  br i1 %never, label %begin, label %compare
begin:
  store i64 %now, ptr %askedplace
  br label %done
compare:
  %since = sub i64 %now, %asked
  %long = icmp ugt i64 %since, PATIENCE
  br i1 %long, label %ask, label %done
ask:
  store i64 %now, ptr %askedplace
  %lockplace = getelementptr ptr, ptr %python, i64 1
  %checkplace = getelementptr ptr, ptr %python, i64 2
  %fetchplace = getelementptr ptr, ptr %python, i64 3
  %unlockplace = getelementptr ptr, ptr %python, i64 4
  %lock = load ptr, ptr %lockplace
  %check = load ptr, ptr %checkplace
  %fetch = load ptr, ptr %fetchplace
  %unlock = load ptr, ptr %unlockplace
  %held = call i32 %lock()
  %raised = call i32 %check()
  %quiet = icmp eq i32 %raised, 0
  br i1 %quiet, label %release, label %stop
stop:
  %type = getelementptr i64, ptr %heap, i64 RAISED
  %value = getelementptr i64, ptr %type, i64 1
  %trace = getelementptr i64, ptr %type, i64 2
  call void %fetch(ptr %type, ptr %value, ptr %trace)
  %word = getelementptr i64, ptr %heap, i64 INTERRUPT
  store i64 %number, ptr %word
  br label %release
release:
  call void %unlock(i32 %held)
  br label %done
done:
  ret i64 %number
}
define internal i1 @strata_goes_on(ptr %table, i64 %number) nounwind {
  %heap = call ptr @strata_heap(ptr %table)
  %word = getelementptr i64, ptr %heap, i64 INTERRUPT
  %last = load i64, ptr %word
  %more = icmp ne i64 %last, %number
  ret i1 %more
}"""

_NUMBERS = {"TURNS": TURNS_ENTRY, "LINE": LINE_BYTES, "CLOCK": time.CLOCK_MONOTONIC,
            "SLOW": _SLOW, "TRIPS": _TRIPS - 1, "PATIENCE": _NANOSECONDS,
            "PYTHON": PYTHON_WORD, "RAISED": RAISED_WORD, "INTERRUPT": INTERRUPT_WORD}

INTERRUPT = re.sub("|".join(_NUMBERS), lambda found: str(_NUMBERS[found[0]]), _TEXT)
"""LLVM IR of `strata_poll`, which returns the number of the iteration that ends, and of
`strata_goes_on`, which is called after the barrier."""
