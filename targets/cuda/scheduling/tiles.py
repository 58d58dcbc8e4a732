"""Helpers shared by all schedule rules of the CUDA target."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from xdsl.ir import SSAValue

from dialects.loop import KernelOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import TensorType, byte_width
from dialects.symbolic.expr import Expr
from targets.cuda.machine import WARP


def power(size: Expr, most: int, least: int = 1) -> int:
    """The smallest power of two that covers an extent, within bounds; `most` if it is unknown."""
    value = size.constant
    return most if value is None else max(least, min(most, 1 << max(0, value - 1).bit_length()))


def two_powers(size: Expr, most: int, least: int) -> int:
    """The smallest sum of at most two powers of two, each at least `least`, that covers an extent;
    as `power` beyond `most`. `block-split-tiles` makes two tiles of it."""
    whole, value = power(size, most, least), size.constant
    if value is None or value > whole:
        return whole
    first = whole // 2
    rest = power(Expr.of(max(1, value - first)), first, least)
    return first + rest if first >= least and first < value else whole


def even_power(size: Expr, most: int) -> int:
    """A tile of at most `most` elements, smaller where that wastes less beyond the end."""
    value = size.constant
    if value is None or value <= most:
        return power(size, most) if value is None else _even_part(value)
    choices = [max(1, most >> k) for k in range(5) if k < 3 or most >> k >= 2 * WARP]
    beyond = {tile: -value % tile for tile in choices}
    return next((tile for tile in choices if 8 * beyond[tile] <= value), choices[-1])


def _even_part(size: int) -> int:
    """A power of two that covers an extent, or a part of it where more than half as much would be
    beyond the end.

    Parts of rows are read with pauses between them, so short ones waste more than masked threads.
    """
    whole = power(Expr.of(size), size * 2)
    parts = [whole >> k for k in range(5) if whole >> k >= 2 * WARP]
    best = min(parts, key=lambda part: (-size % part, -part), default=whole)
    return whole if 2 * (whole - size) <= size else best


def tails_of(size: Expr, step: int) -> str:
    """How the last step along a sum treats what lies beyond: it is apart, and the others need no
    masks. One whole step and a rest are a loop with masks, since two products of tensor cores that
    no loop holds have been wrong on a GPU (Triton 3.6), where the same text is right in Triton's
    interpreter."""
    value = size.constant
    return "mask" if value is not None and step < value < 2 * step else "peel"


def floor_power(number: int) -> int:
    """The largest power of two that is at most `number`; at least 1."""
    return 1 << max(0, number.bit_length() - 1)


def ceil_power(number: float) -> int:
    """The smallest power of two that is at least `number`; at least 1."""
    return 1 << max(0, ceil(number) - 1).bit_length()


def finish(
    kernel: KernelOp, levels: Sequence[Level], **options: int | str
) -> Schedule:
    """A schedule of these levels, with a loop over each axis that they do not place."""
    placed = {x.axis for x in levels}
    rest = [Level("loop", a) for a in kernel.axes if a not in placed]
    return Schedule((*levels, *rest), tuple(options.items()))


def width_of(value: SSAValue) -> int:
    """The bytes of an element."""
    assert isinstance(value.type, TensorType)
    return byte_width(value.type.element)
