"""graph-cse: equal operations on equal operands are computed once.

    %a = graph.exp %x                    %a = graph.exp %x
    %b = graph.exp %x            -->     %y = graph.add %a, %a
    %y = graph.add %a, %b

Equal constants become one too, whatever names their weights have. The first of equal operations
stays, with its location. Assumes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from xdsl.dialects.builtin import FloatAttr, ModuleOp
from xdsl.ir import Attribute, Block, Operation
from xdsl.traits import Pure

from dialects.strata.types import LiteralAttr, WeightAttr, format_literal, format_number
from passes.base import StrataContext, StrataPass
from passes.rewriting import functions, replace


@dataclass(frozen=True)
class GraphCse(StrataPass):
    """Merge equal operations, in one walk from the start."""

    name = "graph-cse"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        for func in functions(module):
            _merge_equal(func.body.block)


def _merge_equal(block: Block) -> None:
    first: dict[Hashable, Operation] = {}
    for op in list(block.ops):
        if op.regions or not op.results or not op.has_trait(Pure):
            continue
        known = first.setdefault(_key(op), op)
        if known is not op:
            replace(op, known.results)


def _key(op: Operation) -> Hashable:
    """Equal for operations that compute the same, as their operands are merged already."""
    properties = [(name, _attribute_key(value)) for name, value in sorted(op.properties.items())]
    types = tuple(r.type for r in op.results)
    return op.name, tuple(map(id, op.operands)), tuple(properties), types


def _attribute_key(value: Attribute) -> Hashable:
    """Attributes with 0.0 and -0.0 compare equal, but their texts differ; a weight is its bytes."""
    match value:
        case LiteralAttr():
            return "literal", format_literal(value.data)
        case FloatAttr():
            return "float", format_number(value.value.data), value.type
        case WeightAttr():
            return "weight", value.key
        case _:
            return value
