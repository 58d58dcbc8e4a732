"""`block.scan`: what is combined up to each place along one dim."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from dialects import types as t
from dialects.block.tile_ops import COMBINERS
from dialects.expr import Expr
from dialects.syntax import parse_value
from dialects.types import ExprAttr, TileType


@irdl_op_definition
class ScanOp(IRDLOperation):
    """Combine values with all before them along a dim: `block.scan add %x dim 1 : tile<2x8xf32>`.

    The order of combination is free (floating-point sums may differ in rounding).
    Constraints: (C1) the result has the operand's type; (C2) `dim` is one of its dims, and not that
    of lanes.
    """

    name = "block.scan"
    value = operand_def(TileType)
    combiner = prop_def(StringAttr)
    dim = prop_def(ExprAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(combiner: str, value: SSAValue, dim: int) -> ScanOp:
        return ScanOp.create(
            operands=[value], result_types=[value.type],
            properties={"combiner": StringAttr(combiner), "dim": ExprAttr(Expr.of(dim))})

    @property
    def axis(self) -> int:
        return self.dim.data.constant or 0

    def verify_(self) -> None:
        type_ = self.value.type
        assert isinstance(type_, TileType)
        if self.combiner.data not in COMBINERS:
            raise VerifyException(f"block.scan has no combiner {self.combiner.data!r}")
        if self.result.type != type_:
            raise VerifyException("C1: block.scan keeps the type of its operand")
        if not 0 <= self.axis < type_.rank or self.axis in (type_.lanes, type_.group):
            raise VerifyException("C2: block.scan walks a dim of the tile that is not in lanes")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.combiner.data} ")
        printer.print_ssa_value(self.value)
        assert isinstance(self.result.type, TileType)
        printer.print_string(f" dim {self.axis} : {self.result.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> ScanOp:
        combiner = parser.parse_identifier()
        value = parse_value(parser)
        parser.parse_keyword("dim")
        dim = parser.parse_integer()
        parser.parse_punctuation(":")
        t.parse_tile_type(parser)
        return ScanOp.of(combiner, value, dim)
