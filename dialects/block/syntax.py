"""The text of index expressions over SSA values, and of operands with dim lists.

Inside attributes an index operand is the symbol `%0`, `%1` ...: its position among the
operation's `indices`. In text it is the value's name: `%X[%r, 2*%c + t0]`.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue
from xdsl.parser import Parser
from xdsl.printer import Printer

from dialects.strata.types import SizesAttr, parse_size
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Kind, Symbol
from dialects.text.syntax import parse_value


class IndexReader:
    """Parses expressions that share one list of operands; `values` collects them in order."""

    def __init__(self, parser: Parser):
        self.parser = parser
        self.values: list[SSAValue] = []

    def _operand(self) -> str:
        value = parse_value(self.parser)
        if value not in self.values:
            self.values.append(value)
        return Symbol.operand(self.values.index(value)).text

    def parse(self) -> Expr:
        return parse_size(self.parser, self._operand)


def index_text(printer: Printer, expr: Expr, indices: Sequence[SSAValue]) -> str:
    """The expression with operand positions replaced by the values' printed names."""
    names = printer._ssa_values  # pyright: ignore[reportPrivateUsage]
    used = [s for s in expr.symbols if s.kind is Kind.OPERAND]
    named = {s: Expr.operand(names.get(indices[s.number], "?")) for s in used}
    return str(expr.substitute(named))


def print_index(printer: Printer, expr: Expr, indices: Sequence[SSAValue]) -> None:
    printer.print_string(index_text(printer, expr, indices))


def print_indices(printer: Printer, exprs: Sequence[Expr], indices: Sequence[SSAValue]) -> None:
    """`[%r, %c + t0]`."""
    printer.print_string(f"[{', '.join(index_text(printer, e, indices) for e in exprs)}]")


def print_mapped_values(
    printer: Printer, mapped: Sequence[tuple[SSAValue, SizesAttr]]
) -> None:
    """Print `%a[0, 1], %b[1]`: values, and the result dims to which their dims map."""
    for k, (value, dims) in enumerate(mapped):
        printer.print_string(", " if k else "")
        printer.print_ssa_value(value)
        printer.print_string(f"[{', '.join(map(str, dims.data))}]")


def parse_mapped_values(parser: Parser) -> list[tuple[SSAValue, tuple[int, ...]]]:
    """The inverse of `print_mapped_values`; the list may be empty."""
    mapped: list[tuple[SSAValue, tuple[int, ...]]] = []
    while parser._current_token.text.startswith("%"):  # pyright: ignore[reportPrivateUsage]
        value = parse_value(parser)
        dims = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        mapped.append((value, tuple(dims)))
        if not parser.parse_optional_punctuation(","):
            break
    return mapped
