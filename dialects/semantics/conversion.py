"""Floats in another type, such as the weights of a norm in half precision, as plain data.

A kept program converts the weights of its caller anew, so nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dialects.strata.array_type import dtype_named

if TYPE_CHECKING:
    from dialects.strata.types import Array

FLOATS = ("f16", "bf16", "f32", "f64")
"""The element types between which `Converted` converts as `graph.cast` does: f16 and bf16 from and
to f32, to nearest, ties to even; what is too large becomes inf."""


@dataclass(frozen=True)
class Converted:
    """The same numbers in another of these types."""

    dtype: np.dtype[Any]

    def __call__(self, array: Array) -> Array:
        with np.errstate(all="ignore"):
            wide = array.astype(np.float32) if array.dtype.itemsize == 2 else array
            return np.ascontiguousarray(wide.astype(self.dtype)).reshape(array.shape)

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.dtype.name]

    @staticmethod
    def read(facts: Sequence[Any]) -> Converted:
        """The inverse of `facts`."""
        return Converted(dtype_named(str(facts[0])))
