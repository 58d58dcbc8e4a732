"""Conditions on sizes under which an access stays inside its buffer, if sizes decide that.

    %v = block.load %x[%p] : tile<f32>       %p: 0 to k - 1, %x: f32[n]     ->  k <= n

Whatever a failed proof could not show about sizes alone would complete it. But that condition may
be stronger than the access needs, and would reject sizes that work. So it is tested on small sizes.
It becomes an assumption only if every tested violation under which anything runs leads out of the
buffer. If nothing may run, the assumption is weakened so that it holds there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from dialects.symbolic.expr import Expr, minimum
from dialects.symbolic.inequalities import Prover, Span
from dialects.symbolic.size_products import product as product_of
from dialects.symbolic.symbol import Symbol

MOST = 4
"""Each size is tried from 0 to this, and at a size beyond the numbers of the condition."""

SYMBOLS = 4
"""The most sizes that a condition may involve."""


class Need(NamedTuple):
    """The condition left <= right."""

    left: Expr
    right: Expr

    @property
    def fact(self) -> Expr:
        """The expression that the condition says is not negative."""
        return self.right - self.left


def need_of(
    goal: Expr, prover: Prover, facts: Sequence[Expr], data: Collection[Symbol] = (),
) -> Need | None:
    """The condition that the proof of a goal lacks; None if sizes cannot express it.

    `facts` are those of the prover, which has tried the goal. `data` are the symbols of its ranges
    that stand for values from data.
    """
    ranges = prover.ranges
    lacking = sorted(prover.open, key=lambda e: (len(e.terms), str(e)))
    for condition in lacking:
        if Prover(ranges, [*facts, condition]).is_nonnegative(goal):
            runs = [e for s, span in ranges.items() if s not in data
                    and (e := _extent(span)) is not None and e.constant is None]
            need = _stated(condition, goal, Prover(ranges, facts), runs)
            if need is not None:
                return need
    return None


def _extent(span: Span) -> Expr | None:
    return None if span.first is None or span.last is None else span.last - span.first + 1


def _stated(
    condition: Expr, goal: Expr, prover: Prover, extents: Sequence[Expr]
) -> Need | None:
    """A condition as an assumption, if it is needed whenever anything runs, that is, whenever none
    of the extents is 0."""
    tried = list(_trials(condition, goal, prover))
    if not tried or not all(t.leaves for t in tried if t.runs) or not any(t.runs for t in tried):
        return None
    left = Expr(tuple((m, -c) for m, c in condition.terms if c < 0))
    right = Expr(tuple((m, c) for m, c in condition.terms if c > 0))
    if all(t.runs for t in tried):
        return Need(left, right)
    runs = minimum(product_of(extents), 1)
    guarded = Need(left * runs, right)
    holds = not runs.symbols & prover.ranges.keys() and all(
        (guarded.fact.evaluate(t.sizes) < 0) == t.runs for t in tried)
    return guarded if holds else None


class _Trial(NamedTuple):
    """Sizes that violate a condition: whether anything runs with them, and leaves a buffer."""

    sizes: Mapping[Symbol, int]
    runs: bool
    leaves: bool


def _trials(condition: Expr, goal: Expr, prover: Prover) -> Iterator[_Trial]:
    ranges, facts = prover.ranges, prover.given
    ends = [e for span in ranges.values() for e in span if e is not None]
    names = sorted({s for e in (condition, goal, *ends, *facts) for s in e.symbols} - ranges.keys())
    if len(names) > SYMBOLS:
        return
    for values in product(_tried(condition, goal, *ends), repeat=len(names)):
        sizes = dict(zip(names, values, strict=True))
        if _value(condition, sizes) < 0 and all(_value(f, sizes) >= 0 for f in facts):
            points = list(_points(list(ranges), ranges, sizes))
            yield _Trial(sizes, bool(points), any(_value(goal, p) < 0 for p in points))


def _tried(*exprs: Expr) -> Sequence[int]:
    """Small sizes, and one that every number of the expressions fits into twice.

    x[n - 1 - 100*i] with i < k leaves x for k = 2 and any small n, but not for n = 201.
    """
    largest = max((abs(c) for e in exprs for _, c in e.terms), default=0)
    return [*range(MOST + 1), 2 * max(largest, MOST) + 1]


def _points(
    names: Sequence[Symbol], ranges: Mapping[Symbol, Span], values: dict[Symbol, int]
) -> Iterator[dict[Symbol, int]]:
    """Points at and next to the ends of ranges; none if a range is empty."""
    if not names:
        yield values
        return
    span = ranges[names[0]]
    first, last = (None if e is None else _value(e, values) for e in span)
    low = first if first is not None else -1 if last is None else last - 1
    high = last if last is not None else low + 1
    places = {p for p in (low, low + 1, high - 1, high) if low <= p <= high}
    for at in sorted(places):
        yield from _points(names[1:], ranges, {**values, names[0]: at})


def _value(expr: Expr, values: Mapping[Symbol, int]) -> int:
    """The value of an expression; a division by 0 counts as negative."""
    try:
        return int(expr.evaluate(values))
    except ZeroDivisionError:
        return -1
