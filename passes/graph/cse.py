"""graph-cse: compute equal operations on equal operands only once.

    %a = graph.exp %x                    %a = graph.exp %x
    %b = graph.exp %x            -->     %y = graph.add %a, %a
    %y = graph.add %a, %b

Equal constants are merged as well, whatever the names of their weights are. The first of several
equal operations is kept, and stands for the nodes of all. Assumes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable

from xdsl.dialects.builtin import FloatAttr, ModuleOp
from xdsl.ir import Attribute, Block, Operation
from xdsl.traits import Pure

from dialects.strata.types import LiteralAttr, WeightAttr, format_literal, format_number
from passes.base import StrataContext, StrataPass
from passes.rewriting import functions, replace


class GraphCse(StrataPass):
    """Merge equal operations, in one walk from the start."""

    name = "graph-cse"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        for func in functions(module):
            merge_equal(func.body.block, context)


def merge_equal(block: Block, context: StrataContext) -> list[Operation]:
    """Merge equal operations of a block; those that others have replaced."""
    first: dict[Hashable, Operation] = {}
    gone: list[Operation] = []
    for op in list(block.ops):
        if op.regions or not op.results or not op.has_trait(Pure):
            continue
        known = first.setdefault(_key(op), op)
        if known is not op:
            replace(op, known.results, context, "equal")
            gone.append(op)
    return gone


def _key(op: Operation) -> Hashable:
    """A key that operations share if they compute the same; operands are merged already."""
    properties = [(name, _attribute_key(value)) for name, value in sorted(op.properties.items())]
    types = tuple(r.type for r in op.results)
    return op.name, tuple(map(id, op.operands)), tuple(properties), types


def _attribute_key(value: Attribute) -> Hashable:
    """The text of numbers, in which 0.0 and -0.0 differ; the content of weights, not their name."""
    match value:
        case LiteralAttr():
            return "literal", format_literal(value.data)
        case FloatAttr():
            return "float", format_number(value.value.data), value.type
        case WeightAttr():
            return "weight", value.key
        case _:
            return value
