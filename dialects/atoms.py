"""What expressions are made of: atoms, which are symbols and calls, and products of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from dialects.expr import Expr

Atom: TypeAlias = "str | Call"
Monomial: TypeAlias = "tuple[Atom, ...]"


@dataclass(frozen=True)
class Call:
    """`op(args)`, where op is one of `floordiv`, `mod`, `max`, `min`."""

    op: str
    args: tuple[Expr, ...]

    @cached_property
    def text(self) -> str:
        if self.op in ("max", "min"):
            return f"{self.op}({', '.join(map(str, self.args))})"
        left, right = (_in_parentheses(a) for a in self.args)
        return f"({left} {self.op} {right})"

    def __hash__(self) -> int:
        return hash(self.text)


def _in_parentheses(expr: Expr) -> str:
    text = str(expr)
    return text if re.fullmatch(r"[\w.$%]+|\(.*\)", text) and len(expr.terms) <= 1 else f"({text})"


def atom_text(atom: Atom) -> str:
    return atom if isinstance(atom, str) else atom.text


def monomial_key(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    return (-len(monomial), tuple(map(atom_text, monomial)))


def atom_symbols(atom: Atom) -> frozenset[str]:
    """The symbols of an atom, also those inside a call."""
    if isinstance(atom, str):
        return frozenset((atom,))
    return frozenset[str]().union(*(a.symbols for a in atom.args))


def without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """monomial / divisor, or None if it does not divide."""
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)
