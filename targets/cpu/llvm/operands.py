"""Operands of LLVM instructions: types and their suffixes, constants and registers.

A register is a `str`, its name. A constant is a `Literal`, which is a `str`, too, so that both are
put into an instruction's text as they are. Nothing is ever read back from a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from dialects.symbolic.symbol import Symbol
from targets.naming import Names

_SUFFIXES = {"float": "f32", "double": "f64"}


def vector(scalar: str, width: int) -> str:
    """The type of `width` scalars; without a width, the scalar itself."""
    return f"<{width} x {scalar}>" if width else scalar


def suffix(scalar: str, width: int) -> str:
    """A type as spelled in an intrinsic's name: `v16f32`."""
    name = _SUFFIXES.get(scalar, scalar)
    return f"v{width}{name}" if width else name


class Literal(str):
    """A constant operand: a number, or one for each lane."""

    number: float | None
    """The number that it is, in all lanes; None if lanes differ."""

    __slots__ = ("number",)

    @staticmethod
    def spelled(text: str, number: float | None = None) -> Literal:
        found = Literal(text)
        found.number = number
        return found


class Number(Literal):
    """An integer constant."""

    value: int

    __slots__ = ("value",)

    @staticmethod
    @lru_cache(4096)
    def of(value: int) -> Number:
        found = Number(value)
        found.value = found.number = value
        return found


def number_of(name: str) -> float | None:
    """The number that an operand is in all lanes; None for registers."""
    return name.number if isinstance(name, Literal) else None


def is_literal(name: str) -> bool:
    """Whether an operand is a constant, not a register."""
    return isinstance(name, Literal)


def symbol_names(names: Iterable[str]) -> list[str]:
    """The names of functions of a module, for names in a model: legal and distinct."""
    fresh = Names(_legal).fresh
    return [fresh(name) for name in names]


def kernel_names(names: Iterable[str]) -> list[str]:
    """The same for kernels, none of which is named like the runtime functions, `strata_...`."""
    fresh = Names(lambda name: re.sub(r"^(?=strata_)", "kernel_", _legal(name))).fresh
    return [fresh(name) for name in names]


def _legal(name: str) -> str:
    return re.sub(r"[^\w.$]|^(?=\d)", "_", name, flags=re.ASCII)


def register(name: str) -> Symbol:
    """The symbol of a register in index expressions; its text is the register's name."""
    return Symbol.operand(name[1:])
