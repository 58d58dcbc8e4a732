"""Proves inequalities over integers, for instance that a memory access is in bounds.

    Prover(ranges = {p: 0 .. (n + 63) floordiv 64 - 1}).is_nonnegative(n + 63 - 64*p)

Symbols with a range lie in that range. All others are sizes, which are at least 0. Facts are
further non-negative expressions. A proof works backwards from the goal. Each step replaces a goal
by goals that imply it:

- a symbol with a range, the innermost first, is replaced by the end of its range at which the goal
  is smallest. A goal that is linear in the symbol holds on the whole range if it holds at both
  ends;
- a call that contains such a symbol is replaced by its bounds. For q = a floordiv b with b >= 1, q
  >= r means a >= b*r, and q <= r means a <= b*r + b - 1; a quotient of ranges with constant ends
  also has constant bounds. For remainders, 0 <= a mod b <= b - 1. A minimum is at most each of its
  operands and equals one of them;
- what remains contains only sizes. It must be a sum of products of sizes and of multiples of facts
  (Farkas' lemma): `dialects.symbolic.facts`.

No step assumes that a size is at least 1. Such facts follow from the operation being executed at
all, since then no range around it is empty: `(n + 63) floordiv 64 - 1 >= 0`, for example. True
means that the inequality is certain; False means that no proof was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import NamedTuple

from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.facts import Facts, facts_about, is_plain, split_call, tightened
from dialects.symbolic.intervals import Interval, interval_of
from dialects.symbolic.symbol import Symbol

FEW = 6
"""The number of sums of facts that a first, short search tries before calls are expanded."""

STEPS = 60
"""The number of goals that a proof may try. Proofs in real programs take a few."""

TERMS = 16
"""A goal counts once more for each such number of terms: those of products of minima, whose every
combination is a term, do not get shorter."""


class Span(NamedTuple):
    """first <= symbol <= last, in sizes and symbols of outer ranges; None means unbounded."""

    first: Expr | None
    last: Expr | None


class Prover:
    """Proves goals over symbols with `ranges`: non-empty, and listed from the outermost.

    `alike`: another prover with the same facts about sizes.
    """

    def __init__(
        self, ranges: Mapping[Symbol, Span], facts: Iterable[Expr] = (),
        alike: Prover | None = None,
    ):
        self.ranges, self._alike = ranges, alike
        self.given = tuple(facts)
        self._inward = list(ranges)[::-1]
        self._found: dict[Expr, bool] = {}
        self._near: dict[frozenset[Symbol], tuple[
            tuple[tuple[Symbol, Span], ...], tuple[Expr, ...]]] = {}
        self.open: dict[Expr, None] = {}
        """Goals over sizes only that could not be proven, in the order in which they occurred."""
        self._steps = STEPS

    def is_inside(self, index: Expr, size: Expr) -> bool:
        """Whether 0 <= index < size is certain."""
        return self.is_nonnegative(index) and self.is_nonnegative(size - index - 1)

    def is_nonnegative(self, goal: Expr) -> bool:
        """Whether goal >= 0 is certain."""
        self._steps = STEPS
        return self._holds(goal)

    def is_known(self, goal: Expr) -> bool:
        """Whether goal >= 0 is certain from the ranges and facts about its own symbols alone.

        Such proofs are remembered, whichever prover they come from: accesses of many kernels have
        the same goal. False says nothing about what else the prover knows.
        """
        found = self._near.get(goal.symbols)
        if found is None:
            found = self._near[goal.symbols] = self._about(goal.symbols)
        return _is_known(goal, *found)

    def _about(
        self, symbols: frozenset[Symbol]
    ) -> tuple[tuple[tuple[Symbol, Span], ...], tuple[Expr, ...]]:
        """The ranges of symbols and of what occurs in these ranges, and the facts about them."""
        near = dict[Symbol, Span]()
        about = set(symbols)
        for symbol in self._inward:
            if symbol in about:
                near[symbol] = span = self.ranges[symbol]
                about.update(*(end.symbols for end in span if end is not None))
        given = dict.fromkeys(f for f in self.given if f.symbols <= about and not is_plain(f))
        return tuple(near.items())[::-1], tuple(given)

    @cached_property
    def facts(self) -> Facts:
        """The facts over sizes only: those given, and that no range is empty."""
        if self._alike is not None:
            return self._alike.facts
        guards = [span.last - span.first for span in self.ranges.values()
                  if span.first is not None and span.last is not None]
        given = (f for fact in (*self.given, *guards) for f in self._about_sizes(fact))
        return facts_about(tuple(dict.fromkeys(f for f in given if not is_plain(f))))

    # ------------------------------------------------------------------ steps
    def _holds(self, goal: Expr) -> bool:
        goal = tightened(goal)
        if goal.constant is not None:
            return goal.constant >= 0
        if goal not in self._found:
            if self._steps <= 0:
                return False
            self._steps -= 1 + len(goal.terms) // TERMS
            self._found[goal] = False  # rules out circular proofs
            self._found[goal] = self._decide(goal)
        return self._found[goal]

    def _decide(self, goal: Expr) -> bool:
        inner = next((s for s in self._inward if s in goal.symbols), None)
        if inner is None:
            return self._holds_of_sizes(goal)
        calls = _calls_with(goal, inner)
        if not calls:
            return self._at_ends(goal, inner)
        return any(self._without(goal, call) for call in calls)

    def _at_ends(self, goal: Expr, symbol: Symbol) -> bool:
        """Prove a goal in which a symbol only occurs outside of calls, at the ends of its range."""
        split = goal.linear([symbol])
        if split is None:
            return False
        factor, rest = split[0][symbol], split[1]
        span = self.ranges[symbol]
        ends = [span.first] if self._holds(factor) else (
            [span.last] if self._holds(-factor) else [*span])
        return all(end is not None and self._holds(rest + factor * end) for end in ends)

    def _holds_of_sizes(self, goal: Expr) -> bool:
        if is_plain(goal) or self.facts.imply(goal, FEW):
            return True
        calls = {a for m, _ in goal.terms for a in m if isinstance(a, Call)}
        widest = sorted(calls, key=lambda call: (-len(call.text), call.text))
        if any(self._without(goal, call) for call in widest) or self.facts.imply(goal):
            return True
        self.open[goal] = None
        return False

    # ------------------------------------------------------------------ calls
    def _without(self, goal: Expr, call: Call) -> bool:
        """Prove a goal by goals that do not contain one of its calls."""
        split = split_call(goal, call)
        if split is None:
            return False
        factor, rest = split
        if call.op in ("min", "max"):
            return self._without_extremum(call, factor, rest)
        divisor = call.args[1]
        if not self._holds(divisor - 1):
            return False
        if call.op == "floordiv":
            return any(map(self._holds, self._without_quotient(call, factor, rest))) or (
                self._by_numbers(call, factor, rest))
        return any(map(self._holds, self._without_remainder(goal, call, factor, rest)))

    def _without_extremum(self, call: Call, factor: Expr, rest: Expr) -> bool:
        """factor*min(a, b) + rest >= 0: for both a and b, or for one if the factor is negative."""
        left, right = call.args
        cases = (self._holds(rest + factor * a) for a in call.args)
        if not self._holds(-factor if call.op == "min" else factor):
            return all(cases)
        return any(cases) or self._holds(rest * 2 + factor * (left + right))  # the mean of both

    def _without_quotient(self, call: Call, factor: Expr, rest: Expr) -> Iterator[Expr]:
        """Goals that each imply factor*(a floordiv b) + rest >= 0, where b >= 1."""
        a, b = call.args
        slack = b - 1  # an integer x is non-negative if b*x >= -(b - 1)
        if self._holds(factor):  # b*q >= a - b + 1
            yield rest * b + factor * (a - b + 1) + slack
        elif self._holds(-factor):  # b*q <= a
            yield rest * b + factor * a + slack

    def _by_numbers(self, call: Call, factor: Expr, rest: Expr) -> bool:
        """Prove factor*q + rest >= 0 with constant bounds of a quotient.

        They are sharper than those of `_without_quotient`, which are not rounded to integers before
        they are multiplied by the factor: 2*(t floordiv 6) <= 4 if t <= 15.
        """
        ends = interval_of(Expr((((call,), 1),)), self._numbers)
        return ends is not None and any(
            self._holds(sign * factor) and self._holds(rest + factor * end)
            for sign, end in zip((1, -1), ends, strict=True))

    @cached_property
    def _numbers(self) -> dict[Symbol, Interval]:
        """The ranges whose ends are constants."""
        ends = {s: tuple(None if e is None else e.constant for e in r)
                for s, r in self.ranges.items()}
        return {s: (e[0], e[1]) for s, e in ends.items() if e[0] is not None and e[1] is not None}

    def _without_remainder(
        self, goal: Expr, call: Call, factor: Expr, rest: Expr
    ) -> Iterator[Expr]:
        """Goals that each imply factor*(a mod b) + rest >= 0, where b >= 1."""
        a, b = call.args
        quotient = Call("floordiv", call.args)
        if any(quotient in monomial for monomial, _ in goal.terms):
            yield rest + factor * (a - b * Expr((((quotient,), 1),)))
        if self._holds(factor):
            yield rest
            if self._holds(b - 1 - a):  # a mod b >= a where a < b
                yield rest + factor * a
        elif self._holds(-factor):
            yield rest + factor * (b - 1)
            if self._holds(a):  # a mod b <= a where a >= 0
                yield rest + factor * a

    # ------------------------------------------------------------------ facts
    def _about_sizes(self, fact: Expr) -> Iterator[Expr]:
        """What a fact implies about sizes: each ranged symbol is set to its weakest end, if known.
        """
        inner = next((s for s in self._inward if s in fact.symbols), None)
        if inner is None:
            yield fact
            return
        split = fact.linear([inner])
        if split is None:
            yield from self._of_parts(fact, inner)
            return
        factor = split[0][inner].constant
        span = self.ranges[inner]
        end = None if factor is None else span.last if factor > 0 else span.first
        if factor is not None and end is not None:
            yield from self._about_sizes(split[1] + end * factor)

    def _of_parts(self, fact: Expr, symbol: Symbol) -> Iterator[Expr]:
        """Split a fact about a minimum: the fact holds for each operand of the minimum."""
        call = next(iter(_calls_with(fact, symbol)), None)
        split = None if call is None else split_call(fact, call)
        if call is None or split is None or split[0].constant is None:
            return
        factor, (left, right) = split[0].constant, call.args
        if call.op in ("min", "max") and (factor > 0) == (call.op == "min"):
            yield from (f for a in (left, right) for f in self._about_sizes(split[1] + a * factor))
        elif call.op == "floordiv" and (right.constant or 0) > 0:
            distance = left if factor > 0 else left - right + 1  # b*q <= a, b*q >= a - b + 1
            yield from self._about_sizes(split[1] * right + distance * factor)


@lru_cache(4096)
def _is_known(
    goal: Expr, ranges: tuple[tuple[Symbol, Span], ...], facts: tuple[Expr, ...]
) -> bool:
    return Prover(dict(ranges), facts).is_nonnegative(goal)


def _calls_with(expr: Expr, symbol: Symbol) -> list[Call]:
    """The calls of a sum that contain a symbol, remainders first: some cancel with quotients."""
    calls = dict.fromkeys(a for m, _ in expr.terms for a in m
                          if isinstance(a, Call) and symbol in a.symbols)
    return sorted(calls, key=lambda call: call.op != "mod")
