"""How threads share the programs of a launch: each begins with its part, then helps the others.

A launch's programs are cut into one part per thread, the same for launches of one size, so that a
thread finds in its caches what it wrote. It takes its part piece by piece; who is done takes pieces
of other parts. So a thread that began late, or that another process has held up, delays a launch by
one piece of work at most.

Every thread has two cache lines in `%turns`. Others read how far its part of a launch is given out,
twice, for even launches and for odd ones, and on which processor it is (see `spread`). For
itself it notes which of the two counts now, whose part it works on, and whether it has looked for
late threads. Loops count their trips in a few more words of the line (see `driver_interrupt`).
At a launch's begin each thread resets its count for the next launch: all are past the
barrier behind the one before, and none is past the next.
"""

from __future__ import annotations

_PIECES = 8
"""Into how many pieces a part is cut, if each is work enough."""

LINE_BYTES = 128
"""What a thread has in the memory of turns."""

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
"""LLVM text of `strata_begin`, which every thread calls when a launch begins, and `strata_next`.

The latter gives the programs from the first number to below the second, none where the launch is
given out; `%least` is how many at least are worth asking for.
"""
