"""Simple operations on floats as plain data, such as the weights of a norm in another type.

A kept program computes with the weights of its caller anew, so nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dialects.strata.array_type import dtype_named

if TYPE_CHECKING:
    from dialects.strata.types import Array

FLOATS = ("f16", "bf16", "f32", "f64")
"""The element types that are meant here. f16 and bf16 are computed in f32 and rounded once, to
nearest, ties to even; what is too large becomes inf."""
FORMULAS: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative,
    "exp": np.exp, "sqrt": np.sqrt, "reciprocal": np.reciprocal}
"""The functions by the names of the graph level's operations."""


class Converted(NamedTuple):
    """The same numbers in another of these types."""

    dtype: np.dtype[Any]

    def __call__(self, array: Array) -> Array:
        return _rounded(_wide(array), self.dtype)

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.dtype.name]

    @staticmethod
    def read(facts: Sequence[Any]) -> Converted:
        """The inverse of `facts`."""
        return Converted(dtype_named(str(facts[0])))


class Elementwise(NamedTuple):
    """A function of `FORMULAS` of arrays of one type, which broadcast."""

    formula: str

    def __call__(self, *arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            found = FORMULAS[self.formula](*map(_wide, arrays))
        return _rounded(np.asarray(found), arrays[0].dtype)

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.formula]

    @staticmethod
    def read(facts: Sequence[Any]) -> Elementwise:
        """The inverse of `facts`. Raises KeyError for another formula."""
        [formula] = facts
        FORMULAS[formula]
        return Elementwise(str(formula))


def _wide(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


def _rounded(array: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(array.astype(dtype, copy=False)).reshape(array.shape)
