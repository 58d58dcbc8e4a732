"""`block.all_reduce`: a tile, summed over the ranks that run the same program."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import operand_def, prop_def, result_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from dialects.classes import StrataOperation
from dialects.definition import irdl_op_definition
from dialects.ranks.attributes import GroupAttr, collective_of
from dialects.ranks.collectives import ALL_REDUCE, Collective
from dialects.strata.types import TileType, bf16, f16, f32, parse_tile_type
from dialects.text.syntax import parse_attributes, parse_value, print_attributes, print_values

SUMMED = (f16, bf16, f32)
"""The types of elements that programs exchange."""


@irdl_op_definition
class AllReduceOp(StrataOperation):
    """The sum of the tiles that the same program has on all ranks of a group.

        %s = block.all_reduce %x {group = #strata.group<"tp", [[0, 1]]>} : tile<16xbf16>

    All ranks run the same kernel with the same grid, and each program executes the operation once.
    The sum is as of `graph.all_reduce`: in the group's order, in f32, rounded once.
    Constraints: (C1) the result has the operand's type, which has a dim, and no lanes; (C2) the
    elements are f16, bf16 or f32.
    """

    name = "block.all_reduce"
    value = operand_def(TileType)
    group = prop_def(GroupAttr)
    result = result_def(TileType)

    @staticmethod
    def of(value: SSAValue, group: Attribute, type_: Attribute | None = None) -> AllReduceOp:
        return AllReduceOp.create(operands=[value], properties={"group": group},
                                  result_types=[type_ or value.type])

    @property
    def collective(self) -> Collective:
        """The operation as data."""
        return collective_of(ALL_REDUCE, {"group": self.group, "reduce": StringAttr("sum")})

    def verify_(self) -> None:
        type_ = self.value.type
        assert isinstance(type_, TileType)
        if self.result.type != type_ or not type_.rank or type_.lanes is not None:
            raise VerifyException("C1: block.all_reduce must keep the type of a tile without lanes")
        if type_.element not in SUMMED:
            raise VerifyException(f"C2: block.all_reduce cannot sum elements of {type_.element}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_values(printer, self.operands)
        print_attributes(printer, self.properties)
        assert isinstance(self.result.type, TileType)
        printer.print_string(f" : {self.result.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> AllReduceOp:
        value = parse_value(parser)
        group = parse_attributes(parser)["group"]
        parser.parse_punctuation(":")
        return AllReduceOp.of(value, group, parse_tile_type(parser))
