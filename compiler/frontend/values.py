"""Values during import: tensors with possibly known contents, and the operators on them.

    x / (1 + abs(x))        builds graph.abs, graph.add and graph.div at the current node

A value that a model computes from shapes has contents at compile time. They are either a NumPy
array of the value's dtype or, if they depend on size symbols, an object array of size expressions.
Such a value only becomes an operation if something uses it as a tensor.

A number beside a value is a constant in the value's element type. `==` compares the values
themselves; `formulas.equal` builds the comparison of their elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias

import numpy as np
from xdsl.ir import Attribute, SSAValue

from dialects.graph.base import GraphOp
from dialects.graph.constant import expressions
from dialects.graph.contraction import MatmulOp
from dialects.graph.elementwise import AddOp, DivOp, ModOp, MulOp, PowOp, SubOp
from dialects.graph.fold_sizes import MAX_ELEMENTS
from dialects.graph.logic import (
    AndOp,
    GreaterEqualOp,
    GreaterOp,
    LessEqualOp,
    LessOp,
    OrOp,
    XorOp,
)
from dialects.graph.shape import BroadcastOp, ReshapeOp, SliceOp, TransposeOp
from dialects.graph.unary import AbsOp, CastOp, NegOp, NotOp
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.strata.types import Array, TensorType
from dialects.symbolic.expr import Expr, Size

Number: TypeAlias = "Expr | float | bool"
"""A number, or a size."""


class Builds(Protocol):
    """The part of `compiler.frontend.builder.Builder` that values need."""

    node: str

    def __call__(self, op_type: type[GraphOp], *operands: Value, **attributes: Any) -> Value: ...


@dataclass(eq=False)
class Value:
    """A tensor of `type`: an SSA value, known contents, or both.

    `build`: the builder of the import. `origin`: the value of an enclosing function of which this
    is a view.
    """

    build: Builds = field(repr=False)
    type: TensorType
    ssa: SSAValue | None = None
    contents: Array | None = None
    label: str = ""
    node: str = ""
    origin: Value | None = None

    __array_ufunc__ = None  # a NumPy number on the left leaves the operator to the value

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return self.type.rank

    @property
    def element(self) -> Attribute:
        return self.type.element

    # ------------------------------------------------------------------ known contents
    @property
    def array(self) -> Array | None:
        """The contents, if they are plain numbers."""
        known = self.contents is not None and self.contents.dtype != object
        return self.contents if known else None

    @property
    def is_small(self) -> bool:
        """Whether the contents are known, and few enough for constant folding."""
        return self.contents is not None and self.contents.size <= MAX_ELEMENTS

    @property
    def expressions(self) -> Array | None:
        """Integer contents as an object array of size expressions."""
        if self.contents is None or self.contents.dtype.kind not in "biuO":
            return None
        return self.contents if self.contents.dtype == object else expressions(self.contents)

    # ------------------------------------------------------------------ arithmetic
    def __add__(self, other: Operand) -> Value:
        return combined(AddOp, self, other)

    def __radd__(self, other: Number) -> Value:
        return combined(AddOp, other, self)

    def __sub__(self, other: Operand) -> Value:
        return combined(SubOp, self, other)

    def __rsub__(self, other: Number) -> Value:
        return combined(SubOp, other, self)

    def __mul__(self, other: Operand) -> Value:
        return combined(MulOp, self, other)

    def __rmul__(self, other: Number) -> Value:
        return combined(MulOp, other, self)

    def __truediv__(self, other: Operand) -> Value:
        return combined(DivOp, self, other)

    def __rtruediv__(self, other: Number) -> Value:
        return combined(DivOp, other, self)

    def __mod__(self, other: Operand) -> Value:
        return combined(ModOp, self, other)

    def __pow__(self, other: Operand) -> Value:
        return combined(PowOp, self, other)

    def __rpow__(self, other: Number) -> Value:
        return combined(PowOp, other, self)

    def __matmul__(self, other: Value) -> Value:
        return self.build(MatmulOp, self, other)

    def __neg__(self) -> Value:
        return self.build(NegOp, self)

    def __abs__(self) -> Value:
        return self.build(AbsOp, self)

    # ------------------------------------------------------------------ comparisons and logic
    def __lt__(self, other: Operand) -> Value:
        return combined(LessOp, self, other)

    def __le__(self, other: Operand) -> Value:
        return combined(LessEqualOp, self, other)

    def __gt__(self, other: Operand) -> Value:
        return combined(GreaterOp, self, other)

    def __ge__(self, other: Operand) -> Value:
        return combined(GreaterEqualOp, self, other)

    def __and__(self, other: Operand) -> Value:
        return combined(AndOp, self, other)

    def __or__(self, other: Operand) -> Value:
        return combined(OrOp, self, other)

    def __xor__(self, other: Operand) -> Value:
        return combined(XorOp, self, other)

    def __invert__(self) -> Value:
        return self.build(NotOp, self)

    # ------------------------------------------------------------------ the same elements
    def cast(self, element: Attribute) -> Value:
        """The value in an element type; the value itself if it has that type."""
        return self if self.element == element else self.build(CastOp, self, to=element)

    def reshape(self, shape: Sequence[Size]) -> Value:
        """The elements in another shape; the value itself if the shape is the same."""
        return self if self._has(shape) else self.build(ReshapeOp, self, shape=list(shape))

    def broadcast(self, shape: Sequence[Size]) -> Value:
        """The value broadcast to a shape; the value itself if it has that shape."""
        return self if self._has(shape) else self.build(BroadcastOp, self, shape=list(shape))

    def transpose(self, perm: Sequence[int]) -> Value:
        """The value with permuted dims; the value itself for the identity."""
        same = list(perm) == list(range(self.rank))
        return self if same else self.build(TransposeOp, self, perm=list(perm))

    def part(self, axis: int, start: Size, size: Size, step: int = 1) -> Value:
        """Entries of one axis from `start` on; the value itself if these are all entries."""
        if Expr.of(size) == self.shape[axis] and step == 1:
            return self
        starts, sizes, steps = [Expr.of(0)] * self.rank, list(self.shape), [1] * self.rank
        starts[axis], sizes[axis], steps[axis] = Expr.of(start), Expr.of(size), step
        return self.build(SliceOp, self, starts=starts, sizes=sizes, steps=steps)

    def _has(self, shape: Sequence[Size]) -> bool:
        return self.shape == tuple(map(Expr.of, shape))


Operand: TypeAlias = "Value | Expr | float | bool"
"""A tensor, or a number."""


# ---------------------------------------------------------------------- numbers as operands
def combined(op_type: type[GraphOp], first: Operand, second: Operand) -> Value:
    """A binary operator; a number gets the element type of the other operand.

    Raises TypeError if both are numbers, and ShapeError if the operands do not fit.
    """
    like = value_among(op_type, first, second)
    return like.build(op_type, operand(first, like), operand(second, like))


def value_among(op_type: type[GraphOp], *operands: Operand) -> Value:
    """The first operand that is not a number. Raises TypeError if all are numbers."""
    for found in operands:
        if isinstance(found, Value):
            return found
    raise TypeError(f"an operand of {op_type.name} must be a Value, not a number")


def operand(number: Operand, like: Value) -> Value:
    """A number as a constant of no dims in the element type of `like`; a value as it is."""
    if isinstance(number, Value):
        return number
    return scalar(like.build, number, like.element)


def scalar(build: Builds, number: Number, element: Attribute) -> Value:
    """A constant, or a size, of no dims."""
    if isinstance(number, Expr):
        return of_size(build, number).cast(element)
    return constant(build, np.array(number).astype(t.dtype_of(element)), node=build.node)


def of_size(build: Builds, size: Size) -> Value:
    """An i64 tensor of no dims that holds a size."""
    contents = np.empty((), object)
    contents[()] = Expr.of(size)
    return computed(build, contents, t.tensor(t.i64, ()), build.node)


# ---------------------------------------------------------------------- values of known contents
def constant(build: Builds, array: Array, label: str = "", node: str = "") -> Value:
    """A value of known numbers."""
    type_ = t.tensor(t.element_of(array.dtype), array.shape)
    return Value(build, type_, contents=array, label=label, node=node)


def computed(build: Builds, contents: Array, type_: TensorType, node: str = "") -> Value:
    """A value of known contents; expressions that are all plain integers become numbers."""
    if contents.dtype == object:
        numbers = [Expr.of(e).constant for e in contents.reshape(-1)]
        if None not in numbers:
            contents = np.array(numbers, np.int64).astype(type_.dtype).reshape(contents.shape)
    return Value(build, type_, contents=contents, node=node)
