"""The type of tiles: their dims and register layout. See `dialects.strata.types`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal

from xdsl.ir import Attribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from dialects.classes import StrataAttribute, StrataData

__all__ = ["ShapeAttr", "TileType", "parse_tile_body", "parse_tile_type", "tile"]


@irdl_attr_definition
class ShapeAttr(StrataData[tuple[tuple[int, ...], int, int, bool]]):
    """The dims of a tile and their register layout: `<{4}x[64]>` or `<(32x32)>`.

    The data are the dims, the dim that lies in vector lanes, the dim that is grouped inside each
    lane (-1 for none), and whether the tile lies in matrix registers.
    """

    name = "strata.shape"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[tuple[int, ...], int, int, bool]:
        with parser.in_angle_brackets():
            return _parse_dims(parser)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{_format_dims(*self.data)}>")


def _format_dims(dims: tuple[int, ...], lanes: int, group: int, matrix: bool) -> str:
    forms = {lanes: "[{}]", group: "{{{}}}"}
    text = "x".join(forms.get(k, "{}").format(d) for k, d in enumerate(dims))
    return f"({text})" if matrix else text


@irdl_attr_definition
class TileType(StrataAttribute, TypeAttribute):
    """A tile of values in one program: `!strata.tile<6x[64]xf32>`.

    Dims are constants. The dim in brackets lies in the lanes of vector registers; the others are
    unrolled into registers. Targets whose programs have no visible lanes mark no dim. The dim in
    braces is grouped: its positions are adjacent inside one lane, like the bytes that a
    dot-product instruction multiplies and sums. A tile without dims, `tile<f32>`, is a scalar.
    Parentheses around all dims mean that the tile lies in matrix registers, with the last dim
    along their rows.
    """

    name = "strata.tile"
    element: Attribute
    shape_attr: ShapeAttr

    @property
    def shape(self) -> tuple[int, ...]:
        return self.shape_attr.data[0]

    @property
    def lanes(self) -> int | None:
        """The dim that lies in vector lanes, or None."""
        dim = self.shape_attr.data[1]
        return None if dim < 0 else dim

    @property
    def group(self) -> int | None:
        """The dim whose positions share a lane, or None."""
        dim = self.shape_attr.data[2]
        return None if dim < 0 else dim

    @property
    def matrix(self) -> bool:
        """Whether the tile lies in matrix registers."""
        return self.shape_attr.data[3]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def short(self) -> str:
        dims = _format_dims(*self.shape_attr.data)
        return f"tile<{dims}{'x' if dims else ''}{self.element}>"

    def __str__(self) -> str:
        """The short form, as Strata's operations print it."""
        return self.short

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return parse_tile_body(parser)

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(self.short.removeprefix("tile"))


def tile(
    element: Attribute, shape: Sequence[int], lanes: int | None = None,
    group: int | None = None, matrix: bool = False,
) -> TileType:
    places = (-1 if d is None else d for d in (lanes, group))
    return _tile(element, tuple(shape), *places, matrix)


@cache
def _tile(
    element: Attribute, shape: tuple[int, ...], lanes: int, group: int, matrix: bool
) -> TileType:
    return TileType(element, ShapeAttr((shape, lanes, group, matrix)))


def parse_tile_type(parser: AttrParser) -> TileType:
    """The short form `tile<6x[64]xf32>`."""
    parser.parse_keyword("tile")
    with parser.in_angle_brackets():
        return TileType(*parse_tile_body(parser))


def parse_tile_body(parser: AttrParser) -> tuple[Attribute, ShapeAttr]:
    dims = _parse_dims(parser)
    return parser.parse_type(), ShapeAttr(dims)


def _parse_dims(parser: AttrParser) -> tuple[tuple[int, ...], int, int, bool]:
    if parser.parse_optional_punctuation("("):
        return _parse_matrix_dims(parser), -1, -1, True
    dims: list[int] = []
    marked = {"]": -1, "}": -1}
    while True:
        end = _opening_mark(parser)
        dim = parser.parse_shape_dimension(False) if end else _optional_dim(parser)
        if dim is None:
            return tuple(dims), marked["]"], marked["}"], False
        if end:
            marked[end] = len(dims)
            parser.parse_punctuation(end)
        dims.append(dim)
        parser.parse_shape_delimiter()


def _parse_matrix_dims(parser: AttrParser) -> tuple[int, ...]:
    """The dims of `(32x32)x`, after the opening parenthesis."""
    dims = [parser.parse_shape_dimension(False)]
    while not parser.parse_optional_punctuation(")"):
        parser.parse_shape_delimiter()
        dims.append(parser.parse_shape_dimension(False))
    parser.parse_shape_delimiter()
    return tuple(dims)


def _opening_mark(parser: AttrParser) -> Literal["]", "}"] | None:
    """Parse an opening mark, if there is one, and return the mark that closes it."""
    if parser.parse_optional_punctuation("["):
        return "]"
    return "}" if parser.parse_optional_punctuation("{") else None


def _optional_dim(parser: AttrParser) -> int | None:
    token = parser._current_token.text  # pyright: ignore[reportPrivateUsage]
    return parser.parse_shape_dimension(False) if token[:1].isdigit() else None
