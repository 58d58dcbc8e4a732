"""Scalars let lowerings write the body of a nest as formulas with Python operators.

    def sigmoid(x):
        return 1 / (1 + (-x).exp())

Every operator appends one `arith` or `math` operation to the body. A scalar records whether its
integer type is unsigned, because the signless types of `arith` do not say so, and its value if it
is a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias, cast

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import Float32Type, FloatAttr, IntegerAttr, IntegerType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from dialects.loop import IndexOp
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.symbolic.expr import Size
from dialects.text.syntax import set_location

Number: TypeAlias = "int | float | bool"
Operand: TypeAlias = "Scalar | int | float"
OpClass: TypeAlias = "type[Any]"


@dataclass(frozen=True)
class Body:
    """The body of a nest under construction, or a point in one, before the operation `before`."""

    block: Block
    before: Operation | None = None

    def append(self, op: Operation) -> SSAValue:
        if self.before is None:
            self.block.add_op(op)
        else:
            set_location(op, self.before)
            self.block.insert_op_before(op, self.before)
        return op.results[0]

    def constant(self, value: Number, element: Attribute) -> Scalar:
        op = arith.ConstantOp(_attribute(value, element))
        return Scalar(self, self.append(op), element, value)

    def index(self, expr: Size, element: Attribute = t.i64) -> Scalar:
        """The value of an index expression, as a number of the given type."""
        value = self.append(IndexOp.of(expr))
        number = Scalar(self, self.append(arith.IndexCastOp(value, t.i64)), t.i64)
        return number.to(element)


def _attribute(value: Number, element: Attribute) -> Any:
    """The attribute of a number; integers are signless, in two's complement."""
    if t.is_float(element):
        return FloatAttr(float(value), cast(Float32Type, element))
    width = t.bit_width(element)
    low = -(1 << (width - 1)) if width > 1 else 0
    signless = cast(IntegerType, t.signless(element))
    return IntegerAttr((int(value) - low) % (1 << width) + low, signless)


@cache
def _defaults(op: OpClass) -> Mapping[str, Attribute]:
    """The properties of a new operation, which xDSL's constructors otherwise look up each time."""
    properties = op.get_irdl_definition().properties
    return {name: found.default_value for name, found in properties.items() if found.default_value}


