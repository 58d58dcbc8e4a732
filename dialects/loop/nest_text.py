"""The text of the inputs and results of a nest, and of what a sum says of its terms."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue
from xdsl.parser import Parser
from xdsl.printer import Printer

from dialects.strata import types as t
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.text.syntax import parse_value


def print_input(
    printer: Printer, value: SSAValue, map_: Sequence[Expr], pad: float | bool | None
) -> None:
    printer.print_ssa_value(value)
    printer.print_string(t.format_sizes(map_))
    if pad is not None:
        printer.print_string(f" pad {t.format_number(pad)}")


def parse_input(parser: Parser) -> tuple[SSAValue, tuple[Expr, ...], float | bool | None]:
    value = parse_value(parser)
    map_ = t.parse_sizes(parser)
    pad = t.parse_number(parser) if parser.parse_optional_keyword("pad") else None
    return value, map_, pad


def parse_output(
    parser: Parser, combiners: Sequence[str]
) -> tuple[str, TensorType, tuple[Expr, ...]]:
    kind = parser.parse_optional_keyword_in(combiners[1:]) or "none"
    return kind, t.parse_tensor_type(parser), t.parse_sizes(parser)


def print_output(
    printer: Printer, kind: str, result: SSAValue, map_: Sequence[Expr]
) -> None:
    combiner = "" if kind == "none" else f"{kind} "
    printer.print_string(f"{combiner}{short_type(result)}{t.format_sizes(map_)}")


def print_insides(printer: Printer, pairs: Sequence[tuple[Expr, ...]]) -> None:
    if pairs:
        printer.print_string(f"inside({', '.join(map(t.format_sizes, pairs))}) ")


def parse_insides(parser: Parser) -> list[tuple[Expr, ...]]:
    if not parser.parse_optional_keyword("inside"):
        return []
    return parser.parse_comma_separated_list(
        parser.Delimiter.PAREN, lambda: t.parse_sizes(parser))


def short_type(value: SSAValue) -> str:
    """The type of a tensor value, in short form."""
    assert isinstance(value.type, TensorType)
    return value.type.short
