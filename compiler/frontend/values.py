"""Values during import: tensors with possibly known contents.

A value that a model computes from shapes has contents at compile time. They are either a NumPy
array of the value's dtype or, if they depend on size symbols, an object array of size expressions.
Such a value only becomes an operation if something uses it as a tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.ir import Attribute, SSAValue

from dialects.graph.constant import expressions
from dialects.graph.fold_sizes import MAX_ELEMENTS
from dialects.strata import types as t
from dialects.strata.types import Array, TensorType
from dialects.symbolic.expr import Expr


@dataclass(eq=False)
class Value:
    """A tensor of `type`: an SSA value, known contents, or both.

    `origin`: the value of an outer function that this is the view of.
    """

    type: TensorType
    ssa: SSAValue | None = None
    contents: Array | None = None
    label: str = ""
    node: str = ""
    origin: Value | None = None

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return self.type.rank

    @property
    def element(self) -> Attribute:
        return self.type.element

    @property
    def array(self) -> Array | None:
        """The contents, if they are plain numbers."""
        known = self.contents is not None and self.contents.dtype != object
        return self.contents if known else None

    @property
    def is_small(self) -> bool:
        """Whether its contents are known and few enough to be followed."""
        return self.contents is not None and self.contents.size <= MAX_ELEMENTS

    @property
    def expressions(self) -> Array | None:
        """Integer contents as an object array of size expressions."""
        if self.contents is None or self.contents.dtype.kind not in "biuO":
            return None
        return self.contents if self.contents.dtype == object else expressions(self.contents)


def constant(array: Array, label: str = "", node: str = "") -> Value:
    """A value of known numbers."""
    type_ = t.tensor(t.element_of(array.dtype), array.shape)
    return Value(type_, contents=array, label=label, node=node)


def computed(contents: Array, type_: TensorType, node: str = "") -> Value:
    """A value of known contents; expressions that are all plain integers become numbers."""
    if contents.dtype == object:
        numbers = [Expr.of(e).constant for e in contents.reshape(-1)]
        if None not in numbers:
            contents = np.array(numbers, np.int64).astype(type_.dtype).reshape(contents.shape)
    return Value(type_, contents=contents, node=node)
