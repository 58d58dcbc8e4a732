"""The group of a collective operation as an attribute, and the operation as data."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from dialects.classes import StrataData
from dialects.ranks.collectives import Collective, Group
from dialects.strata.expr_attributes import ExprAttr, SizesAttr
from dialects.symbolic.symbol import quoted


@irdl_attr_definition
class GroupAttr(StrataData[Group]):
    """Ranks that take part together: `#strata.group<"tp", [[0, 1], [2, 3]]>`.

    Each list is a group; a rank takes part in the one that it is in. The name is that of a process
    group of PyTorch, or of axes of a mesh.
    """

    name = "strata.group"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Group:
        with parser.in_angle_brackets():
            name = parser.parse_str_literal()
            parser.parse_punctuation(",")
            start = parser.pos
            parts = parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE, lambda: parser.parse_comma_separated_list(
                    parser.Delimiter.SQUARE, lambda: parser.parse_integer(allow_boolean=False)))
        _check(parser, parts, start)
        return Group(name, tuple(map(tuple, parts)))

    def print_parameter(self, printer: Printer) -> None:
        parts = ", ".join(str([*part]) for part in self.data.parts)
        printer.print_string(f"<{quoted(self.data.name)}, [{parts}]>")


def _check(parser: AttrParser, parts: list[list[int]], start: int) -> None:
    ranks = [rank for part in parts for rank in part]
    if not ranks or len({*ranks}) < len(ranks) or min(ranks) < 0:
        parser.raise_error("a group needs ranks from 0 on, each once", start)
    if len({len(part) for part in parts}) > 1:
        parser.raise_error("all groups of a name need equally many ranks", start)


def world_of(module: Operation) -> int:
    """How many ranks a module's collective operations need; 1 if there are none."""
    groups = (op.properties.get("group") for op in module.walk())
    return max((g.data.world for g in groups if isinstance(g, GroupAttr)), default=1)


def collective_of(kind: str, attributes: Mapping[str, Attribute]) -> Collective:
    """A collective operation as data, from the attributes of an operation at any level."""
    group, reduction = attributes["group"], attributes.get("reduce")
    root, pairs = attributes.get("root"), attributes.get("pairs")
    assert isinstance(group, GroupAttr)
    places = [e.constant or 0 for e in pairs.data] if isinstance(pairs, SizesAttr) else []
    return Collective(
        kind, group.data, reduction.data if isinstance(reduction, StringAttr) else "",
        (root.data.constant or 0) if isinstance(root, ExprAttr) else 0,
        tuple(zip(places[::2], places[1::2], strict=False)))
