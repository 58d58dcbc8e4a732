"""What `start:end:step` takes of a dim, in sizes: with the rules of Python, NumPy and ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dialects.expr import Expr, maximum, minimum
from dialects.ranges import is_nonnegative, lower_bound
from dialects.symbol import Symbol

NO_LIMITS: Mapping[Symbol, Expr] = MappingProxyType({})
_FAR = 2**31 - 1
"""Bounds from here on mean the end of the dim, as exporters write it."""


def at_least_zero(size: Expr) -> Expr:
    """max(size, 0), left out where sizes of at least 1 cannot make it negative."""
    return size if is_nonnegative(size) else maximum(size, 0)


def slice_bounds(
    size: Expr, start: Expr, end: Expr, step: int, limits: Mapping[Symbol, Expr] = NO_LIMITS
) -> tuple[Expr, Expr]:
    """First element and count of `start:end:step` of a dim, with ONNX's rules.

    `limits`: symbols that stay below something, as the number of an iteration does.
    """
    zero, before = Expr.of(0), Expr.of(-1)
    if step > 0:
        lows, high = (zero, zero), size
    else:  # ONNX starts inside, and ends at most before the first element
        lows, high = (before if size.constant == 0 else zero, before), size - 1
    first, last = (_clamp(_from_front(e, size), low, high, limits)
                   for e, low in zip((start, end), lows, strict=True))
    count = (last - first).ceildiv(step) if step > 0 else (first - last).ceildiv(-step)
    return first, at_least_zero(count)


def _from_front(position: Expr, size: Expr) -> Expr:
    """A position that counts from the end when it is negative, for a dim of this size."""
    if is_nonnegative(position):
        return size if position.constant is not None and position.constant >= _FAR else position
    if position.constant is not None and position.constant < -_FAR:
        return Expr.of(-1)
    if is_nonnegative(-position - 1):
        return size + position
    is_negative = minimum(maximum(-position, 0), 1)
    return position + size * is_negative


def _clamp(position: Expr, low: Expr, high: Expr, limits: Mapping[Symbol, Expr]) -> Expr:
    below = position if _at_most(position, high, limits) else minimum(position, high)
    below = high if _at_most(high, position, limits) else below
    return below if _at_most(low, below, limits) else maximum(below, low)


def _at_most(low: Expr, high: Expr, limits: Mapping[Symbol, Expr]) -> bool:
    """Whether low <= high is certain, with each limited symbol from 0 to below its limit."""
    room = lower_bound(high - low, limits)
    return room is not None and is_nonnegative(room)
