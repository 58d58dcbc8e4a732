"""Whether an inequality over integers certainly holds: the proof that an access stays inside.

    Prover(ranges = {p: 0 .. (n + 63) floordiv 64 - 1}).is_nonnegative(n + 63 - 64*p)

Symbols that have a range lie in it; all others are sizes, which are 0 or more. Facts are further
expressions that are not negative. A proof goes from the goal backwards, each step to goals that
imply it:

- a symbol with a range, the innermost first, is replaced by the end of its range where the goal is
  smallest: a goal that is linear in it holds between if it holds at the ends;
- a call that holds such a symbol is replaced by what bounds it: of q = a floordiv b with b >= 1,
  q >= r is a >= b*r and q <= r is a <= b*r + b - 1; 0 <= a mod b <= b - 1; a minimum is at most
  either and one of both;
- what is left is about sizes, and must be a sum of facts, times numbers and products of sizes, and
  of products of sizes (Farkas): `dialects.symbolic.facts`.

No step takes a size to be 1 or more. That an operation runs says so: no range around it is empty,
`(n + 63) floordiv 64 - 1 >= 0`, say. True means certain; False, that no proof was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from dialects.symbolic.expr import Call, Expr, atom_symbols
from dialects.symbolic.facts import Facts, facts_about, is_plain, split_call, tightened
from dialects.symbolic.symbol import Symbol

FEW = 6
"""Of how few sums of facts a search comes before calls are looked into."""

STEPS = 60
"""How many goals a proof may try. Those of real programs take a few."""


class Span(NamedTuple):
    """first <= symbol <= last, both over sizes and symbols of outer ranges; None: without end."""

    first: Expr | None
    last: Expr | None


class Prover:
    """Proves goals for symbols with `ranges`, of which none is empty, the outermost first.

    `alike`: another one that knows the same of sizes.
    """

    def __init__(
        self, ranges: Mapping[Symbol, Span], facts: Iterable[Expr] = (),
        alike: Prover | None = None,
    ):
        self.ranges, self._alike = ranges, alike
        self.given = tuple(facts)
        self._inward = list(ranges)[::-1]
        self._found: dict[Expr, bool] = {}
        self.open: dict[Expr, None] = {}
        """Goals about sizes alone that were not proven, in the order in which they were met."""
        self._steps = STEPS

    def is_inside(self, index: Expr, size: Expr) -> bool:
        """Whether 0 <= index < size is certain."""
        return self.is_nonnegative(index) and self.is_nonnegative(size - index - 1)

    def is_nonnegative(self, goal: Expr) -> bool:
        """Whether goal >= 0 is certain."""
        self._steps = STEPS
        return self._holds(goal)

    @cached_property
    def facts(self) -> Facts:
        """What is known about sizes alone: the given facts, and that no range is empty."""
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
            self._steps -= 1
            self._found[goal] = False  # a proof does not rest on itself
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
        """A goal in which a symbol stands outside of calls only."""
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
        """A goal, by goals without one of its calls."""
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
            return any(map(self._holds, self._without_quotient(call, factor, rest)))
        return any(map(self._holds, self._without_remainder(goal, call, factor, rest)))

    def _without_extremum(self, call: Call, factor: Expr, rest: Expr) -> bool:
        """factor*min(a, b) + rest: with both a and b, or where the factor is negative, with one."""
        left, right = call.args
        cases = (self._holds(rest + factor * a) for a in call.args)
        if not self._holds(-factor if call.op == "min" else factor):
            return all(cases)
        return any(cases) or self._holds(rest * 2 + factor * (left + right))  # the mean of both

    def _without_quotient(self, call: Call, factor: Expr, rest: Expr) -> Iterator[Expr]:
        """Goals that each imply factor*(a floordiv b) + rest >= 0, where b >= 1."""
        a, b = call.args
        slack = b - 1  # a whole number is not negative if b times it is -(b - 1) or more
        if self._holds(factor):  # b*q >= a - b + 1
            yield rest * b + factor * (a - b + 1) + slack
        elif self._holds(-factor):  # b*q <= a
            yield rest * b + factor * a + slack

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
        """What a fact says of sizes: with each symbol where the fact says least, if it is known."""
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
        """A minimum that is large enough: so is each of what it is of."""
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


def _calls_with(expr: Expr, symbol: Symbol) -> list[Call]:
    """The calls of a sum in which a symbol is, remainders first: some go with their quotients."""
    calls = dict.fromkeys(a for m, _ in expr.terms for a in m
                          if isinstance(a, Call) and symbol in atom_symbols(a))
    return sorted(calls, key=lambda call: call.op != "mod")
