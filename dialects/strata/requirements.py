"""`strata.require` checks the range of run-time indices; `strata.trap` reports kernel faults.

    strata.require -1000 <= %ids < 1000 of "ids"
    %y = graph.gather %table, %ids {axis = 0} : f32[n, 64]

All levels share these operations. From the loop level on, `strata.require` checks a single number,
the value that is farthest out:

    strata.require -1000 <= farthest %worst < 1000 of "ids"

Integers that are divided by zero are told in the same way, as truth values that must all be 0:

    strata.require 0 <= %zeros < 1 divisors

Accesses with such indices stay within their buffers whatever the values are: this operation only
turns wrong values into an error. It may therefore follow the operations that use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import operand_def, opt_prop_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from dialects.classes import StrataOperation
from dialects.definition import irdl_op_definition
from dialects.strata import types as t
from dialects.strata.assumptions import IndexRange, check_fault
from dialects.strata.types import Array, ExprAttr, Shaped
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_name, parse_value, strings


@irdl_op_definition
class RequireOp(StrataOperation):
    """Require all elements of an integer tensor to be in range: `strata.require -n <= %i < n`.

    An empty tensor satisfies every requirement. `of "ids"` gives the values a name for messages. A
    violation ends the run with an IndexRangeError that names the operation's model node. With
    `farthest`, the operand is a single number instead: the maximum over all values of the unsigned
    difference value - low, as an i64 with its sign bit inverted. A value below `low` wraps around
    to a large difference, so this maximum detects values that are too small as well, and the
    offending value can be recovered from it. With `divisors`, the values tell which divisors are
    zero, and a violation ends the run with a DivisionByZeroError.

    Constraints: (C1) the operand has integer elements, not truth values; (C2) at the host level,
    and with `farthest`, the operand is a single i64.
    """

    name = "strata.require"
    values = operand_def(Shaped)
    low = prop_def(ExprAttr)
    high = prop_def(ExprAttr)
    farthest = opt_prop_def(UnitAttr)
    of_ = opt_prop_def(StringAttr, prop_name="of")
    divisors = opt_prop_def(UnitAttr)

    @staticmethod
    def of(
        low: Size, values: SSAValue, high: Size, label: str = "", *, farthest: bool = False,
        divisors: bool = False,
    ) -> RequireOp:
        """Require `low` <= `values` < `high`. `label`: the name of the values in messages."""
        properties: dict[str, Attribute] = {
            "low": ExprAttr(Expr.of(low)), "high": ExprAttr(Expr.of(high))}
        if farthest:
            properties["farthest"] = UnitAttr()
        if label:
            properties["of"] = StringAttr(label)
        if divisors:
            properties["divisors"] = UnitAttr()
        return RequireOp.create(operands=[values], properties=properties)

    def moved(self, values: SSAValue) -> RequireOp:
        """The same requirement for another value."""
        return RequireOp.create(operands=[values], properties={**self.properties})

    @property
    def label(self) -> str:
        """The name of the values in messages, or an empty string."""
        return "" if self.of_ is None else self.of_.data

    @property
    def symbols(self) -> frozenset[Symbol]:
        """The sizes in its bounds."""
        return self.low.data.symbols | self.high.data.symbols

    def verify_(self) -> None:
        assert isinstance(self.values.type, Shaped)
        element = self.values.type.element
        if t.is_float(element) or element == t.i1:
            raise VerifyException(f"C1: strata.require needs integers, not {element}")
        is_number = (element, self.values.type.count.constant) == (t.i64, 1)
        if not is_number and self.farthest is not None:
            raise VerifyException("C2: strata.require with `farthest` needs one i64")
        if not is_number and isinstance(self.values.type, t.BufferType):
            raise VerifyException("C2: at the host level, strata.require needs one i64")

    def check(self, values: Array, sizes: Mapping[Symbol, int]) -> None:
        """Raises DataError for a value out of range. `sizes`: the symbols' values."""
        self.range.check(values, sizes)

    @property
    def range(self) -> IndexRange:
        """The requirement as plain data."""
        return IndexRange(self.low.data, self.high.data, location_name(self), self.label,
                          self.farthest is not None, self.divisors is not None)

    def evaluate(self, context: Any, values: Array) -> list[Array]:
        self.check(values, context.sizes)
        return []

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.low.data} <= ")
        if self.farthest is not None:
            printer.print_string("farthest ")
        printer.print_ssa_value(self.values)
        printer.print_string(f" < {self.high.data}")
        if self.of_ is not None:
            printer.print_string(" of ")
            printer.print_string_literal(self.of_.data)
        if self.divisors is not None:
            printer.print_string(" divisors")

    @classmethod
    def parse(cls, parser: Parser) -> RequireOp:
        low = t.parse_size(parser)
        parser.parse_punctuation("<")
        parser.parse_punctuation("=")
        farthest = parser.parse_optional_keyword("farthest") is not None
        values = parse_value(parser)
        parser.parse_punctuation("<")
        high = t.parse_size(parser)
        label = parser.parse_str_literal() if parser.parse_optional_keyword("of") else ""
        divisors = parser.parse_optional_keyword("divisors") is not None
        return RequireOp.of(low, values, high, label, farthest=farthest, divisors=divisors)


@irdl_op_definition
class TrapOp(StrataOperation):
    """End the run if a kernel recorded a fault: `strata.trap %fault ["load of %x", ...]`.

    The operand is a buffer of one number: 0 for no fault, otherwise the 1-based number of one of
    the texts. In that case the run ends with an AccessError that has this text.

    Constraint: (C1) the operand is one i64.
    """

    name = "strata.trap"
    fault = operand_def(Shaped)
    texts = prop_def(ArrayAttr[StringAttr])

    @staticmethod
    def of(fault: SSAValue, texts: Sequence[str]) -> TrapOp:
        return TrapOp.create(operands=[fault], properties={"texts": strings(texts)})

    @property
    def messages(self) -> list[str]:
        return [text.data for text in self.texts.data]

    def verify_(self) -> None:
        assert isinstance(self.fault.type, Shaped)
        if (self.fault.type.element, self.fault.type.count.constant) != (t.i64, 1):
            raise VerifyException("C1: strata.trap needs one i64")

    def check(self, fault: Array) -> None:
        """Raises AccessError if a fault was recorded."""
        check_fault(int(fault.reshape(-1)[0]), self.messages)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.fault)
        printer.print_string(" [")
        printer.print_list(self.messages, printer.print_string_literal)
        printer.print_string("]")

    @classmethod
    def parse(cls, parser: Parser) -> TrapOp:
        fault = parse_value(parser)
        texts = parser.parse_comma_separated_list(
            parser.Delimiter.SQUARE, parser.parse_str_literal)
        return TrapOp.of(fault, texts)


REQUIREMENT_OPS: list[type[Operation]] = [RequireOp, TrapOp]
