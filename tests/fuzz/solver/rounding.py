"""Which results of one operation in f64 are rounded, and which are exact.

What was lost is computed without error, as Knuth's sum and Dekker's product do it. (Knuth, The Art
of Computer Programming 2, 4.2.2; Dekker, A floating-point technique, 1971.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dialects.strata.types import Array

SPLIT = 2.0**27 + 1
"""It splits a number of 53 bits into two of 26."""


def is_rounded(name: str, operands: Sequence[Array], result: Array) -> Array:
    """Per element of `result`, in f64. `name`: add, sub, mul, div, sqrt, reciprocal or cast. What
    is not finite on the way, and what leaves the range of the split, counts as rounded.
    """
    with np.errstate(all="ignore"):
        if name in ("add", "sub"):
            a, b = operands
            return _lost_by_sum(a, b if name == "add" else -b, result) != 0
        if name == "mul":
            return _lost_by_product(operands[0], operands[1], result) != 0
        if name == "cast":
            return operands[0] != result.astype(operands[0].dtype)
        if name == "sqrt":
            wanted, factor = operands[0], result
        else:
            wanted, factor = (operands[0], operands[1]) if name == "div" else (
                np.float64(1), operands[0])
        product = result * factor
        return (product != wanted) | (_lost_by_product(result, factor, product) != 0)


def _lost_by_sum(a: Array, b: Array, total: Array) -> Array:
    part = total - a
    return (a - (total - part)) + (b - part)


def _lost_by_product(a: Array, b: Array, product: Array) -> Array:
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _split(a: Array) -> tuple[Array, Array]:
    far = SPLIT * a
    high = far - (far - a)
    return high, a - high
