"""Errors of arrays relative to expected ones.

The error of a floating-point array is its largest deviation over the largest magnitude expected,
computed in f64. NaN and infinities must occur exactly where they are expected. Integers must be
equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from dialects.strata.types import Array, element_of, is_float, is_narrow_float, precision

TOLERANCES = {"float64": 1e-9, "float32": 2e-4, "float16": 1e-2, "bfloat16": 8e-2}
"""The largest error allowed for reordered arithmetic in each type, relative as above."""

PIECE = 1 << 16
"""The number of elements that are compared at a time, so that they stay in a cache."""


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
    flat = [x.reshape(-1) for x in (got, want)]
    pieces = [[x[k:k + PIECE] for x in flat] for k in range(0, want.size, PIECE)]
    if not is_float(element_of(want.dtype)):
        return max(float(np.abs(g.astype(np.float64) - w.astype(np.float64)).max())
                   for g, w in pieces)
    found = [_deviation(g, w) for g, w in pieces]
    return float(max(d for d, _ in found) / (max(top for _, top in found) or 1.0))


def _deviation(got: Array, want: Array) -> tuple[float, float]:
    """The largest deviation, and the largest magnitude expected, of finite numbers."""
    with np.errstate(invalid="ignore"):  # NaN of some narrow floats signals
        wide, exact = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(exact)
    if not finite.all():
        if not np.array_equal(wide[~finite], exact[~finite], equal_nan=True):
            return inf, 0.0
        wide, exact = wide[finite], exact[finite]
    if not np.isfinite(wide).all():
        return inf, 0.0
    return np.abs(wide - exact).max(initial=0.0), np.abs(exact).max(initial=0.0)


def worst(
    got: Sequence[Array], want: Sequence[Array], tolerance: float | None = None,
    noise: float = 0.0,
) -> tuple[float, int | None]:
    """The largest error of all outputs, and the first output beyond tolerance (None: none is).

    For floating-point outputs, `tolerance` replaces that of the types, and an error of at least
    `noise` is allowed.
    """
    errors = [error_of(g, w) for g, w in zip(got, want, strict=True)]
    return max(errors, default=0.0), first_beyond(errors, want, tolerance, noise)


def first_beyond(
    errors: Sequence[float], want: Sequence[Array], tolerance: float | None = None,
    noise: float = 0.0,
) -> int | None:
    """The first output whose error exceeds what `worst` allows, or None."""
    limits = [max(tolerance_of(w) if tolerance is None else tolerance, noise)
              if tolerance_of(w) else 0.0 for w in want]
    pairs = zip(errors, limits, strict=True)
    return next((k for k, (error, limit) in enumerate(pairs) if not error <= limit), None)
