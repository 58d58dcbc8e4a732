"""What expressions are made of: atoms, which are symbols and calls, and products of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from dialects.expr import Expr

Atom: TypeAlias = "str | Call"
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
    text = str(expr)
    return text if re.fullmatch(r"[\w.$%]+|\(.*\)", text) and len(expr.terms) <= 1 else f"({text})"


def atom_text(atom: Atom) -> str:
    return atom if isinstance(atom, str) else atom.text


@cache
def monomial_key(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    """What sums are sorted by."""
    return (-len(monomial), tuple(map(atom_text, monomial)))


@cache
def times(left: Monomial, right: Monomial) -> Monomial:
    """The product, its atoms sorted."""
    return tuple(sorted(left + right, key=atom_text)) if left and right else left or right


def atom_symbols(atom: Atom) -> frozenset[str]:
    """The symbols of an atom, also those inside a call."""
    if isinstance(atom, str):
        return frozenset((atom,))
    return frozenset[str]().union(*(a.symbols for a in atom.args))


@cache
def monomial_symbols(monomial: Monomial) -> frozenset[str]:
    """The symbols of a product, also those inside calls."""
    return frozenset[str]().union(*map(atom_symbols, monomial))


def without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """monomial / divisor, or None if it does not divide."""
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)
