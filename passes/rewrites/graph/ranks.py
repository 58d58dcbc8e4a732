"""Rules on collective operations."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from dialects.graph.collective import CollectiveOp
from dialects.ranks.collectives import PERMUTE
from passes.rewriting import Rewriter, Rule


def alone(op: Operation, at: Rewriter) -> SSAValue | None:
    """In a group of one rank, the result is the operand."""
    assert isinstance(op, CollectiveOp)
    how = op.collective
    is_sent = how.kind != PERMUTE or how.source_of(0) is not None
    return op.x if how.group.size == 1 and is_sent else None


RANK_RULES: dict[type[Operation], list[Rule]] = {CollectiveOp: [alone]}
