"""Names, values and index expressions in OpenCL C."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.symbol import Symbol
from targets.expressions import Expressions


def legal(prefix: str, name: str) -> str:
    """Any text as a name. The prefix tells it from all words and functions of OpenCL, of which
    drivers may have more than the standard: a kernel called `upsample` would not be found."""
    return f"{prefix}_{re.sub(r'[^0-9A-Za-z]+', '_', name).strip('_')}"


@dataclass(frozen=True)
class Value:
    """A tile of a program: a variable or a number (`text`), or an array of this shape."""

    text: str
    shape: tuple[int, ...] = ()

    def at(self, places: Sequence[str]) -> str:
        """The element at a position."""
        return f"{self.text}[{flat(places, self.shape)}]" if self.shape else self.text


def flat(places: Sequence[str], shape: Sequence[int]) -> str:
    """The position in an array of this shape, in row-major order."""
    steps = [math.prod(shape[d + 1:]) for d in range(len(shape))]
    return " + ".join(p if s == 1 else f"{s}*{p}" for p, s in zip(places, steps, strict=True))


class Index(Expressions[str]):
    """Index expressions over named symbols, as 64-bit integers."""

    def __init__(self, names: Mapping[Symbol, str]) -> None:
        self.names = names

    def value(self, expr: Expr) -> str:
        """Sums and products are in brackets, since what divides by them may be to their left."""
        terms = ["*".join([*([f"{factor}L"] if factor != 1 or not atoms else []),
                           *map(self.atom, atoms)]) for atoms, factor in expr.terms]
        text = " + ".join(terms or ["0L"])
        return f"({text})" if "*" in text or len(terms) > 1 else text

    def symbol(self, symbol: Symbol) -> str:
        return self.names[symbol]

    def division(self, call: Call, left: str, right: str) -> str:
        return f"{'floor_div' if call.op == 'floordiv' else 'floor_mod'}({left}, {right})"

    def extremum(self, call: Call, left: str, right: str) -> str:
        return f"{'LARGER' if call.op == 'max' else 'SMALLER'}({left}, {right})"
