"""A launch of a kernel that the user has written in the target's own language.

    host.foreign_launch %x, %y {kernel = "add", source = "...", call = "{0}, {1}, {2}", sizes = [n],
        grid = [(n - 1) floordiv 128 + 1], written = 1, warps = 4, stages = 3}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import opt_prop_def, prop_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from dialects.classes import StrataOperation
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
class ForeignLaunchOp(StrataOperation):
    """Launch a kernel that is not ours on buffers, of which it writes the last `written` ones, and
    may read any.

    Attributes are those of `graph.foreign_kernel`. One that a kernel of the module was handed over
    to names it with `instead`, and the sizes that it takes with `instead_sizes`: both compute the
    same of the same buffers, and interpreters run the kernel of the module.
    Constraints: (C1) at least one buffer is written, and at most all are; (C2) a kernel with the
    name `instead` is in the module.
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
    instead = opt_prop_def(StringAttr)
    instead_sizes = opt_prop_def(SizesAttr)
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

    @property
    def own_sizes(self) -> Sequence[Expr]:
        """The sizes that the kernel takes which this one replaces."""
        return () if self.instead_sizes is None else self.instead_sizes.data

    def handed_over(self) -> Operation | None:
        """The kernel of the module which this one replaces; None for one that the model has."""
        top: Operation = self
        while (above := top.parent_op()) is not None:
            top = above
        if self.instead is None or top is self:
            return None
        return next((op for op in top.regions[0].block.ops if self.instead == op.properties.get(
            "sym_name") and op.name.endswith(".kernel")), None)

    def verify_(self) -> None:
        count = self.written.data.constant or 0
        if not 1 <= count <= len(self.buffers):
            raise VerifyException(f"C1: it writes {count} of {len(self.buffers)} buffers")
        if self.instead is not None and self.parent_op() is not None and (
                self.handed_over() is None):
            raise VerifyException(f"C2: there is no kernel @{self.instead.data}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_values(printer, self.operands)
        print_attributes(printer, self.properties)

    @classmethod
    def parse(cls, parser: Parser) -> ForeignLaunchOp:
        buffers = parse_values(parser)
        return cls.create(operands=buffers, properties=parse_attributes(parser))
