"""Axes and references of a nest, as attributes with a text form.

    (i0: batch, i1: 64, reduce i2: 768)          axes: name, extent, parallel unless marked
    %x[i0, 2*i2 + 1]                             a reference: one index expression per dim
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from dialects.classes import StrataData
from dialects.records import dataclass
from dialects.strata.types import parse_size, parse_symbol
from dialects.symbolic.expr import Expr
from dialects.symbolic.remembered import computed_once
from dialects.symbolic.symbol import Kind, Symbol


@dataclass(frozen=True)
class Axis:
    """One axis of a nest: 0 <= name < extent, parallel or a reduction."""

    name: Symbol
    extent: Expr
    reduce: bool = False

    def __str__(self) -> str:
        return f"{'reduce ' if self.reduce else ''}{self.name}: {self.extent}"


@irdl_attr_definition
class AxesAttr(StrataData[tuple[Axis, ...]]):
    """The iteration domain of a nest."""

    name = "loop.axes"

    @computed_once
    def parallel(self) -> tuple[Axis, ...]:
        return tuple([a for a in self.data if not a.reduce])

    @computed_once
    def reduce(self) -> tuple[Axis, ...]:
        return tuple([a for a in self.data if a.reduce])

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
    reduce = parser.parse_optional_keyword("reduce") is not None
    name = parse_symbol(parser)
    if name.kind is not Kind.AXIS:
        parser.raise_error(f"an axis is named `i` and a number, as `i0`, and not {name}")
    parser.parse_punctuation(":")
    return Axis(name, parse_size(parser), reduce)


def fresh_axes(taken: Iterable[Symbol]) -> Iterator[Symbol]:
    """Fresh axis names: `i0`, `i1` ... except those that are taken."""
    known = {*taken}
    axes = (Symbol.axis(f"i{k}") for k in count())
    return (axis for axis in axes if axis not in known)


def extents_of(axes: Sequence[Axis]) -> Mapping[Symbol, Expr]:
    return {a.name: a.extent for a in axes}
