"""Checks that two tensors, or two buffers, can hold the same elements."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from dialects.strata.types import Shaped
from dialects.symbolic.ranges import is_at_most
from dialects.symbolic.symbol import Symbol

_NONE: frozenset[Symbol] = frozenset()


def check_same_elements(op: Operation, source: SSAValue, target: SSAValue) -> None:
    """C1 of views and copies. Raises VerifyException if the two certainly differ.

    Sizes are only known to be non-negative, so n and m elements may be the same number.
    """
    a, b = source.type, target.type
    assert isinstance(a, Shaped) and isinstance(b, Shaped)
    if a.element != b.element:
        raise VerifyException(f"C1: {op.name} changes the element type of {a.short} to {b.element}")
    if is_at_most(a.count + 1, b.count, _NONE) or is_at_most(b.count + 1, a.count, _NONE):
        raise VerifyException(f"C1: {op.name} of {a.short}, which has {a.count} elements, "
                              f"as {b.short}, which has {b.count}")
