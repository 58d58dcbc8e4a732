"""Arrays that carry an arithmetic of their own through the formulas of operations.

The meaning of every operation is written with NumPy. An array of a subclass of `Carrier` replaces
what NumPy's functions compute (`ring.py`), so that the same formulas mean something else. The
helpers here keep the class of an array where NumPy would drop it. Nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class Carrier(np.ndarray[Any, Any]):
    """An array whose class determines what arithmetic on it means."""

    def function(self, name: str) -> Carrier:
        """What a function of floats that is no `ufunc`, such as erf, means, elementwise."""
        raise NotImplementedError(name)

    def numbers(self) -> np.ndarray[Any, Any]:
        """What conversions to integers convert: an array with NumPy's arithmetic."""
        raise NotImplementedError


def as_in(array: np.ndarray[Any, Any], like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in the arithmetic of another one: a view."""
    return array.view(type(like)) if isinstance(like, Carrier) else array


def without_carrier(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in NumPy's arithmetic: a view."""
    return array.view(np.ndarray) if isinstance(array, Carrier) else array


def carrier_of(arrays: Sequence[np.ndarray[Any, Any]]) -> Carrier | None:
    """The first array with an arithmetic of its own, or None."""
    return next((a for a in arrays if isinstance(a, Carrier)), None)


def as_array(value: Any, dtype: Any = None, order: Any = None) -> np.ndarray[Any, Any]:
    """`numpy.asarray`, which keeps carriers."""
    make: Any = np.asanyarray if isinstance(value, Carrier) else np.asarray
    return make(value, dtype, order)
