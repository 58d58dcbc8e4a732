"""A collective operation on buffers, between launches.

    host.collective all_reduce %x, %y {group = #strata.group<"tp", [[0, 1]]>, reduce = "sum"}

It reads one buffer and writes the other, once all earlier operations are done. Targets leave the
communication to torch.distributed.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import operand_def, opt_prop_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from dialects.classes import StrataOperation
from dialects.definition import irdl_op_definition
from dialects.ranks.attributes import GroupAttr, collective_of
from dialects.ranks.collectives import (
    ALL_GATHER,
    KINDS,
    REDUCE_SCATTER,
    SHARD,
    Collective,
)
from dialects.strata.types import BufferType, ExprAttr, SizesAttr, buffer_type
from dialects.text.syntax import parse_attributes, parse_value, print_attributes, print_values


@irdl_op_definition
class CollectiveOp(StrataOperation):
    """A collective operation of the ranks of a group: reads `source`, writes `target`.

    The kinds and their attributes are those of the operations of the graph level.
    Constraints: (C1) the kind is known; (C2) both buffers have the same element type, and the
    number of elements that the kind gives.
    """

    name = "host.collective"
    kind = prop_def(StringAttr)
    group = prop_def(GroupAttr)
    reduce = opt_prop_def(StringAttr)
    root = opt_prop_def(ExprAttr)
    pairs = opt_prop_def(SizesAttr)
    source = operand_def(BufferType)
    target = operand_def(BufferType)

    @staticmethod
    def of(
        kind: str, source: SSAValue, target: SSAValue, attributes: Mapping[str, Attribute]
    ) -> CollectiveOp:
        return CollectiveOp.create(
            operands=[source, target], properties={"kind": StringAttr(kind), **attributes})

    @property
    def collective(self) -> Collective:
        """The operation as data."""
        return collective_of(self.kind.data, self.properties)

    def verify_(self) -> None:
        kind, size = self.kind.data, self.group.data.size
        if kind not in KINDS:
            raise VerifyException(f"C1: {kind!r} is not one of {', '.join(KINDS)}")
        source, target = buffer_type(self.source), buffer_type(self.target)
        more = source.count * (size if kind == ALL_GATHER else 1)
        divides = kind in (REDUCE_SCATTER, SHARD)
        there = target.count * (size if divides else 1)
        is_open = divides and more.constant is None  # n floordiv 2, twice, is not n for algebra
        differs = None if is_open else (more - there).constant
        if source.element != target.element or differs:
            raise VerifyException(f"C2: {kind} of {size} ranks from {source} to {target}")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind.data} ")
        print_values(printer, self.operands)
        print_attributes(printer, {k: v for k, v in self.properties.items() if k != "kind"})

    @classmethod
    def parse(cls, parser: Parser) -> CollectiveOp:
        kind = parser.parse_identifier()
        source = parse_value(parser)
        parser.parse_punctuation(",")
        target = parse_value(parser)
        return CollectiveOp.of(kind, source, target, parse_attributes(parser))
