"""The type of an array as plain data: element type, dtype and shape.

Tensor and buffer types carry the same information in the IR. This module serves compiled models,
which run without any IR. It does not import xDSL, and its types can be written to a file and read
back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dialects.records import dataclass
from dialects.symbolic.expr import Expr
from dialects.symbolic.expr_syntax import expr_of
from dialects.symbolic.size_products import product

if TYPE_CHECKING:
    from dialects.strata.types import Shaped


@dataclass(frozen=True)
class ArrayType:
    """A row-major array: the element's name (`f32`, `ui8`), its dtype, and the sizes."""

    element: str
    dtype: np.dtype[Any]
    shape: tuple[Expr, ...]

    @staticmethod
    def of(type_: Shaped) -> ArrayType:
        """The array type that corresponds to a tensor or buffer type."""
        return ArrayType(str(type_.element), type_.dtype, type_.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def count(self) -> Expr:
        """The number of elements."""
        return product(self.shape)

    @property
    def short(self) -> str:
        """`f32[batch, 3]`."""
        return f"{self.element}[{', '.join(map(str, self.shape))}]"

    def permuted(self, order: Sequence[int]) -> ArrayType:
        """The type with its dims in another order."""
        return replace(self, shape=tuple(self.shape[d] for d in order))

    @property
    def is_float(self) -> bool:
        """True for all floats, narrow ones too."""
        return self.element.startswith(("f", "bf"))

    # ------------------------------------------------------------------ files
    def facts(self) -> list[Any]:
        """All fields in a form that JSON can represent."""
        return [self.element, self.dtype.name, [size_facts(s) for s in self.shape]]

    @staticmethod
    def read(facts: Sequence[Any]) -> ArrayType:
        """The inverse of `facts`. Raises ValueError, TypeError or AttributeError for anything
        else.
        """
        element, dtype, shape = facts
        return ArrayType(str(element), dtype_named(dtype), tuple(read_size(s) for s in shape))


def size_facts(size: Expr) -> int | str:
    """A size in a form that JSON can represent: an integer, or the text of an expression."""
    return str(size) if size.constant is None else size.constant


def read_size(facts: int | str) -> Expr:
    """The inverse of `size_facts`. Raises ValueError for malformed text."""
    return Expr.of(facts) if isinstance(facts, int) else expr_of(facts)


def dtype_named(name: str) -> np.dtype[Any]:
    """Look up a dtype by name, first in NumPy and then in `ml_dtypes`."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
