"""Facts about sizes, as non-negative expressions, and proofs of what follows from them.

    Facts([n - m, m - 4]).imply(2*n - 8)          2*n - 8 == 2*(n - m) + 2*(m - 4)

Sizes are at least 0. A goal follows if it is a sum of products of sizes and of facts, each
multiplied by a positive number and a product of sizes. By Farkas' lemma, this proves every linear
inequality that follows over the rational numbers. Facts and goals are tightened to integers. The
search takes a term that may be negative, cancels it with a multiple of a fact that has such a
term, and continues with the shortest remaining sum, preferring sums over the goal's own sizes. The
search stays small because few facts mention the same sizes.

Most goals that are asked for do not follow. The facts are therefore evaluated at a few sizes, and a
goal that is negative where all facts hold is refuted without a search.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, lru_cache
from heapq import heappop, heappush
from itertools import combinations, islice
from math import gcd
from operator import itemgetter
from zlib import crc32

from dialects.symbolic.expr import Atom, Call, Expr, Monomial, monomial_key, without
from dialects.symbolic.remembered import remembered
from dialects.symbolic.symbol import Symbol

GOALS = 30
"""The number of sums that a search may try. Searches in real programs try a few."""
CALLS = 6
"""The number of calls up to which a fact is expanded: one with k calls has up to 2**k parts."""
POINTS = 8
"""The number of points at which goals are evaluated."""
NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, 16, 32, 33, 64, 100, 128, 224, 256, 512, 1000, 4096)
"""Sizes of these points, beside the bounds that facts state."""
KNOWN = 4096
"""The most values that are kept at a point."""


_Term = tuple[tuple[int, int], Monomial, int, Expr]
"""A term of a fact: the numbers of both, which are its place; its product and factor; the fact."""


class Facts:
    """Expressions over sizes that are known to be non-negative."""

    def __init__(self, given: Iterable[Expr]):
        self.known: dict[Expr, None] = {}
        self._having: defaultdict[Monomial, list[_Term]] = defaultdict(list)
        self._found: dict[tuple[Expr, int], bool] = {}
        self._points: list[_Point] = []
        decided: list[Expr] = []
        for fact in given:
            fact = tightened(fact)
            decided += _parts(fact) if _count_calls(fact) <= CALLS else [fact]
        for part in decided:
            self._add(part)
        for part in dict.fromkeys(decided):  # now that it may be known which one a minimum is
            if _count_calls(part) <= CALLS:
                self._add_decided(part)
        self.__dict__.pop("least", None)
        self._found.clear()
        self._points = [*islice((p for p in _points_with(self._bounds()) if self._hold(p)), POINTS)]

    def _add(self, fact: Expr) -> None:
        """Add a fact unless it is trivial. If it shows that a product is not 0, neither is any
        factor.
        """
        fact = tightened(fact)
        if fact in self.known or is_plain(fact):
            return
        for place, (monomial, number) in enumerate(fact.terms):
            self._having[monomial].append(((len(self.known), place), monomial, number, fact))
        self.known[fact] = None
        if fact.offset < 0:
            for factor in self._factors(fact - fact.offset):
                self._add(factor - 1)

    @cached_property
    def least(self) -> dict[Symbol, Expr]:
        """Sizes with a known lower bound, each rewritten as that bound plus a non-negative rest."""
        least: dict[Symbol, int] = {}
        for fact in self.known:
            name = (fact - fact.offset).as_symbol
            if name is not None:
                least[name] = max(least.get(name, 0), -fact.offset)
        return {name: Expr.symbol(name) + number for name, number in least.items() if number}

    def _factors(self, product: Expr) -> Iterator[Expr]:
        """The factors of a product: sizes, and sums of sizes that are known to be non-negative."""
        atoms = dict.fromkeys(a for m, _ in product.terms[:1] for a in m)
        own = [a for a in map(_of_atom, atoms) if is_plain(a)]
        for factor in (*own, *(f for f in self.known if len(f.terms) > 1)):
            if not product.divide(factor)[1].terms:
                yield factor

    def _add_decided(self, fact: Expr) -> None:
        """Add a fact with minima and maxima replaced by the operands that they are known to equal.

        They are replaced one after the other, never in every combination.
        """
        for atom in [a for m, _ in fact.terms for a in m if isinstance(a, Call)]:
            if atom.op not in ("min", "max") or (split := split_call(fact, atom)) is None:
                continue
            left, right = atom.args
            if atom.op == "max":
                left, right = right, left
            for low, high in ((left, right), (right, left)):  # for a minimum
                if self.imply(high - low):
                    chosen = low if atom.op == "min" else high
                    for part in _parts(tightened(split[1] + split[0] * chosen)):
                        self._add(part)
                        self._add_decided(part)
                    return

    # ------------------------------------------------------------------ proofs
    def imply(self, goal: Expr, goals: int = GOALS) -> bool:
        """Whether the facts imply goal >= 0. The search tries at most `goals` sums."""
        start = tightened(goal)
        if is_plain(start) or (
                start.symbols & self.least.keys() and is_plain(start.substitute(self.least))):
            return True
        key = start, goals
        if key not in self._found:
            self._found[key] = not self._refute(start) and self._search(start, goals)
        return self._found[key]

    def _bounds(self) -> Iterator[int]:
        """The numbers that facts about a single size compare it with."""
        for fact in self.known:
            if len(fact.symbols) == 1 and len(fact.terms) <= 2 and not fact.offset:
                yield abs(fact.offset)

    def _hold(self, point: _Point) -> bool:
        """Whether all facts hold at a point."""
        return all(map(point.fulfils, self.known))

    def _refute(self, goal: Expr) -> bool:
        """Whether the goal is negative at a point where all facts hold."""
        values = (_value(goal, point) for point in self._points)
        return any(value is not None and value < 0 for value in values)

    def _search(self, start: Expr, goals: int) -> bool:
        waiting, seen = [(0, 0, 0, start)], {start}
        while waiting and len(seen) <= goals:
            for rest in self._less(heappop(waiting)[-1]):
                if is_plain(rest):
                    return True
                if rest not in seen:
                    seen.add(rest)
                    others = len(rest.symbols - start.symbols)
                    heappush(waiting, (others, len(rest.terms), len(seen), rest))
        return False

    def _less(self, goal: Expr) -> Iterator[Expr]:
        """Goals that imply a goal and lack its first term that may be negative."""
        monomial, factor = next((m, c) for m, c in goal.terms if c < 0 or not is_plain_product(m))
        yield from _cancelled(goal, monomial, factor, self._terms_in(monomial))
        yield from _cancelled(goal, monomial, factor, [
            ((0, 0), own, number, fact) for fact in _of_calls(goal) for own, number in fact.terms])

    def _terms_in(self, monomial: Monomial) -> list[_Term]:
        """The terms of known facts that divide a product, in the order of the facts."""
        if 2 ** len(monomial) > len(self._having):
            found = [own for own in self._having if without(monomial, own) is not None]
        else:
            found = {part for size in range(len(monomial) + 1)
                     for part in combinations(monomial, size)}
        return sorted((term for own in found for term in self._having.get(own, ())),
                      key=itemgetter(0))


# ---------------------------------------------------------------------- points
class _Point(dict[Atom, int]):
    """A size for every symbol, chosen when it is first asked for, and the values of calls there.
    It also knows which facts hold: sets of facts about the same sizes share most of them."""

    def __init__(self, number: int, sizes: Sequence[int]):
        super().__init__()
        self._number, self._sizes = number, sizes
        self._fulfilled: dict[Expr, bool] = {}

    def forget(self) -> None:
        """Start again if much is known, which few of today's expressions may still need."""
        if len(self) + len(self._fulfilled) > KNOWN:
            self.clear()
            self._fulfilled.clear()

    def fulfils(self, fact: Expr) -> bool:
        """Whether a fact holds here."""
        found = self._fulfilled.get(fact)
        if found is None:
            value = _value(fact, self)
            found = self._fulfilled[fact] = value is not None and value >= 0
        return found

    def __missing__(self, atom: Atom) -> int:
        """The same size for all symbols, or one that depends on the symbol's name."""
        found = self[atom] = self._size(atom) if isinstance(atom, Symbol) else (
            _OPERATIONS[atom.op](*map(self.value, atom.args)))
        return found

    def _size(self, symbol: Symbol) -> int:
        count = len(self._sizes)
        place = self._number if self._number < count else crc32(
            f"{self._number} {symbol.name}".encode()) % count
        return self._sizes[place]

    def value(self, expr: Expr) -> int:
        """The value of an expression. Raises ZeroDivisionError."""
        total = 0
        for monomial, factor in expr.terms:
            for atom in monomial:
                factor *= self[atom]
            total += factor
        return total


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": int.__floordiv__, "mod": int.__mod__, "max": max, "min": min}


