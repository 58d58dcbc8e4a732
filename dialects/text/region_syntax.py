"""The text of functions, kernels and regions at all levels: arguments, sizes and terminators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue
from xdsl.parser import Parser
from xdsl.printer import Printer

from dialects.classes import StrataOperation
from dialects.strata.types import (
    Shaped,
    SizesAttr,
    SymbolsAttr,
    format_symbols,
    parse_size,
    parse_symbols,
)
from dialects.symbolic.expr import Expr
from dialects.text.directives import AllKnown
from dialects.text.syntax import parse_values, print_values


def print_signature(printer: Printer, name: StringAttr, arguments: Sequence[SSAValue]) -> None:
    """` @f(%x: f32[n, 4], %y: i64[n])`."""
    printer.print_string(" ")
    printer.print_symbol_name(name.data)
    with printer.in_parens():
        printer.print_list(arguments, lambda a: _print_argument(printer, a))


def _print_argument(printer: Printer, argument: SSAValue) -> None:
    type_ = argument.type
    printer.print_ssa_value(argument)
    printer.print_string(f": {type_.short if isinstance(type_, Shaped) else type_}")


def parse_signature(
    parser: Parser, parse_type: Callable[[Parser], Shaped]
) -> tuple[StringAttr, list[Parser.Argument]]:
    """Parse `@f(%x: f32[n, 4])`; `parse_type` parses the types."""
    def parse_argument() -> Parser.Argument:
        argument = parser.parse_argument(expect_type=False)
        parser.parse_punctuation(":")
        return argument.resolve(parse_type(parser))

    name = parser.parse_symbol_name()
    return name, parser.parse_comma_separated_list(parser.Delimiter.PAREN, parse_argument)


def print_sizes(printer: Printer, sizes: SymbolsAttr) -> None:
    """` sizes(n, m)`, the sizes that a caller passes."""
    printer.print_string(f" sizes({format_symbols(sizes.data)})")


def parse_sizes(parser: Parser) -> SymbolsAttr:
    """Parse `sizes(n, m)`."""
    parser.parse_keyword("sizes")
    return SymbolsAttr(tuple(parse_symbols(parser)))


def print_call(
    printer: Printer, callee: StringAttr, operands: Sequence[SSAValue], sizes: SizesAttr
) -> None:
    """` @k0(%x, %y) sizes(batch, 4*n)`, the call of a kernel."""
    printer.print_string(" ")
    printer.print_symbol_name(callee.data)
    with printer.in_parens():
        print_values(printer, operands)
    printer.print_string(f" sizes({', '.join(map(str, sizes.data))})")


def parse_call(parser: Parser) -> tuple[str, list[SSAValue], list[Expr]]:
    """Parse `@k0(%x, %y) sizes(batch, 4*n)`: the kernel's name, the operands, the sizes."""
    callee = parser.parse_symbol_name().data
    with parser.in_parens():
        operands = parse_values(parser)
    parser.parse_keyword("sizes")
    sizes = parser.parse_comma_separated_list(
        parser.Delimiter.PAREN, lambda: parse_size(parser))
    return callee, operands, sizes


class ValuesOp(StrataOperation):
    """A terminator with any number of operands: `loop.yield %a, %b`, or just `host.return`.

    Each one defines `values`, with the types that it may have.
    """

    custom_directives = (AllKnown,)
    assembly_format = "custom<AllKnown>($values, type($values)) attr-dict"

    @classmethod
    def of(cls, *values: SSAValue) -> Self:
        return cls.create(operands=values)
