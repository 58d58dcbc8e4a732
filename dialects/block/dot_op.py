"""The matrix product of the `block` level."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from dialects.classes import StrataOperation
from dialects.definition import irdl_op_definition
from dialects.strata import types as t
from dialects.strata.types import SizesAttr, TileType
from dialects.symbolic.expr import Expr
from dialects.text.syntax import parse_values, print_values


@irdl_op_definition
class DotOp(StrataOperation):
    """Matrix product with accumulation: `%d = block.dot %a, %b, %c ieee : tile<128x128xf32>`.

    a is m x k and b is k x n; c and the result are m x n tiles of the accumulation type, in which
    products are computed. m may be any number of dims. `precision` selects how f32 operands are
    multiplied: "ieee", "tf32", or "tf32x3", which splits each operand into a sum of two tf32
    numbers, with a relative error of about 2^-22. `unsigned` lists the operands with unsigned
    integers, 0 for a and 1 for b:

        %d = block.dot %a, %b, %c ieee unsigned [0] : tile<6x[64]xi32>

    Constraints: (C1) the shapes match, and so do the grouped dims; (C2) either all tiles lie in
    matrix registers, or none does.
    Source: tl.dot, vector.contract, vpdpbusd.
    """

    name = "block.dot"
    a = operand_def(TileType)
    b = operand_def(TileType)
    c = operand_def(TileType)
    precision = prop_def(StringAttr)
    unsigned = prop_def(SizesAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @staticmethod
    def of(
        a: SSAValue, b: SSAValue, c: SSAValue, precision: str = "ieee",
        unsigned: Sequence[int] = (),
    ) -> DotOp:
        return DotOp.create(operands=[a, b, c], result_types=[c.type], properties={
            "precision": StringAttr(precision), "unsigned": SizesAttr.of(unsigned)})

    def is_unsigned(self, operand: int) -> bool:
        """Whether the integers of an operand are unsigned."""
        return Expr.of(operand) in self.unsigned.data

    def verify_(self) -> None:
        a, b, c = (v.type for v in self.operands)
        assert isinstance(a, TileType) and isinstance(b, TileType) and isinstance(c, TileType)
        fits = a.rank > 0 and b.rank == 2 and a.shape[-1] == b.shape[0]
        if not fits or c.shape != (*a.shape[:-1], b.shape[1]):
            raise VerifyException(f"C1: block.dot of {a.short}, {b.short} into {c.short}")
        if (a.group, b.group) not in ((None, None), (a.rank - 1, 0)) or c.group is not None:
            raise VerifyException(f"C1: block.dot of {a.short}, {b.short} groups other dims")
        if not a.matrix == b.matrix == c.matrix:
            raise VerifyException(f"C2: block.dot of {a.short}, {b.short} into {c.short}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_values(printer, self.operands)
        printer.print_string(f" {self.precision.data}")
        if self.unsigned.data:
            printer.print_string(f" unsigned {t.format_sizes(self.unsigned.data)}")
        assert isinstance(self.result.type, TileType)
        printer.print_string(f" : {self.result.type.short}")

    @classmethod
    def parse(cls, parser: Parser) -> DotOp:
        a, b, c = parse_values(parser)
        precision = parser.parse_identifier()
        unsigned = t.parse_sizes(parser) if parser.parse_optional_keyword("unsigned") else ()
        parser.parse_punctuation(":")
        return DotOp.create(operands=[a, b, c], result_types=[t.parse_tile_type(parser)],
                            properties={"precision": StringAttr(precision),
                                        "unsigned": SizesAttr.of(unsigned)})
