"""Helpers for `infer` methods of graph operations: kinds of elements and combining sizes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from xdsl.ir import Attribute

from dialects.graph.base import Attributes, ShapeError
from dialects.records import dataclass
from dialects.strata.types import (
    TensorType,
    f32,
    format_sizes,
    i1,
    is_float,
    is_half,
    is_narrow_float,
    is_short_integer,
)
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_at_most, is_nonnegative
from dialects.symbolic.symbol import Symbol

_NONE: frozenset[Symbol] = frozenset()


@dataclass(frozen=True)
class Kind:
    """A set of element types, and its name in error messages."""

    text: str
    holds: Callable[[Attribute], bool]


def is_computed(element: Attribute) -> bool:
    """False for narrow floats and integers of less than a byte, which are only moved and
    converted.
    """
    return not is_narrow_float(element) and not is_short_integer(element)


FLOATS = Kind("floats", lambda e: is_computed(e) and is_float(e))
NUMBERS = Kind("floats or integers", lambda e: is_computed(e) and e != i1)
BITS = Kind("truth values or integers", lambda e: is_computed(e) and not is_float(e))
INTEGERS = Kind("integers", lambda e: is_computed(e) and not is_float(e) and e != i1)
ORDERED = Kind("of any type that is computed with", is_computed)
ANY = Kind("any", lambda element: True)


@contextmanager
def cited(constraint: str) -> Generator[None]:
    """Cite the caller's constraint for a violation found by another operation's `infer`."""
    try:
        yield
    except ShapeError as error:
        raise ShapeError(f"{constraint}: {str(error).partition(': ')[2] or error}") from error


def check_kind(kind: Kind, element: Attribute, constraint: str = "C2") -> None:
    if kind is not ANY and not is_computed(element):
        raise ShapeError(f"{constraint}: {element} is only moved and converted: cast it first")
    if not kind.holds(element):
        raise ShapeError(f"{constraint}: elements must be {kind.text}, not {element}")


def check_same_element(types: Sequence[TensorType], constraint: str = "C1") -> None:
    first = types[0].element
    for type_ in types[1:]:
        if type_.element != first:
            raise ShapeError(f"{constraint}: element types differ: {first} and {type_.element}")


def product_element(
    types: Sequence[TensorType], attributes: Attributes, constraint: str
) -> Attribute:
    """The element type of a sum of products: the operands', or `to`.

    `to` is an integer for integers of any types, or f32 for equal half-precision or narrow floats.
    """
    to = attributes.get("to")
    for type_ in types:
        if to != f32 or not is_narrow_float(type_.element):
            check_kind(NUMBERS if to in (None, f32) else INTEGERS, type_.element, constraint)
    if to is None or to == f32:
        check_same_element(types)
    if to == f32 and not is_half(types[0].element) and not is_narrow_float(types[0].element):
        raise ShapeError(f"C1: only narrower floats are summed in f32, not {types[0].short}")
    if to is None:
        return types[0].element
    if to != f32:
        check_kind(INTEGERS, to, "C1")
    return to


def check_rank(type_: TensorType, rank: int, what: str, constraint: str) -> None:
    if type_.rank != rank:
        raise ShapeError(f"{constraint}: {what} must have {rank} dims, not {type_.short}")


def check_count(types: Sequence[TensorType], low: int, high: int) -> None:
    """The number of operands, for operations whose last operands are optional."""
    if not low <= len(types) <= high:
        raise ShapeError(f"C0: takes {low} to {high} operands, not {len(types)}")


def check_axis(axis: int, rank: int, constraint: str) -> None:
    if not 0 <= axis < rank:
        raise ShapeError(f"{constraint}: axis {axis} is not in 0 to {rank - 1}")


# ---------------------------------------------------------------------- sizes
def certain_sign(expr: Expr) -> int | None:
    """The sign -1, 0 or 1, if it is the same for all non-negative sizes; otherwise None."""
    if expr.constant is not None:
        return (expr.constant > 0) - (expr.constant < 0)
    return next((sign for sign in (1, -1) if is_nonnegative(expr * sign - 1, _NONE)), None)


def certainly_differ(left: Expr, right: Expr) -> bool:
    """Whether two sizes are unequal whatever the values of their symbols."""
    return certain_sign(left - right) not in (None, 0)


def agree_when_empty(left: Expr, right: Expr) -> bool:
    """Whether two sizes can be equal only where a symbol is 0, as 3n and n."""
    return not certainly_differ(left, right) and (
        is_at_most(left + 1, right) or is_at_most(right + 1, left))


def same_size(left: Expr, right: Expr, message: str) -> Expr:
    """The size that both denote; a constant is preferred. Raises ShapeError if they differ."""
    if left == right:
        return left
    if certainly_differ(left, right):
        raise ShapeError(f"{message}: {left} and {right}")
    return right if right.constant is not None else left


def broadcast_size(left: Expr, right: Expr, message: str) -> Expr:
    """The size of a result dim under NumPy broadcasting. Raises ShapeError if they do not fit.

    Of two different symbolic sizes the left one is used; whether they agree is only known at run
    time.
    """
    if left == right or right.constant == 1:
        return left
    if left.constant == 1:
        return right
    if certainly_differ(left, right):
        raise ShapeError(f"{message}: {left} and {right}")
    return right if right.constant is not None else left


def broadcast_shapes(shapes: Sequence[Sequence[Expr]], constraint: str = "C3") -> list[Expr]:
    """The NumPy broadcast of shapes of any ranks."""
    result: list[Expr] = []
    for shape in shapes:
        result = _broadcast_pair(result, list(shape), constraint)
    return result


def _broadcast_pair(left: list[Expr], right: list[Expr], constraint: str) -> list[Expr]:
    if left == right:
        return left
    message = (f"{constraint}: shapes {format_sizes(left)} and {format_sizes(right)} "
               "do not broadcast")
    rank = max(len(left), len(right))
    one = [Expr.of(1)]
    padded = (one * (rank - len(left)) + left, one * (rank - len(right)) + right)
    return [broadcast_size(a, b, message) for a, b in zip(*padded, strict=True)]
