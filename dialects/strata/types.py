"""Types and attributes of the dialect `strata`, which all levels share.

Strata's operations use short text forms in their syntax:

    f32[batch, 3, 2*h]        a tensor or buffer: element type, then sizes as expressions
    tile<6x[64]xf32>          a tile of one program; `[64]` is the dim in vector lanes
    tile<{4}x[64]xi8>         the same, with four adjacent positions of another dim in each lane
    tile<(32x32)xbf16>        a tile in matrix registers

The full forms, for generic positions, are `!strata.tensor<f32[2, 3]>`, `!strata.buffer<...>`,
`!strata.tile<6x[64]xf32>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import (
    Attribute,
    SSAValue,
    TypeAttribute,
)
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from dialects.classes import StrataAttribute, StrataData
from dialects.strata.elements import *  # noqa: F403 (users of types find the element types here)
from dialects.strata.elements import byte_width, dtype_of
from dialects.strata.expr_attributes import *  # noqa: F403 (expressions as attributes)
from dialects.strata.expr_attributes import (
    SizesAttr,
    format_sizes,
    parse_sizes,
)
from dialects.strata.tile_type import *  # noqa: F403 (and tiles)
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.size_products import product

Array = NDArray[Any]


# ---------------------------------------------------------------------- tensors and buffers
class _Shaped(StrataAttribute, TypeAttribute):
    """What tensors and buffers share: an element type and sizes, row-major and contiguous."""

    element: Attribute
    sizes: SizesAttr

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.sizes.data

    @property
    def rank(self) -> int:
        return len(self.sizes.data)

    @property
    def dtype(self) -> np.dtype[Any]:
        return dtype_of(self.element)

    @property
    def count(self) -> Expr:
        """The number of elements."""
        return product(self.sizes.data)

    @property
    def byte_size(self) -> Expr:
        return self.count * byte_width(self.element)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as integers, or None if a size is symbolic."""
        values = [s.constant for s in self.sizes.data]
        return None if None in values else tuple(values)  # type: ignore[arg-type]

    @property
    def short(self) -> str:
        return f"{self.element}{format_sizes(self.sizes.data)}"

    def __str__(self) -> str:
        """The short form, as Strata's operations and messages print it."""
        return self.short

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return parse_element_and_sizes(parser)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(f"<{self.short}>")


def parse_element_and_sizes(parser: AttrParser) -> tuple[Attribute, SizesAttr]:
    return parser.parse_type(), SizesAttr(parse_sizes(parser))


@irdl_attr_definition
class TensorType(_Shaped):
    """An immutable tensor value: `!strata.tensor<f32[batch, 3]>`."""

    name = "strata.tensor"
    element: Attribute
    sizes: SizesAttr


@irdl_attr_definition
class BufferType(_Shaped):
    """Memory that holds a tensor, row-major and contiguous: `!strata.buffer<f32[batch, 3]>`."""

    name = "strata.buffer"
    element: Attribute
    sizes: SizesAttr


Shaped: TypeAlias = TensorType | BufferType


def tensor(element: Attribute, shape: Sequence[Size]) -> TensorType:
    return _tensor(element, tuple(map(Expr.of, shape)))


@cache
def _tensor(element: Attribute, shape: tuple[Expr, ...]) -> TensorType:
    return TensorType(element, SizesAttr(shape))


@cache
def buffer_of(type_: TensorType) -> BufferType:
    return BufferType(type_.element, type_.sizes)


def tensor_type(value: SSAValue) -> TensorType:
    """The type of a value that is a tensor."""
    assert isinstance(value.type, TensorType)
    return value.type


def shape_of(value: SSAValue) -> tuple[Expr, ...]:
    """The sizes of a value that is a tensor."""
    return tensor_type(value).shape


def buffer_type(value: SSAValue) -> BufferType:
    """The type of a value that is a buffer."""
    assert isinstance(value.type, BufferType)
    return value.type


def tensor_of(type_: BufferType) -> TensorType:
    return TensorType(type_.element, type_.sizes)


def parse_tensor_type(parser: AttrParser) -> TensorType:
    """The short form `f32[a, b]`."""
    return TensorType(*parse_element_and_sizes(parser))


def parse_buffer_type(parser: AttrParser) -> BufferType:
    """The short form `f32[a, b]`."""
    return BufferType(*parse_element_and_sizes(parser))


# --------------------------------------------------------------------- values outside and inside IR
@irdl_attr_definition
class WeightAttr(StrataAttribute):
    """A handle to an array in the weight store: `#strata.weight<"conv1.w", "3f2a...">`.

    `label` is the name for readers; `key` identifies the array: a hash of its contents
    or of its computation.
    """

    name = "strata.weight"
    label: Attribute
    key: Attribute


@irdl_attr_definition
class WeightsAttr(StrataAttribute):
    """Handles to the arrays of a constant that is another one in each call of its function:
    `#strata.weights<[#strata.weight<"a.w", "3f2a...">, #strata.weight<"b.w", "91c0...">]>`.
    """

    name = "strata.weights"
    members: ArrayAttr[WeightAttr]

    def of_call(self, number: int) -> WeightAttr:
        """The handle in the call of that number (`strata.call`)."""
        return self.members.data[number]


@irdl_attr_definition
class LiteralAttr(StrataData[tuple[Any, ...]]):
    """A small constant written out, flat and row-major: `#strata.literal<[1.0, nan, -inf]>`."""

    name = "strata.literal"

    def __eq__(self, other: object) -> bool:
        """Equal text: nan equals nan, and 0.0, -0.0, 0 and false all differ."""
        return isinstance(other, LiteralAttr) and _literal_key(self) == _literal_key(other)

    def __hash__(self) -> int:
        return hash(_literal_key(self))

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Any, ...]:
        with parser.in_angle_brackets():
            return parse_literal(parser)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{format_literal(self.data)}>")


def _literal_key(literal: LiteralAttr) -> str:
    return format_literal(literal.data)


def parse_number(parser: AttrParser) -> int | float | bool:
    """An integer, a float, `true`, `false`, `nan`, `inf` or `-inf`."""
    special = {"nan": np.nan, "inf": np.inf, "true": True, "false": False}
    for word, value in special.items():
        if parser.parse_optional_keyword(word):
            return value
    if parser.parse_optional_punctuation("-"):
        return -parse_number(parser)
    return parser.parse_number(allow_boolean=False)


def format_number(value: Any) -> str:
    """The text that `parse_number` reads back exactly (shortest form for the value's type)."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))  # pyright: ignore[reportUnknownArgumentType]
    text = repr(float(value))
    mantissa, e, exponent = text.partition("e")
    if e and "." not in mantissa:  # MLIR reads floats only with a point: 1e-05 -> 1.0e-05
        return f"{mantissa}.0e{exponent}"
    return text


def parse_literal(parser: AttrParser) -> tuple[Any, ...]:
    delimiter = parser.Delimiter.SQUARE
    return tuple(parser.parse_comma_separated_list(delimiter, lambda: parse_number(parser)))


def format_literal(values: Sequence[Any]) -> str:
    return f"[{', '.join(map(format_number, values))}]"
