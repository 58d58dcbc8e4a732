"""The operations of the loop level in the body of a nest, beside scalar arithmetic."""

from __future__ import annotations

from xdsl.irdl import (
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, Pure

from dialects.classes import StrataOperation
from dialects.definition import irdl_op_definition
from dialects.strata import types as t
from dialects.strata.types import ExprAttr
from dialects.symbolic.expr import Expr, Size
from dialects.text.region_syntax import ValuesOp


@irdl_op_definition
class YieldOp(ValuesOp):
    """The terminator of a region: yields a point's values in a nest, the results in a kernel."""

    name = "loop.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())


@irdl_op_definition
class IndexOp(StrataOperation):
    """The value of an index expression at this point, in a nest: `loop.index i0 - i1 : index`."""

    name = "loop.index"
    expr = prop_def(ExprAttr)
    result = result_def(t.index)
    traits = traits_def(Pure())

    @staticmethod
    def of(expr: Size) -> IndexOp:
        return IndexOp.create(
            properties={"expr": ExprAttr(Expr.of(expr))}, result_types=[t.index])

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.expr.data} : index")

    @classmethod
    def parse(cls, parser: Parser) -> IndexOp:
        expr = t.parse_size(parser)
        parser.parse_punctuation(":")
        parser.parse_keyword("index")
        return IndexOp.of(expr)
