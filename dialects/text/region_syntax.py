"""The text of regions at all levels: named arguments and terminators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser
from xdsl.printer import Printer

from dialects.strata.types import Shaped
from dialects.text.syntax import parse_values, print_values


def print_argument(printer: Printer, argument: SSAValue) -> None:
    """`%x: f32[n, 4]`."""
    type_ = argument.type
    printer.print_ssa_value(argument)
    printer.print_string(f": {type_.short if isinstance(type_, Shaped) else type_}")


def parse_argument(parser: Parser, parse_type: Callable[[Parser], Shaped]) -> Parser.Argument:
    """Parse `%x: f32[n, 4]`; `parse_type` parses the type."""
    argument = parser.parse_argument(expect_type=False)
    parser.parse_punctuation(":")
    return argument.resolve(parse_type(parser))


class ValuesOp(IRDLOperation):
    """A terminator with any number of operands: `loop.yield %a, %b`, or just `host.return`."""

    def print(self, printer: Printer) -> None:
        if self.operands:
            printer.print_string(" ")
            print_values(printer, self.operands)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        return cls.create(operands=parse_values(parser))
