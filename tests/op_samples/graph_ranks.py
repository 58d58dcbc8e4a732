"""Samples of collective operations, in groups of one rank; `tests/ranks` has those of several."""

from __future__ import annotations

import dialects.graph.collective as c
from dialects.ranks.attributes import GroupAttr
from dialects.ranks.collectives import Group
from tests.op_samples.sample import BF16, F16, F32, F64, I32, S, Sample

_ALONE = GroupAttr(Group("g", ((0,),)))

RANKS: list[Sample] = [
    S(c.AllReduceOp, F32(3, 5), dims="n m", reduce="sum", group=_ALONE),
    S(c.AllReduceOp, F16(7), dims="n", reduce="avg", group=_ALONE),
    S(c.AllReduceOp, I32(3, 0), dims="3 n", reduce="max", group=_ALONE),
    S(c.AllReduceOp, F64(), reduce="product", group=_ALONE),
    S(c.AllGatherOp, F32(3, 5), dims="n m", group=_ALONE),
    S(c.ReduceScatterOp, BF16(3, 5), dims="n m", reduce="sum", group=_ALONE),
    S(c.AllToAllOp, F32(3, 5), dims="n m", group=_ALONE),
    S(c.BroadcastRanksOp, F32(3, 5), dims="n m", root=0, group=_ALONE),
    S(c.ShardOp, F32(3, 5), dims="n m", group=_ALONE),
    S(c.ShardAsOp, F32(3, 5), dims="n m", axes="_,tp"),
    S(c.PermuteRanksOp, F32(3, 5), dims="n m", pairs=[0, 0], group=_ALONE),
]
