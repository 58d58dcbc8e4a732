"""How far arrays are from what they should be.

The error of a floating-point array is its largest deviation over the largest magnitude expected,
computed in f64. NaN must stand where NaN is expected, infinities likewise. Integers must be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from dialects.types import Array, element_of, is_float, is_narrow_float, precision

TOLERANCES = {"float64": 1e-9, "float32": 2e-4, "float16": 1e-2, "bfloat16": 8e-2}
"""The largest error that reordered arithmetic of that type is granted, relative as above."""


def tolerance_of(array: Array) -> float:
    """The tolerance of an array's type; 0 for integers and truth values.

    A narrow float may be one step off, for a number between two of them.
    """
    element = element_of(array.dtype)
    if is_narrow_float(element):
        return precision(element)
    return TOLERANCES.get(array.dtype.name, 0.0)


def error_of(got: Array, want: Array) -> float:
    """The error of `got`; infinite where shape, type or the places of NaN and infinities differ."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return inf
    if not want.size:
        return 0.0
    if not is_float(element_of(want.dtype)):
        return float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max())
    with np.errstate(invalid="ignore"):  # NaN of some narrow floats signals
        wide, exact = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(exact)
    if not np.array_equal(wide[~finite], exact[~finite], equal_nan=True):
        return inf
    if not np.isfinite(wide[finite]).all():
        return inf
    scale = np.abs(exact[finite]).max(initial=0.0)
    deviation = np.abs(wide[finite] - exact[finite]).max(initial=0.0)
    return float(deviation / (scale or 1.0))


def worst(
    got: Sequence[Array], want: Sequence[Array], tolerance: float | None = None,
    noise: float = 0.0,
) -> tuple[float, int | None]:
    """The largest error of all outputs, and the first output beyond tolerance (None: none is).

    `tolerance` replaces that of the types, and `noise` is granted at least, for floating-point
    outputs.
    """
    errors = [error_of(g, w) for g, w in zip(got, want, strict=True)]
    limits = [max(tolerance_of(w) if tolerance is None else tolerance, noise)
              if tolerance_of(w) else 0.0 for w in want]
    beyond = [k for k, (e, limit) in enumerate(zip(errors, limits, strict=True)) if not e <= limit]
    return max(errors, default=0.0), beyond[0] if beyond else None