def _points_with(bounds: Iterable[int]) -> Sequence[_Point]:
    """Points in a fixed order. Those of equal sizes come first, because many facts say that sizes
    are equal."""
    points = _points(tuple(sorted({*NUMBERS, *islice(dict.fromkeys(bounds), len(NUMBERS))})))
    for point in points:
        point.forget()
    return points


@lru_cache(64)
def _points(sizes: tuple[int, ...]) -> Sequence[_Point]:
    return [_Point(number, sizes) for number in range(3 * len(sizes))]


def _value(expr: Expr, point: _Point) -> int | None:
    """The value of an expression at a point; None if it divides by 0 there."""
    try:
        return point.value(expr)
    except ZeroDivisionError:
        return None


@lru_cache(4096)
def facts_about(given: tuple[Expr, ...]) -> Facts:
    """The facts at a place in a kernel, cached because many places share them."""
    return Facts(given)


def _cancelled(
    goal: Expr, monomial: Monomial, factor: int, terms: Iterable[_Term]
) -> Iterator[Expr]:
    """A multiple of the goal minus a multiple of a fact, chosen so that one term cancels."""
    for _, own, number, fact in terms:
        over = without(monomial, own) if (number > 0) == (factor > 0) else None
        if over is None or not is_plain_product(over):
            continue
        common = gcd(number, factor)
        multiple = fact * Expr(((over, abs(factor) // common),))
        times = abs(number) // common  # an integer above -1 is at least 0
        yield tightened(goal * times + (times - 1) - multiple)


def tightened(expr: Expr) -> Expr:
    """A tighter expression that is non-negative for the same integers: 4*n - 6 becomes n - 2."""
    common = gcd(*[c for m, c in expr.terms if m])
    if common < 2:
        return expr
    return Expr(tuple((m, c // common) for m, c in expr.terms if m)) + expr.offset // common


def _parts(fact: Expr) -> Iterator[Expr]:
    """The fact itself, for goals with the same calls, and what it implies without its calls.

        min(a, b) >= r: a >= r, b >= r      a floordiv b >= r: a >= b*r, for a number b
    """
    yield fact
    call = next((a for m, _ in fact.terms for a in m if isinstance(a, Call)), None)
    split = None if call is None else split_call(fact, call)
    if call is None or split is None or split[0].constant is None:
        return
    factor, rest, (left, right) = split[0].constant, split[1], call.args
    if call.op in ("min", "max") and (factor > 0) == (call.op == "min"):
        for case in (left, right):
            yield from _parts(tightened(rest + case * factor))
    elif call.op == "floordiv" and (right.constant or 0) > 0:
        distance = left if factor > 0 else left - right + 1  # b*q <= a, b*q >= a - b + 1
        yield from _parts(tightened(rest * right + distance * factor))


@cache
def _count_calls(expr: Expr) -> int:
    """The number of calls in an expression, those inside others included."""
    calls = [a for m, _ in expr.terms for a in m if isinstance(a, Call)]
    return len(calls) + sum(_count_calls(arg) for call in calls for arg in call.args)


def _of_calls(goal: Expr) -> Iterator[Expr]:
    """The facts that follow from the definitions of a goal's calls."""
    for call in dict.fromkeys(a for m, _ in goal.terms for a in m if isinstance(a, Call)):
        yield from _of_call(call)


@remembered
def _of_call(call: Call) -> Sequence[Expr]:
    """The facts that follow from a call's definition."""
    value, (left, right) = _of_atom(call), call.args
    if call.op in ("min", "max"):
        sign = 1 if call.op == "min" else -1
        return (left - value) * sign, (right - value) * sign
    if (right.constant or 0) <= 0:
        return ()
    if call.op == "floordiv":
        return left - value * right, value * right + right - 1 - left
    return (right - 1 - value,)


# ---------------------------------------------------------------------- signs
@remembered
def is_plain(expr: Expr) -> bool:
    """Whether a sum of products of sizes is non-negative because all of its terms are."""
    return all(c > 0 and is_plain_product(m) for m, c in expr.terms)


@cache
def is_plain_product(monomial: Monomial) -> bool:
    """Whether every factor of a product is non-negative by its form."""
    return all(map(_is_plain_atom, monomial))


def _is_plain_atom(atom: Atom) -> bool:
    """Whether an atom is non-negative: a symbol, or a call that is so wherever it is defined."""
    if not isinstance(atom, Call):
        return True
    left, right = map(is_plain, atom.args)
    if atom.op == "mod":
        return right
    return left or right if atom.op == "max" else left and right


# ---------------------------------------------------------------------- expressions
def split_call(expr: Expr, call: Call) -> tuple[Expr, Expr] | None:
    """(factor, rest) with expr == factor*call + rest; None if the call is multiplied by itself.

    The call may still occur inside other calls of the factor and the rest.
    """
    factor: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    for monomial, number in expr.terms:
        count = monomial.count(call)
        if count > 1:
            return None
        over = without(monomial, (call,)) if count else None
        if over is None:
            rest.append((monomial, number))
        else:
            factor.append((over, number))
    factor.sort(key=lambda term: monomial_key(term[0]))
    return Expr(tuple(factor)), Expr(tuple(rest))


def _of_atom(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))
