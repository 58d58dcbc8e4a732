"""Annotations of shardings, which say nothing to a program of one rank."""

from __future__ import annotations

from xdsl.ir import SSAValue

from dialects.graph.collective import ShardAsOp
from passes.graph_to_loop.rules import lowers
from passes.rewriting import Rewriter


@lowers(ShardAsOp)
def shard_as(op: ShardAsOp, at: Rewriter) -> SSAValue:
    return op.x
