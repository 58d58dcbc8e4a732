"""Expressions and symbols as attributes, and their parsing from xDSL's tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from dialects.classes import StrataData
from dialects.symbolic import expr_syntax
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.remembered import computed_once, remembered
from dialects.symbolic.symbol import Symbol

__all__ = ["ExprAttr", "SizesAttr", "SymbolsAttr", "format_sizes", "format_symbols", "parse_size",
           "parse_sizes", "parse_symbol", "parse_symbols"]


class ParserTokens:
    """Adapts xDSL's parser to a token source for `parse_expr`; `operand` resolves `%name`."""

    def __init__(self, parser: AttrParser, operand: Callable[[], str] | None = None):
        self.parser, self.operand = parser, operand
        self.span = parser._current_token.span  # pyright: ignore[reportPrivateUsage]
        """The span of the most recently consumed token."""

    def peek(self) -> str | None:
        return self.parser._current_token.text  # pyright: ignore[reportPrivateUsage]

    def take(self) -> str:
        token = self.peek() or ""
        if token.startswith("%") and self.operand is not None:
            return self.operand()
        self.span = self.parser._current_token.span  # pyright: ignore[reportPrivateUsage]
        self.parser._consume_token()  # pyright: ignore[reportPrivateUsage]
        return token


def parse_size(parser: AttrParser, operand: Callable[[], str] | None = None) -> Expr:
    """Parse one expression. Raises xDSL's ParseError if it is malformed."""
    tokens = ParserTokens(parser, operand)
    try:
        return expr_syntax.parse_expr(tokens)
    except ValueError as error:
        parser.raise_error(str(error), tokens.span)


def parse_sizes(
    parser: AttrParser, operand: Callable[[], str] | None = None
) -> tuple[Expr, ...]:
    """`[a, 2*b, 3]`."""
    delimiter = parser.Delimiter.SQUARE
    return tuple(parser.parse_comma_separated_list(delimiter, lambda: parse_size(parser, operand)))


def format_sizes(sizes: Sequence[Expr]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


@irdl_attr_definition
class ExprAttr(StrataData[Expr]):
    """One symbolic integer expression: `#strata.expr<2*h + 1>`."""

    name = "strata.expr"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Expr:
        with parser.in_angle_brackets():
            return parse_size(parser)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data}>")


@irdl_attr_definition
class SizesAttr(StrataData[tuple[Expr, ...]]):
    """A list of expressions: `#strata.sizes<[batch, 2*h]>`."""

    name = "strata.sizes"

    @computed_once
    def symbols(self) -> frozenset[Symbol]:
        """All symbols in the expressions."""
        return frozenset[Symbol]().union(*[e.symbols for e in self.data])

    @staticmethod
    def of(sizes: Sequence[Size]) -> SizesAttr:
        return _sizes(tuple(map(Expr.of, sizes)))

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Expr, ...]:
        with parser.in_angle_brackets():
            return parse_sizes(parser)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{format_sizes(self.data)}>")


@remembered
def _sizes(sizes: tuple[Expr, ...]) -> SizesAttr:
    return SizesAttr(sizes)


def parse_symbol(parser: AttrParser) -> Symbol:
    """Parse one symbol. Raises xDSL's ParseError if there is none."""
    try:
        return expr_syntax.parse_symbol(ParserTokens(parser))
    except ValueError as error:
        parser.raise_error(str(error))


def parse_symbols(parser: AttrParser) -> list[Symbol]:
    """`(a, "b c")`, possibly empty."""
    delimiter = parser.Delimiter.PAREN
    return parser.parse_comma_separated_list(delimiter, lambda: parse_symbol(parser))


def format_symbols(symbols: Iterable[Symbol]) -> str:
    """`a, "b c"`."""
    return ", ".join(map(str, symbols))


@irdl_attr_definition
class SymbolsAttr(StrataData[tuple[Symbol, ...]]):
    """A list of symbols: `#strata.symbols<(batch, "in0")>`."""

    name = "strata.symbols"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Symbol, ...]:
        with parser.in_angle_brackets():
            return tuple(parse_symbols(parser))

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<({format_symbols(self.data)})>")