@dataclass(frozen=True)
class Scalar:
    """A number in a body: its value, its element type (with signedness), and its value if constant.

    Python operators append the operation for floats, signed or unsigned integers. Python numbers as
    the other operand become constants of this type.
    """

    body: Body
    value: SSAValue
    element: Attribute
    constant: Number | None = None

    @property
    def is_float(self) -> bool:
        return t.is_float(self.element)

    @property
    def is_unsigned(self) -> bool:
        return t.is_unsigned(self.element)

    @property
    def bits(self) -> int:
        """The number of significant bits of the stored value."""
        return t.bit_width(self.element)

    def like(self, other: Operand) -> Scalar:
        """A number as a constant of this type; a scalar is returned as it is."""
        return other if isinstance(other, Scalar) else self.body.constant(other, self.element)

    # ------------------------------------------------------------------ operators
    def __neg__(self) -> Scalar:
        return self.apply(arith.NegfOp) if self.is_float else self.like(0) - self

    def __add__(self, other: Operand) -> Scalar:
        return self.apply(arith.AddfOp if self.is_float else arith.AddiOp, other)

    def __sub__(self, other: Operand) -> Scalar:
        return self.apply(arith.SubfOp if self.is_float else arith.SubiOp, other)

    def __mul__(self, other: Operand) -> Scalar:
        return self.apply(arith.MulfOp if self.is_float else arith.MuliOp, other)

    def __truediv__(self, other: Operand) -> Scalar:
        """The quotient of floats."""
        return self.apply(arith.DivfOp, other)

    def __radd__(self, other: Operand) -> Scalar:
        return self.like(other) + self

    def __rsub__(self, other: Operand) -> Scalar:
        return self.like(other) - self

    def __rmul__(self, other: Operand) -> Scalar:
        return self.like(other) * self

    def __rtruediv__(self, other: Operand) -> Scalar:
        return self.like(other) / self

    def __lshift__(self, bits: int) -> Scalar:
        return self.apply(arith.ShLIOp, bits)

    def __rshift__(self, bits: int) -> Scalar:
        """A logical shift to the right, with zeros shifted in."""
        return self.apply(arith.ShRUIOp, bits)

    def __and__(self, other: Operand) -> Scalar:
        return self.apply(arith.AndIOp, other)

    def __or__(self, other: Operand) -> Scalar:
        return self.apply(arith.OrIOp, other)

    def __xor__(self, other: Operand) -> Scalar:
        return self.apply(arith.XOrIOp, other)

    def apply(self, op: OpClass, *others: Operand) -> Scalar:
        """Append an operation whose operands and result have this type."""
        values = [self.value, *(self.like(o).value for o in others)]
        made = op.create(operands=values, result_types=[self.value.type],
                         properties=dict(_defaults(op)))
        return Scalar(self.body, self.body.append(made), self.element)

    def maximum(self, other: Operand) -> Scalar:
        if self.is_float:
            return self.apply(arith.MaximumfOp, other)
        return self.apply(arith.MaxUIOp if self.is_unsigned else arith.MaxSIOp, other)

    def minimum(self, other: Operand) -> Scalar:
        if self.is_float:
            return self.apply(arith.MinimumfOp, other)
        return self.apply(arith.MinUIOp if self.is_unsigned else arith.MinSIOp, other)

    # ------------------------------------------------------------------ comparison and choice
    def compare(self, predicate: str, other: Operand) -> Scalar:
        """`eq`, `ne`, `lt`, `le`, `gt` or `ge`; with NaN, only `ne` holds."""
        right = self.like(other).value
        if self.is_float:
            prefix = "u" if predicate == "ne" else "o"
            op: Operation = arith.CmpfOp(self.value, right, prefix + predicate)
        else:
            sign = "" if predicate in ("eq", "ne") else "u" if self.is_unsigned else "s"
            op = arith.CmpiOp(self.value, right, sign + predicate)
        return Scalar(self.body, self.body.append(op), t.i1)

    def is_nan(self) -> Scalar:
        op = arith.CmpfOp(self.value, self.value, "uno")
        return Scalar(self.body, self.body.append(op), t.i1)

    def where(self, yes: Scalar, no: Operand) -> Scalar:
        """`yes` where this truth value holds, otherwise `no`."""
        op = arith.SelectOp(self.value, yes.value, yes.like(no).value)
        return Scalar(self.body, self.body.append(op), yes.element)

    # ------------------------------------------------------------------ functions of floats
    def exp(self) -> Scalar:
        return self.apply(math.ExpOp)

    def sqrt(self) -> Scalar:
        return self.apply(math.SqrtOp)

    def floor(self) -> Scalar:
        return self.apply(math.FloorOp)

    def ceil(self) -> Scalar:
        return self.apply(math.CeilOp)

    def absolute(self) -> Scalar:
        """The magnitude; an unsigned integer is its own magnitude."""
        if self.is_float:
            return self.apply(math.AbsFOp)
        return self if self.is_unsigned else self.apply(math.AbsIOp)

    # ------------------------------------------------------------------ conversion
    def wide(self) -> Scalar:
        """The scalar in the type in which its elements are computed (`wide_element`)."""
        return self.to(t.wide_element(self.element))

    def to(self, element: Attribute) -> Scalar:
        """The scalar in another element type, by the rules of `graph.cast`."""
        if element == self.element:
            return self
        if element == t.i1:
            return self.wide().compare("ne", 0)
        if self.is_float:
            return self._float_to_float(element) if t.is_float(element) else self._to_int(element)
        return self._int_to_float(element) if t.is_float(element) else self._int_to_int(element)

    def bitcast(self, element: Attribute) -> Scalar:
        """The same bits as another type of the same width."""
        if t.signless(self.element) == t.signless(element):
            return Scalar(self.body, self.value, element)
        return self._convert(arith.BitcastOp, element)

    def flipped(self, element: Attribute) -> Scalar:
        """An integer with its sign bit inverted, read in another type of the same width.

        Signed comparison of flipped unsigned integers is unsigned comparison, and vice versa.
        """
        flipped = self ^ (1 << (self.bits - 1))
        return Scalar(self.body, flipped.value, element)

    def _convert(self, op: OpClass, element: Attribute) -> Scalar:
        value = self.body.append(op(self.value, t.signless(element)))
        return Scalar(self.body, value, element)

    def _float_to_float(self, element: Attribute) -> Scalar:
        """Direct between f32 and any other type, and from f64 to halves; otherwise through f32."""
        if t.f32 not in (self.element, element) and not self._is_direct(element):
            return self.to(t.f32).to(element)
        bits = t.bit_width(element)
        return self._convert(arith.ExtFOp if bits > self.bits else arith.TruncFOp, element)

    def _is_direct(self, element: Attribute) -> bool:
        wide = t.f64 in (self.element, element)
        return wide and not (t.is_narrow_float(self.element) or t.is_narrow_float(element))

    def _to_int(self, element: Attribute) -> Scalar:
        """Through i32 for integers of less than a byte, which keep its low bits."""
        if t.is_short_integer(element):
            return self._to_int(t.i32).to(element)
        op = arith.FPToUIOp if t.is_unsigned(element) else arith.FPToSIOp
        return self.wide()._convert(op, element)

    def _int_to_float(self, element: Attribute) -> Scalar:
        """Through f32 for halves and narrow floats."""
        op = arith.UIToFPOp if self.is_unsigned else arith.SIToFPOp
        return self.wide()._convert(op, t.wide_element(element)).to(element)

    def _int_to_int(self, element: Attribute) -> Scalar:
        bits = t.bit_width(element)
        if bits == self.bits:
            return Scalar(self.body, self.value, element)
        if bits < self.bits:
            return self._convert(arith.TruncIOp, element)
        return self._convert(arith.ExtUIOp if self.is_unsigned else arith.ExtSIOp, element)


def number_of(array: np.ndarray[Any, Any]) -> Number:
    """The only element of an array as a Python number."""
    value = array.reshape(-1)[0]
    if array.dtype == np.bool_:
        return bool(value)
    return float(value) if t.is_float(t.element_of(array.dtype)) else int(value)
