"""`strata.require`: what indices that data bring must be.

    strata.require -1000 <= %ids < 1000 of "ids"
    %y = graph.gather %table, %ids {axis = 0} : f32[n, 64]

All levels share it. From the loop level on it stands behind the extrema of the values:

    strata.require -1000 <= %lowest, %highest < 1000 of "ids"

Reads and writes by such indices never leave their buffers, whatever the values are: this operation
only turns values that are wrong into an error. It may therefore stand behind what uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from dialects import types as t
from dialects.assumptions import IndexRangeError, index_refusal
from dialects.expr import Expr, Size
from dialects.syntax import location_name, parse_value
from dialects.types import Array, ExprAttr, Shaped


@irdl_op_definition
class RequireOp(IRDLOperation):
    """Every element of an integer tensor is in a range: `strata.require -n <= %i < n of "ids"`.

    Every element of `lowest` is at least `low`, and every element of `highest` less than `high`;
    both operands may be the same tensor. A tensor without elements is always right. `of` is what
    the values are called in messages. A run ends with an IndexRangeError that names the operation's
    node where it does not hold. At the host level the operands are buffers of one element.

    Constraints: (C1) operands have integer elements of one type, not truth values.
    """

    name = "strata.require"
    lowest = operand_def(Shaped)
    highest = operand_def(Shaped)
    low = prop_def(ExprAttr)
    high = prop_def(ExprAttr)
    of_ = opt_prop_def(StringAttr, prop_name="of")

    @staticmethod
    def of(
        low: Size, lowest: SSAValue, highest: SSAValue, high: Size, label: str = ""
    ) -> RequireOp:
        """`low` <= `lowest`, `highest` < `high`; `label`: what messages call the values."""
        properties: dict[str, Any] = {
            "low": ExprAttr(Expr.of(low)), "high": ExprAttr(Expr.of(high))}
        if label:
            properties["of"] = StringAttr(label)
        return RequireOp.create(operands=[lowest, highest], properties=properties)

    def moved(self, lowest: SSAValue, highest: SSAValue) -> RequireOp:
        """The same requirement of other values."""
        return RequireOp.create(operands=[lowest, highest], properties={**self.properties})

    @property
    def label(self) -> str:
        """What messages call the values; empty where they have no name."""
        return "" if self.of_ is None else self.of_.data

    @property
    def symbols(self) -> frozenset[str]:
        """The sizes in its bounds."""
        return self.low.data.symbols | self.high.data.symbols

    def verify_(self) -> None:
        for value in self.operands:
            element = value.type.element if isinstance(value.type, Shaped) else None
            if element is None or t.is_float(element) or element == t.i1:
                raise VerifyException(f"C1: strata.require is about integers, not {element}")

    def check(self, lowest: Array, highest: Array, sizes: Mapping[str, int]) -> None:
        """Raises IndexRangeError for a value that is outside. `sizes`: the symbols' values."""
        low, high = (int(e.data.evaluate(sizes)) for e in (self.low, self.high))
        if lowest.size and lowest.min() < low:
            raise self._error(int(lowest.min()), low, high)
        if highest.size and highest.max() >= high:
            raise self._error(int(highest.max()), low, high)

    def _error(self, value: int, low: int, high: int) -> IndexRangeError:
        return IndexRangeError(index_refusal(value, low, high, location_name(self), self.label))

    def evaluate(self, context: Any, lowest: Array, highest: Array) -> list[Array]:
        self.check(lowest, highest, context.sizes)
        return []

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.low.data} <= ")
        printer.print_ssa_value(self.lowest)
        if self.highest is not self.lowest:
            printer.print_string(", ")
            printer.print_ssa_value(self.highest)
        printer.print_string(f" < {self.high.data}")
        if self.of_ is not None:
            printer.print_string(" of ")
            printer.print_string_literal(self.of_.data)

    @classmethod
    def parse(cls, parser: Parser) -> RequireOp:
        low = t.parse_size(parser)
        parser.parse_punctuation("<")
        parser.parse_punctuation("=")
        lowest = highest = parse_value(parser)
        if parser.parse_optional_punctuation(","):
            highest = parse_value(parser)
        parser.parse_punctuation("<")
        high = t.parse_size(parser)
        label = parser.parse_str_literal() if parser.parse_optional_keyword("of") else ""
        return RequireOp.of(low, lowest, highest, high, label)


REQUIREMENT_OPS: list[type[Operation]] = [RequireOp]
