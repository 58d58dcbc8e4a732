"""Directives for the declarative assembly formats of operations.

    assembly_format = ("custom<Known>($source, type($source)) `:` "
                       "custom<Buffer>(type($result)) attr-dict")

Strata's texts give the types of results, in their short form (`f32[batch, 768]`), and leave out
those of operands, which the definitions before the operation determine.
"""

from __future__ import annotations

from xdsl.ir import Attribute
from xdsl.irdl import IRDLOperation
from xdsl.irdl.declarative_assembly_format import (
    CustomDirective,
    OperandVariable,
    ParsingState,
    PrintingState,
    TypeDirective,
    VariadicOperandVariable,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer

from dialects.strata.types import BufferType, TileType, parse_buffer_type, parse_tile_type
from dialects.text.syntax import resolve


@irdl_custom_directive
class Known(CustomDirective):
    """An operand without its type, which is that of its definition: `%x`."""

    operand: OperandVariable
    type: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        operand = parser.parse_unresolved_operand()
        self.operand.set(state, operand)
        self.type.set(state, [resolve(parser, operand).type])

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        printer.print_ssa_value(self.operand.get(op))


@irdl_custom_directive
class AllKnown(CustomDirective):
    """Any number of operands without their types: `%x, %y`, possibly none."""

    operands: VariadicOperandVariable
    types: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        operands = parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand) or []
        self.operands.set(state, operands)
        self.types.set(state, [resolve(parser, operand).type for operand in operands])

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        self.operands.print(printer, state, op)


@irdl_custom_directive
class Buffer(CustomDirective):
    """The type of a buffer in its short form: `f32[batch, 768]`."""

    type: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.type.set(state, [parse_buffer_type(parser)])

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        _print_short(printer, state, self.type.get(op)[0])


@irdl_custom_directive
class Tile(CustomDirective):
    """The type of a tile in its short form: `tile<6x[64]xf32>`."""

    type: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.type.set(state, [parse_tile_type(parser)])

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        _print_short(printer, state, self.type.get(op)[0])


def _print_short(printer: Printer, state: PrintingState, type_: Attribute) -> None:
    assert isinstance(type_, BufferType | TileType)
    state.print_whitespace(printer)
    printer.print_string(type_.short)
