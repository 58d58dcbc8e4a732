"""Programs with control flow and late sizes: their text at graph level, inputs, and their meaning.

Each program is run on several inputs. Its meaning is plain Python, written independently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dialects.strata.types import Array

Meaning = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Program:
    name: str
    text: str
    meaning: Meaning
    inputs: Sequence[Sequence[Array]]

    def expected(self, inputs: Sequence[Array]) -> list[Array]:
        return [np.asarray(r) for r in self.meaning(*inputs)]


def _numbers(*shape: int) -> Array:
    return np.random.default_rng([7, *shape]).uniform(-1, 1, shape).astype(np.float32)


def _integers(*values: int) -> Array:
    return np.array(values, np.int64)


TRUE, FALSE = np.array(True), np.array(False)

# ---------------------------------------------------------------------- sizes from contents
PREFIX = Program("prefix", """
strata.func @main(%x: f32[n, 3], %count: i64[1]) -> (f32[m, 3], f32[3]) inputs ["x", "count"]
    outputs ["y", "sum"] {
  strata.size m = %count
  %y = graph.slice %x {starts = [0, 0], sizes = [m, 3], steps = [1, 1]} : f32[m, 3]
  %e = graph.exp %y : f32[m, 3]
  %sum = graph.reduce_sum %e {axes = [0], keepdims = false} : f32[3]
  strata.return %y, %sum
}
""", lambda x, count: (x[:count[0]], np.exp(x[:count[0]]).sum(0)),
    [(_numbers(n, 3), _integers(m)) for n, m in ((5, 3), (5, 5), (5, 0), (1001, 997), (2, 1))])

TWO_SIZES = Program("two_sizes", """
strata.func @main(%x: f32[n], %shape: i64[2]) -> (f32[n], f32[h, w]) inputs ["x", "shape"]
    outputs ["double", "y"] {
  %d = graph.add %x, %x : f32[n]
  strata.size h, w = %shape
  strata.assume h*w == n
  %y = graph.reshape %d {shape = [h, w]} : f32[h, w]
  %t = graph.neg %y : f32[h, w]
  strata.return %d, %t
}
""", lambda x, shape: (x + x, -(x + x).reshape(shape)),
    [(_numbers(h * w), _integers(h, w)) for h, w in ((2, 3), (1, 7), (0, 4), (31, 33))])

KERNEL_WITH_LATE_SIZE = Program("late_range", """
strata.func @main(%x: i64[n]) -> (i64[top], i64[n]) inputs ["x"] outputs ["range", "twice"] {
  %most = graph.reduce_max %x {axes = [0], keepdims = true} : i64[1]
  %twice = graph.add %x, %x : i64[n]
  strata.size top = %most
  %range = graph.range {start = 0, step = 2, count = top, to = i64} : i64[top]
  strata.return %range, %twice
}
""", lambda x: (np.arange(x.max()) * 2, x + x),
    [(_integers(3, 9, 1),), (_integers(0),), (_integers(*range(700)),)])

# ---------------------------------------------------------------------- if
BRANCHES = Program("branches", """
strata.func @negative(%x: f32[n, 4], %w: f32[4]) -> (f32[n, 4], f32[k]) sizes(k)
    inputs ["x", "w"] outputs ["y", "z"] {
  %y = graph.neg %x : f32[n, 4]
  %o = graph.constant {value = literal[1.0]} : f32[]
  %z = graph.broadcast %o {shape = [k]} : f32[k]
  strata.return %y, %z
}
strata.func @scaled(%x: f32[n, 4], %w: f32[4]) -> (f32[n, 4], f32[4])
    inputs ["x", "w"] outputs ["y", "z"] {
  %y = graph.mul %x, %w : f32[n, 4]
  strata.return %y, %w
}
strata.func @main(%x: f32[n, 4], %w: f32[4], %k: i64[], %c: i1[]) -> (f32[n, 4], f32[z])
    inputs ["x", "w", "k", "c"] outputs ["y", "z"] {
  strata.size k = %k
  %y, %z = strata.if %c then @negative else @scaled (%x, %w) defines(z) : f32[n, 4], f32[z]
  %r = graph.add %y, %x : f32[n, 4]
  strata.return %r, %z
}
""", lambda x, w, k, c: (x - x if c else x * w + x, np.ones(k, np.float32) if c else w),
    [(_numbers(n, 4), _numbers(4), np.array(k), c)
     for n, k in ((3, 2), (1, 0), (700, 9)) for c in (TRUE, FALSE)])

NESTED = Program("nested", """
strata.func @a(%x: f32[n]) -> (f32[n]) inputs ["x"] outputs ["y"] {
  %y = graph.exp %x : f32[n]
  strata.return %y
}
strata.func @b(%x: f32[n]) -> (f32[n]) inputs ["x"] outputs ["y"] {
  strata.return %x
}
strata.func @outer(%x: f32[n], %c: i1[]) -> (f32[n]) inputs ["x", "c"] outputs ["y"] {
  %h = strata.if %c then @a else @b (%x) : f32[n]
  %y = graph.neg %h : f32[n]
  strata.return %y
}
strata.func @other(%x: f32[n], %c: i1[]) -> (f32[n]) inputs ["x", "c"] outputs ["y"] {
  %h = strata.if %c then @b else @a (%x) : f32[n]
  strata.return %h
}
strata.func @main(%x: f32[n], %c: i1[], %d: i1[]) -> (f32[n]) inputs ["x", "c", "d"]
    outputs ["y"] {
  %y = strata.if %d then @outer else @other (%x, %c) : f32[n]
  strata.return %y
}
""", lambda x, c, d: ((-np.exp(x) if c else -x) if d else (x if c else np.exp(x)),),
    [(_numbers(n), c, d) for n in (5, 2000) for c in (TRUE, FALSE) for d in (TRUE, FALSE)])

# ---------------------------------------------------------------------- loops
def _counted(x: Array, trips: Array) -> Sequence[Any]:
    values = [x * 0.5 ** (k + 1) for k in range(int(trips))]
    return [values[-1] if values else x, np.array(values, np.float32).reshape(trips, *x.shape)]


COUNTED = Program("counted", """
strata.func @half(%h: f32[n, 3], %w: f32[]) -> (f32[n, 3], f32[n, 3]) inputs ["h", "w"]
    outputs ["h", "s"] {
  %y = graph.mul %h, %w : f32[n, 3]
  strata.return %y, %y
}
strata.func @main(%x: f32[n, 3], %trips: i64[]) -> (f32[n, 3], f32[t, n, 3])
    inputs ["x", "trips"] outputs ["h", "s"] {
  strata.size t = %trips
  %w = graph.constant {value = literal[0.5]} : f32[]
  %h, %s = strata.loop @half at k trip t carried(%x) with(%w) : f32[n, 3], f32[t, n, 3]
  strata.return %h, %s
}
""", _counted,
    [(_numbers(n, 3), np.array(t)) for n, t in ((2, 3), (5, 0), (0, 4), (1000, 5), (1, 40))])

STEPS = Program("steps", """
strata.func @swap(%h: f32[4], %x: f32[n, 4]) -> (f32[4], f32[4]) sizes(k) inputs ["h", "x"]
    outputs ["h", "s"] {
  %row = graph.slice %x {starts = [k, 0], sizes = [1, 4], steps = [1, 1]} : f32[1, 4]
  %r = graph.reshape %row {shape = [4]} : f32[4]
  %y = graph.add %h, %r : f32[4]
  strata.return %y, %y
}
strata.func @main(%x: f32[n, 4], %h: f32[4]) -> (f32[4], f32[n, 4]) inputs ["x", "h"]
    outputs ["last", "sums"] {
  %l, %s = strata.loop @swap at k trip n carried(%h) with(%x) : f32[4], f32[n, 4]
  strata.return %l, %s
}
""", lambda x, h: (h + x.sum(0), h + np.cumsum(x, 0)),
    [(_numbers(n, 4), _numbers(4)) for n in (1, 0, 9)])


def _growing(x: Array, limit: Array) -> Sequence[Any]:
    h, sums, going = x, [], True
    while going and len(sums) < 6:
        sums.append(h.sum(0))
        h = np.concatenate([h, np.broadcast_to(sums[-1], x.shape)])
        going = len(h) < int(limit)
    return [h, np.array(sums, np.float32).reshape(len(sums), 2)]


GROWING = Program("growing", """
strata.func @grow(%h: f32[q, 2], %limit: i64[]) -> (i1[], f32[n + q, 2], f32[2]) sizes(n)
    inputs ["h", "limit"] outputs ["going", "h", "s"] {
  %sum = graph.reduce_sum %h {axes = [0], keepdims = false} : f32[2]
  %more = graph.broadcast %sum {shape = [n, 2]} : f32[n, 2]
  %next = graph.concat %h, %more {axis = 0} : f32[n + q, 2]
  %length = graph.sizes {values = [n + q], shape = [], to = i64} : i64[]
  %going = graph.less %length, %limit : i1[]
  strata.return %going, %next, %sum
}
strata.func @main(%x: f32[n, 2], %limit: i64[]) -> (f32[p, 2], f32[t, 2]) inputs ["x", "limit"]
    outputs ["h", "s"] {
  %true = graph.constant {value = literal[true]} : i1[]
  %h, %s = strata.loop @grow at k trip 6 while %true carried(%x) with(%limit) defines(p, t)
      : f32[p, 2], f32[t, 2]
  strata.return %h, %s
}
""", _growing, [(_numbers(n, 2) * 0.1, np.array(limit))
                for n, limit in ((3, 10), (1, 100), (2, 0), (300, 1500))])


def _until(x: Array, c: Array) -> Sequence[Any]:
    count = 0
    while c:
        x, count = x * np.float32(0.5), count + 1
        c = np.abs(x).max() > 0.1
    return [x, np.arange(count, dtype=np.int64)]


WHILE = Program("while", """
strata.func @halve(%h: f32[n]) -> (i1[], f32[n], i64[]) sizes(k) inputs ["h"]
    outputs ["going", "h", "k"] {
  %w = graph.constant {value = literal[0.5]} : f32[]
  %y = graph.mul %h, %w : f32[n]
  %a = graph.abs %y : f32[n]
  %m = graph.reduce_max %a {axes = [0], keepdims = false} : f32[]
  %l = graph.constant {value = literal[0.1]} : f32[]
  %going = graph.greater %m, %l : i1[]
  %k = graph.sizes {values = [k], shape = [], to = i64} : i64[]
  strata.return %going, %y, %k
}
strata.func @main(%x: f32[n], %c: i1[]) -> (f32[n], i64[t]) inputs ["x", "c"]
    outputs ["y", "steps"] {
  %y, %s = strata.loop @halve at k while %c carried(%x) with() defines(t) : f32[n], i64[t]
  strata.return %y, %s
}
""", _until, [(_numbers(n), c) for n in (4, 3000) for c in (TRUE, FALSE)])


def _inner(x: Array) -> Sequence[Any]:
    return [np.array([[row * (k + j + 1) for j in range(k)] for k, row in enumerate(x)
                      ][-1], np.float32).reshape(-1, x.shape[1]).sum(0) + x[0]]


LOOP_IN_LOOP = Program("loop_in_loop", """
strata.func @add(%h: f32[w], %row: f32[w]) -> (f32[w]) sizes(j, k) inputs ["h", "row"]
    outputs ["h"] {
  %f = graph.sizes {values = [j + k + 1], shape = [], to = i64} : i64[]
  %g = graph.cast %f {to = f32} : f32[]
  %s = graph.mul %row, %g : f32[w]
  %y = graph.add %h, %s : f32[w]
  strata.return %y
}
strata.func @outer(%last: f32[w], %x: f32[n, w]) -> (f32[w]) sizes(k) inputs ["last", "x"]
    outputs ["h"] {
  %one = graph.slice %x {starts = [k, 0], sizes = [1, w], steps = [1, 1]} : f32[1, w]
  %row = graph.reshape %one {shape = [w]} : f32[w]
  %first = graph.slice %x {starts = [0, 0], sizes = [1, w], steps = [1, 1]} : f32[1, w]
  %h = graph.reshape %first {shape = [w]} : f32[w]
  %y = strata.loop @add at j trip k carried(%h) with(%row) : f32[w]
  strata.return %y
}
strata.func @main(%x: f32[n, w]) -> (f32[w]) inputs ["x"] outputs ["y"] {
  %zero = graph.constant {value = literal[0.0]} : f32[]
  %h = graph.broadcast %zero {shape = [w]} : f32[w]
  %y = strata.loop @outer at k trip n carried(%h) with(%x) : f32[w]
  strata.return %y
}
""", _inner, [(_numbers(n, w),) for n, w in ((4, 3), (1, 5), (6, 100))])

DERIVED_SIZE = Program("derived_size", """
strata.func @add(%h: f32[n floordiv 2, 3], %w: f32[n floordiv 2, 3]) -> (f32[n floordiv 2, 3])
    sizes(k, n) inputs ["h", "w"] outputs ["h"] {
  %y = graph.add %h, %w : f32[n floordiv 2, 3]
  strata.return %y
}
strata.func @main(%x: f32[n, 3]) -> (f32[n floordiv 2, 3]) inputs ["x"] outputs ["y"] {
  %h = graph.slice %x {starts = [0, 0], sizes = [n floordiv 2, 3], steps = [2, 1]}
      : f32[n floordiv 2, 3]
  %y = strata.loop @add at k trip 3 carried(%h) with(%h) : f32[n floordiv 2, 3]
  strata.return %y
}
""", lambda x: (4 * x[:len(x) // 2 * 2:2],), [(_numbers(n, 3),) for n in (7, 2, 1, 500)])


PROGRAMS = (PREFIX, TWO_SIZES, KERNEL_WITH_LATE_SIZE, BRANCHES, NESTED, COUNTED, STEPS, GROWING,
            WHILE, LOOP_IN_LOOP, DERIVED_SIZE)
