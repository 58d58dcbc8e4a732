"""The range that `start:end:step` selects from a dim, by the rules of Python, NumPy and ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dialects.symbolic.expr import Expr, maximum, minimum
from dialects.symbolic.ranges import is_nonnegative, lower_bound
from dialects.symbolic.symbol import Symbol

NO_LIMITS: Mapping[Symbol, Expr] = MappingProxyType({})
_NONE: frozenset[Symbol] = frozenset()
FAR = 2**31 - 1
"""Bounds of at least this magnitude mean the end of the dim: exporters write them so."""

FARTHEST = 2**40
"""No dim is this long, so a step of this magnitude takes one entry at most."""


def at_least_zero(size: Expr) -> Expr:
    """max(size, 0), without the maximum if the size is never negative, even for sizes of 0."""
    return size if is_certain(size) else maximum(size, 0)


def is_certain(difference: Expr) -> bool:
    """Whether a difference of positions is at least 0 for all sizes from 0 up.

    `is_nonnegative` takes sizes to be at least 1, which holds for points of a domain; bounds are
    computed whether or not there are any points.
    """
    return is_nonnegative(difference, _NONE)


def slice_bounds(
    size: Expr, start: Expr, end: Expr, step: int, limits: Mapping[Symbol, Expr] = NO_LIMITS
) -> tuple[Expr, Expr]:
    """First element and count of `start:end:step` of a dim, with ONNX's rules.

    Both are right for every size from 0 up. `limits`: upper bounds of symbols, such as the number
    of an iteration. Steps are below FARTHEST in magnitude.
    """
    begin, stop = (_from_front(e, size) for e in (start, end))
    if step > 0:
        first, last = (_clamp(p, Expr.of(0), size, limits) for p in (begin, stop))
        ordered = last == size or _at_most(begin, stop, limits)
        count = (last - first).ceildiv(step)
    else:  # ONNX clamps the start to the dim, and the end to -1
        first = _clamp(begin, minimum(size - 1, 0), size - 1, limits)
        last = _clamp(stop, Expr.of(-1), size - 1, limits)
        ordered = _at_most(stop, begin, limits) or last.constant == -1
        count = (first - last).ceildiv(-step)
    return first, count if ordered else at_least_zero(count)


def _from_front(position: Expr, size: Expr) -> Expr:
    """A position that counts from the end when it is negative, for a dim of this size."""
    if is_certain(position):
        return size if position.constant is not None and position.constant >= FAR else position
    if position.constant is not None and position.constant <= -FAR:
        return Expr.of(-1)
    if is_certain(-position - 1):
        return size + position
    is_negative = minimum(maximum(-position, 0), 1)
    return position + size * is_negative


def _clamp(position: Expr, low: Expr, high: Expr, limits: Mapping[Symbol, Expr]) -> Expr:
    """The position, limited to [low, high]; `low` is at most 0 and at most `high`."""
    if _at_most(high, position, limits):
        return high
    below = position if _at_most(position, high, limits) else minimum(position, high)
    inside = _at_most(Expr.of(0), position, limits) or _at_most(low, below, limits)
    return below if inside else maximum(below, low)


def _at_most(low: Expr, high: Expr, limits: Mapping[Symbol, Expr]) -> bool:
    """Whether low <= high is certain, with each limited symbol from 0 to below its limit."""
    room = lower_bound(high - low, limits)
    return room is not None and is_certain(room)
