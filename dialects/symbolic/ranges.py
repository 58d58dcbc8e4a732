"""Signs, bounds and simplification of expressions, derived from ranges of axes and sizes.

Every size is taken to be at least 1, and every axis lies in 0 <= axis < extent. If a size is 0 at
run time, the domain has no points, so statements about its points hold trivially. A number
computed at run time (`Kind.COMPUTED`) may be 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from math import gcd, inf

from dialects.symbolic.expr import Atom, Call, Expr, apply_call
from dialects.symbolic.symbol import Kind, Symbol


def is_at_most(low: Expr, high: Expr, positive: frozenset[Symbol] | None = None) -> bool:
    """Whether low <= high is certain, in the sense of `is_nonnegative`."""
    return is_nonnegative(high - low, positive)


@cache
def is_nonnegative(expr: Expr, positive: frozenset[Symbol] | None = None) -> bool:
    """Whether expr >= 0 is certain when these symbols are at least 1 and all others at least 0.

    `positive` defaults to all sizes. A statement that must also hold when a size is 0 at run time,
    such as one about memory, passes only the symbols that are known to be positive.
    """
    return _holds(_from_zero(expr, positive))


def _from_zero(expr: Expr, positive: frozenset[Symbol] | None = None) -> Expr:
    """The expression rewritten over symbols that all start at 0."""
    from_one = (s for s in expr.symbols
                if (s.kind is Kind.SIZE if positive is None else s in positive))
    return expr.substitute({s: Expr.symbol(s) + 1 for s in from_one})


@cache
def least(expr: Expr) -> float:
    """A constant lower bound of expr, with symbols as in `is_nonnegative`; -inf if unknown.

    An expression that grows with every symbol is smallest when all of them are.
    """
    return _from_zero(expr).evaluate(dict.fromkeys(expr.symbols, 0)) if _grows(expr) else -inf


def _grows(expr: Expr) -> bool:
    """Whether expr certainly never decreases when a symbol grows."""
    return all(not monomial or (factor > 0 and len(monomial) == 1 and _atom_grows(monomial[0]))
               for monomial, factor in expr.terms)


def _atom_grows(atom: Atom) -> bool:
    if isinstance(atom, Symbol):
        return True
    left, right = atom.args
    if atom.op == "floordiv":
        return _grows(left) and (right.constant or 0) > 0
    return atom.op in ("min", "max") and _grows(left) and _grows(right)


def _holds(expr: Expr) -> bool:
    """Whether expr >= 0 is certain when every symbol is at least 0."""
    return all(factor >= 0 and all(_atom_holds(atom) for atom in monomial)
               for monomial, factor in expr.terms)


def _atom_holds(atom: Atom) -> bool:
    """The same as `_holds`, for a symbol or a call."""
    if isinstance(atom, Symbol):
        return True
    left, right = map(_holds, atom.args)
    if atom.op == "floordiv":
        return left and right
    if atom.op == "mod":
        return right
    return left or right if atom.op == "max" else left and right


def upper_bound(expr: Expr, extents: Mapping[Symbol, Expr]) -> Expr | None:
    """The largest value of expr with each axis in 0 <= axis < extent; None if unknown.

    Divisions by positive integers and remainders are bounded independently of each other.
    """
    return _bound(expr, extents, True)


def lower_bound(expr: Expr, extents: Mapping[Symbol, Expr]) -> Expr | None:
    """The smallest value of expr with each axis in 0 <= axis < extent; None if unknown."""
    return _bound(expr, extents, False)


def _bound(expr: Expr, extents: Mapping[Symbol, Expr], upper: bool) -> Expr | None:
    axes = extents.keys()
    if axes.isdisjoint(expr.symbols):
        return expr
    total = Expr.of(0)
    for monomial, factor in expr.terms:
        moving = [a for a in monomial if not axes.isdisjoint(a.symbols)]
        rest = Expr(((tuple(a for a in monomial if a not in moving), factor),))
        if not moving:
            total = total + rest
            continue
        rising = is_nonnegative(rest)
        if len(moving) > 1 or not (rising or is_nonnegative(-rest)):
            return None
        bound = _atom_bound(moving[0], extents, rising == upper)
        if bound is None:
            return None
        total = total + rest * bound
    return total


def _atom_bound(atom: Atom, extents: Mapping[Symbol, Expr], upper: bool) -> Expr | None:
    """The largest (or smallest) value of an axis or a call."""
    if isinstance(atom, Symbol):
        return extents[atom] - 1 if upper else Expr.of(0)
    left, right = atom.args
    if right.symbols & extents.keys():
        return None
    if atom.op == "mod":
        return right - 1 if upper else Expr.of(0)
    if atom.op != "floordiv" or not is_nonnegative(right - 1):
        return None
    inner = _bound(left, extents, upper)
    return None if inner is None else inner // right


def simplify(expr: Expr, extents: Mapping[Symbol, Expr]) -> Expr:
    """Simplify divisions and remainders using the ranges of the axes.

    (64*i + j) floordiv 64 == i and (64*i + j) mod 64 == j when 0 <= j < 64; and then
    (64*i + j) floordiv 192 == i floordiv 3 and (64*i + j) mod 192 == 64*(i mod 3) + j.
    """
    if not any(isinstance(a, Call) for m, _ in expr.terms for a in m):
        return expr
    total = Expr.of(0)
    for monomial, factor in expr.terms:
        product_ = Expr.of(factor)
        for atom in monomial:
            product_ = product_ * _simplify_atom(atom, extents)
        total = total + product_
    return total


def _simplify_atom(atom: Atom, extents: Mapping[Symbol, Expr]) -> Expr:
    if isinstance(atom, Symbol):
        return Expr.symbol(atom)
    left, right = (simplify(a, extents) for a in atom.args)
    if atom.op not in ("floordiv", "mod"):
        return apply_call(atom.op, [left, right])
    quotient, rest = left.divide(right)
    low, high = lower_bound(rest, extents), upper_bound(rest, extents)
    inside = (low is not None and high is not None and is_nonnegative(low)
              and is_at_most(high, right - 1))
    if inside:
        return quotient if atom.op == "floordiv" else rest
    if (split := _in_steps(rest, right, extents)) is not None:
        step, count, place = split
        parts = apply_call(atom.op, [count, right // step])
        return quotient + parts if atom.op == "floordiv" else parts * step + place
    return apply_call(atom.op, [left, right])


def _in_steps(
    expr: Expr, divisor: Expr, extents: Mapping[Symbol, Expr]
) -> tuple[int, Expr, Expr] | None:
    """(step, count, place) with expr == step*count + place and 0 <= place < step.

    The step divides the constant divisor. None if there is no such decomposition.
    """
    if (size := divisor.constant) is None:
        return None
    for step in sorted({gcd(factor, size) for _, factor in expr.terms} - {1}, reverse=True):
        place = Expr(tuple((m, c) for m, c in expr.terms if c % step))
        low, high = lower_bound(place, extents), upper_bound(place, extents)
        if place.terms and low is not None and high is not None and is_nonnegative(low) and (
                is_at_most(high, Expr.of(step - 1))):
            return step, (expr - place) // step, place
    return None


def divisors(expr: Expr) -> Iterator[Expr]:
    """The non-constant divisors in `expr`, which must be checked not to be 0 at run time."""
    for atom in (a for monomial, _ in expr.terms for a in monomial):
        if isinstance(atom, Call):
            yield from (d for a in atom.args for d in divisors(a))
            if atom.op in ("floordiv", "mod") and atom.args[1].constant is None:
                yield atom.args[1]
