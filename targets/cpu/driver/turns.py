"""Work sharing (work stealing): each thread starts with its part of a launch, then helps others.

A launch's programs are divided into one part per thread. The division is the same for launches of
the same size, so that a thread finds in its caches what it wrote. A thread takes its part piece by
piece, and once it is done, it takes pieces of other parts. A thread that started late, or that
another process has interrupted, thus delays a launch by at most one piece of work.

Every thread has two cache lines in `%turns`. Other threads read from them how much of its part has
been handed out, in separate counts for even and odd launches, and on which processor it is (see
`spread.py`). The thread itself records which of the two counts is current, whose part it works on,
and whether it has looked for late threads. Loops use a few more words of the line to count their
iterations (see `interrupt.py`). At the start of a launch each thread resets its count for the next
launch. That is safe, because all threads have passed the barrier after the previous launch, and
none has passed the next.
"""

from __future__ import annotations

_PIECES = 8
"""The number of pieces of a part, if each is enough work."""

LINE_BYTES = 128
"""The bytes of each thread in the work-sharing memory."""

TURNS = """
define internal void @strata_begin(ptr %turns, i64 %thread) nounwind {
  %own = getelementptr [BYTES x i8], ptr %turns, i64 %thread
  %oddplace = getelementptr i64, ptr %own, i64 8
  %atplace = getelementptr i64, ptr %own, i64 9
  %before = load i64, ptr %oddplace
  %odd = xor i64 %before, 1
  %used = getelementptr i64, ptr %own, i64 %before
  store i64 0, ptr %used
  store i64 %odd, ptr %oddplace
  store i64 0, ptr %atplace
  ret void
}
define internal {i64, i64} @strata_next(ptr %table, ptr %turns, i64 %total, i64 %least, \
i64 %thread, i64 %threads) nounwind {
entry:
  %own = getelementptr [BYTES x i8], ptr %turns, i64 %thread
  %oddplace = getelementptr i64, ptr %own, i64 8
  %atplace = getelementptr i64, ptr %own, i64 9
  %odd = load i64, ptr %oddplace
  %start = load i64, ptr %atplace
  br label %look
look:
  %at = phi i64 [ %start, %entry ], [ %following, %further ]
  %end = icmp uge i64 %at, %threads
  br i1 %end, label %none, label %ask
none:
  ret {i64, i64} zeroinitializer
ask:
  %sum = add i64 %thread, %at
  %owner = urem i64 %sum, %threads
  %next = add i64 %owner, 1
  %scaledlow = mul i64 %owner, %total
  %scaledhigh = mul i64 %next, %total
  %low = udiv i64 %scaledlow, %threads
  %high = udiv i64 %scaledhigh, %threads
  %part = sub i64 %high, %low
  %empty = icmp eq i64 %part, 0
  br i1 %empty, label %further, label %take
take:
  %padded = add i64 %part, LESS
  %piece = udiv i64 %padded, PIECES
  %several = icmp ugt i64 %threads, 1
  %wanted = select i1 %several, i64 %piece, i64 %part
  %size = call i64 @llvm.umax.i64(i64 %wanted, i64 %least)
  %theirs = getelementptr [BYTES x i8], ptr %turns, i64 %owner
  %count = getelementptr i64, ptr %theirs, i64 %odd
  %given = atomicrmw add ptr %count, i64 %size monotonic
  %first = add i64 %low, %given
  %some = icmp ult i64 %first, %high
  br i1 %some, label %found, label %further
found:
  %whole = add i64 %first, %size
  %last = call i64 @llvm.umin.i64(i64 %whole, i64 %high)
  %pair = insertvalue {i64, i64} poison, i64 %first, 0
  %both = insertvalue {i64, i64} %pair, i64 %last, 1
  ret {i64, i64} %both
further:
  %following = add i64 %at, 1
  store i64 %following, ptr %atplace
  br label %look
}
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)""".replace("BYTES", str(LINE_BYTES)).replace(
    "LESS", str(_PIECES - 1)).replace("PIECES", str(_PIECES))
"""LLVM IR of `strata_begin`, which every thread calls at the start of a launch, and `strata_next`.

The latter returns a range of programs, from the first number to below the second, which is empty
once the whole launch has been handed out. `%least` is the fewest programs that are worth a request.
"""
