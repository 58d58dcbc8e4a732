"""Binds size symbols to values, using the shapes of a model's input arrays.

This module serves compiled models, which run without any IR. It does not import xDSL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from dialects.strata.assumptions import MAX_SIZE
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol

if TYPE_CHECKING:
    from dialects.strata.types import Array


class EvaluationError(Exception):
    """The inputs do not fit the function, or an operation failed on the values it met."""


class Shape(Protocol):
    """A tensor type, an ArrayType, or anything else with a shape."""

    @property
    def shape(self) -> tuple[Expr, ...]: ...

    @property
    def rank(self) -> int: ...

    @property
    def short(self) -> str: ...


def bind_sizes(
    types: Sequence[Shape], arrays: Sequence[Array], names: Sequence[str] = (),
    known: Mapping[Symbol, int] | None = None,
) -> dict[Symbol, int]:
    """The values of all size symbols, from the run-time shapes of the arguments.

    `known`: symbols that already have values.

    A dim that is a plain symbol binds it; one that is linear in a single unbound symbol (`2*h +
    1`) is solved for it. Raises EvaluationError, naming the input and dim, if shapes contradict
    each other or require a size below 0 or above `MAX_SIZE`; and, naming the symbol, if no dim
    determines it.
    """
    labels = names or [f"argument {k}" for k in range(len(types))]
    dims = [dim for type_, array, label in zip(types, arrays, labels, strict=True)
            for dim in _dims(type_, array, label)]
    sizes = dict(known or {})
    waiting = sorted(dims, key=lambda dim: dim[0].as_symbol is None)
    while waiting:
        later = [dim for dim in waiting if not _bind(*dim, sizes)]
        if len(later) == len(waiting):
            unbound = ", ".join(map(str, sorted(waiting[0][0].symbols - sizes.keys())))
            raise EvaluationError(f"{waiting[0][2]} does not determine the sizes {unbound}")
        waiting = later
    return sizes


def _dims(type_: Shape, array: Array, label: str) -> list[tuple[Expr, int, str]]:
    """(expected size, size, where) per dim."""
    if array.ndim != type_.rank:
        raise EvaluationError(
            f"input {label!r} must have {type_.rank} dims, {type_.short}, not {array.shape}"
        )
    return [(expected, size, f"dim {k} of input {label!r}")
            for k, (expected, size) in enumerate(zip(type_.shape, array.shape, strict=True))]


def _bind(expected: Expr, size: int, place: str, sizes: dict[Symbol, int]) -> bool:
    """Check or solve `expected == size`. False while it cannot be solved for a single symbol."""
    rest = expected.substitute(sizes)
    unbound = sorted(rest.symbols)
    if len(unbound) > 1:
        return False
    if unbound:
        value = _solve(rest, unbound[0], size)
        if value is None:
            return False
        if value < 0:
            raise EvaluationError(f"{place} is {size}, which {rest} is for no size "
                                  f"{unbound[0]}: that would be {value}")
        if value > MAX_SIZE:
            raise EvaluationError(f"{place} is {size}, so that {unbound[0]} is {value}; no size "
                                  f"may be more than {MAX_SIZE}")
        sizes[unbound[0]] = value
        rest = rest.substitute(sizes)
    if rest.constant != size:
        is_open = expected.constant is None
        known = f" ({expected} with {settings_text(sizes)})" if is_open else ""
        raise EvaluationError(f"{place} is {size} but must be {rest}{known}")
    return True


def _solve(expected: Expr, symbol: Symbol, size: int) -> int | None:
    """Solve a linear expression for the symbol, rounding down. None if it is not linear."""
    split = expected.linear([symbol])
    if split is None or symbol not in split[0]:
        return None
    factor, offset = split[0][symbol].constant, split[1].constant
    return None if not factor or offset is None else (size - offset) // factor


def settings_text(sizes: Mapping[Symbol, int]) -> str:
    """Sizes as messages show them: `batch = 2, length = 7`."""
    return ", ".join(f"{name} = {value}" for name, value in sorted(sizes.items()))
