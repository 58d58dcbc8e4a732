"""Rules on collective operations."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, SSAValue

from dialects.graph import TransposeOp
from dialects.graph.base import ints_of
from dialects.graph.collective import (
    AllGatherOp,
    AllReduceOp,
    CollectiveOp,
    ReduceScatterOp,
    ShardOp,
)
from dialects.ranks.collectives import PERMUTE
from passes.rewriting import Rewriter, Rule


def alone(op: Operation, at: Rewriter) -> SSAValue | None:
    """In a group of one rank, the result is the operand."""
    assert isinstance(op, CollectiveOp)
    how = op.collective
    is_sent = how.kind != PERMUTE or how.source_of(0) is not None
    return op.x if how.group.size == 1 and is_sent else None


def part_of_gathered(op: ShardOp, at: Rewriter) -> SSAValue | None:
    # shard(all_gather(x)) == x
    source = op.x.owner
    return source.x if isinstance(source, AllGatherOp) and source.group == op.group else None


def part_of_sum(op: ShardOp, at: Rewriter) -> SSAValue | None:
    # shard(all_reduce(x)) == reduce_scatter(x), also with a transpose between, if nothing else
    # needs all of the sum
    source, moved = op.x.owner, None
    if isinstance(source, TransposeOp) and op.x.has_one_use():
        source, moved = source.x.owner, source
    if not isinstance(source, AllReduceOp) or source.group != op.group or (
            not source.result.has_one_use()):
        return None
    part = source.x if moved is None else at(
        TransposeOp, source.x, perm=list(ints_of(moved.properties, "perm")))
    return at(ReduceScatterOp, part, reduce=StringAttr(source.reduce.data), group=op.group)


RANK_RULES: dict[type[Operation], list[Rule]] = {
    CollectiveOp: [alone], ShardOp: [part_of_gathered, part_of_sum]}
