"""What expressions are made of: atoms, which are symbols and calls, and products of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from dialects.symbol import Symbol

if TYPE_CHECKING:
    from dialects.expr import Expr

Atom: TypeAlias = "Symbol | Call"
Monomial: TypeAlias = "tuple[Atom, ...]"


T = TypeVar("T")


class computed_once(Generic[T]):
    """As `functools.cached_property`, which takes a lock until Python 3.12: most of its time."""

    def __init__(self, function: Callable[[Any], T]):
        self.function = function

    def __get__(self, instance: Any, owner: type) -> T:
        value = instance.__dict__[self.function.__name__] = self.function(instance)
        return value


@dataclass(frozen=True)
class Call:
    """`op(args)`, where op is one of `floordiv`, `mod`, `max`, `min`."""

    op: str
    args: tuple[Expr, ...]

    @computed_once
    def text(self) -> str:
        if self.op in ("max", "min"):
            return f"{self.op}({', '.join(map(str, self.args))})"
        left, right = (_in_parentheses(a) for a in self.args)
        return f"({left} {self.op} {right})"

    @computed_once
    def _hash(self) -> int:
        return hash((self.op, self.args))

    def __hash__(self) -> int:
        return self._hash


def _in_parentheses(expr: Expr) -> str:
    """The text as an operand: constants and single atoms need no parentheses of their own."""
    alone = expr.as_symbol is not None or _is_quotient(expr)
    plain = alone or (expr.constant is not None and expr.constant >= 0)
    return expr.text if plain else f"({expr.text})"


def _is_quotient(expr: Expr) -> bool:
    """Whether it is one `floordiv` or `mod`, whose text has parentheses."""
    if len(expr.terms) != 1:
        return False
    monomial, factor = expr.terms[0]
    return factor == 1 and len(monomial) == 1 and isinstance(monomial[0], Call) and (
        monomial[0].op in ("floordiv", "mod"))


def atom_text(atom: Atom) -> str:
    return atom.text


@cache
def monomial_key(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    """What sums are sorted by."""
    return (-len(monomial), tuple(map(atom_text, monomial)))


@cache
def times(left: Monomial, right: Monomial) -> Monomial:
    """The product, its atoms sorted."""
    return tuple(sorted(left + right, key=atom_text)) if left and right else left or right


def atom_symbols(atom: Atom) -> frozenset[Symbol]:
    """The symbols of an atom, also those inside a call."""
    if isinstance(atom, Symbol):
        return frozenset((atom,))
    return frozenset[Symbol]().union(*(a.symbols for a in atom.args))


@cache
def monomial_symbols(monomial: Monomial) -> frozenset[Symbol]:
    """The symbols of a product, also those inside calls."""
    return frozenset[Symbol]().union(*map(atom_symbols, monomial))


def without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """monomial / divisor, or None if it does not divide."""
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)
