"""A launch of a kernel that the user has written in the target's own language.

    host.foreign_launch %x, %y {kernel = "add", source = "...", call = "{0}, {1}, {2}", sizes = [n],
        grid = [(n - 1) floordiv 128 + 1], written = 1, warps = 4, stages = 3}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, prop_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from dialects.definition import irdl_op_definition
from dialects.strata.types import BufferType, ExprAttr, SizesAttr
from dialects.symbolic.expr import Expr
from dialects.text.syntax import (
    attribute_of,
    parse_attributes,
    parse_values,
    print_attributes,
    print_values,
)

SHARED = ("kernel", "source", "call", "sizes", "grid", "warps", "stages")
"""The attributes that are those of the operation of the graph level."""


@irdl_op_definition
class ForeignLaunchOp(IRDLOperation):
    """Launch a kernel that is not ours on buffers, of which it writes the last `written` ones, and
    may read any.

    Attributes are those of `graph.foreign_kernel`.
    Constraint: (C1) at least one buffer is written, and at most all are.
    """

    name = "host.foreign_launch"
    kernel = prop_def(StringAttr)
    source = prop_def(StringAttr)
    call = prop_def(StringAttr)
    sizes = prop_def(SizesAttr)
    grid = prop_def(SizesAttr)
    warps = prop_def(ExprAttr)
    stages = prop_def(ExprAttr)
    written = prop_def(ExprAttr)
    buffers = var_operand_def(BufferType)

    @staticmethod
    def of(
        buffers: Sequence[SSAValue], written: int, attributes: Mapping[str, Attribute]
    ) -> ForeignLaunchOp:
        return ForeignLaunchOp.create(operands=list(buffers), properties={
            **{name: attributes[name] for name in SHARED},
            "written": attribute_of(Expr.of(written))})

    @property
    def targets(self) -> Sequence[SSAValue]:
        """The buffers that it writes."""
        return list(self.buffers)[-(self.written.data.constant or 0):]

    def verify_(self) -> None:
        count = self.written.data.constant or 0
        if not 1 <= count <= len(self.buffers):
            raise VerifyException(f"C1: it writes {count} of {len(self.buffers)} buffers")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_values(printer, self.operands)
        print_attributes(printer, self.properties)

    @classmethod
    def parse(cls, parser: Parser) -> ForeignLaunchOp:
        buffers = parse_values(parser)
        return cls.create(operands=buffers, properties=parse_attributes(parser))
