"""Axes and references of a nest, as attributes with text.

    (i0: batch, i1: 64, reduce i2: 768)          axes: name, extent, parallel unless marked
    %x[i0, 2*i2 + 1]                             a reference: one index expression per dim
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from dialects.expr import Expr
from dialects.types import parse_size


@dataclass(frozen=True)
class Axis:
    """One iterator of a nest: 0 <= name < extent, parallel or a reduction."""

    name: str
    extent: Expr
    reduce: bool = False

    def __str__(self) -> str:
        return f"{'reduce ' if self.reduce else ''}{self.name}: {self.extent}"


@irdl_attr_definition
class AxesAttr(Data[tuple[Axis, ...]]):
    """The iteration domain of a nest."""

    name = "loop.axes"

    @property
    def text(self) -> str:
        return f"({', '.join(map(str, self.data))})"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Axis, ...]:
        return tuple(parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: _parse_axis(parser)))

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(self.text)


def _parse_axis(parser: AttrParser) -> Axis:
    name = parser.parse_identifier()
    reduce = name == "reduce"
    if reduce:
        name = parser.parse_identifier()
    parser.parse_punctuation(":")
    return Axis(name, parse_size(parser), reduce)


def extents_of(axes: Sequence[Axis]) -> Mapping[str, Expr]:
    return {a.name: a.extent for a in axes}
