"""Questions that rules ask about operands: constants, their common value, sole use."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.ir import Operation, SSAValue

from dialects.graph.constant import ConstantOp
from dialects.semantics.numerics import widen
from dialects.strata.types import Array, TensorType
from passes.base import StrataContext

MAX_COMPARED = 1 << 24
"""Larger constants are not searched for a common value; attention masks are smaller."""
PROBED = 1 << 10
"""The number of elements that are compared first."""


def type_of(value: SSAValue) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type


def constant_array(value: SSAValue, context: StrataContext) -> Array | None:
    """The value of a constant; None for other operations, for one that is another array in each
    call of its function, and if the store lacks the weight.

    If it is a parameter, the code is for these values of it only. See `is_settled`.
    """
    owner = value.owner
    if not isinstance(owner, ConstantOp) or owner.varies:
        return None
    try:
        return owner.array(context.weights)
    except KeyError:  # text that was read without its weights
        return None


def known_constant(value: SSAValue, context: StrataContext) -> ConstantOp | None:
    """The operation of a constant from which others can be computed: its contents are there."""
    owner = value.owner
    try:
        if isinstance(owner, ConstantOp):
            owner.contents(context.weights)
            return owner
    except (KeyError, ValueError):  # text that was read without its weights, or one per call
        pass
    return None


def is_settled(value: SSAValue, context: StrataContext) -> bool:
    """Whether a value is a constant, and always and everywhere the same: no parameter, and no
    other number in another arithmetic."""
    owner, store = value.owner, context.weights
    return isinstance(owner, ConstantOp) and not (
        owner.varies or owner.is_open(store) or owner.has_history(store))


def uniform(value: SSAValue, context: StrataContext) -> Any:
    """The number that all elements of a constant equal, including the sign of zero; else None."""
    if not is_settled(value, context):
        return None
    count = type_of(value).count.constant
    if not count or count > MAX_COMPARED:
        return None
    array = constant_array(value, context)
    if array is None:
        return None
    return number_of(array)


def number_of(array: Array) -> Any:
    """The number that all elements of an array equal, as `uniform`; None for too many elements."""
    flat = array.reshape(-1)
    if not 0 < flat.size <= MAX_COMPARED or _common(flat[:PROBED]) is None:
        return None
    return _common(flat)


def _common(flat: Array) -> Any:
    wide = widen(flat)
    first = wide[0]
    if not np.all(wide == first) or not np.all(np.signbit(wide) == np.signbit(first)):
        return None
    return first.item() if wide.dtype.kind in "biu" else float(first)


def is_number(value: SSAValue, number: float, context: StrataContext) -> bool:
    """Whether all elements are this number; 0.0 and -0.0 differ for floats."""
    found = uniform(value, context)
    return found is not None and found == number and np.signbit(found) == np.signbit(number)


def has_one_use(op: Operation) -> bool:
    return all(r.has_one_use() for r in op.results)
