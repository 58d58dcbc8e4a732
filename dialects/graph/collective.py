"""Operations that several ranks compute together: each gives its operand, and gets its result.

All ranks of a group execute the same collective operations in the same order. `group` names the
group and lists its ranks. The meaning is in `dialects/ranks/collectives.py`; evaluation needs the
other ranks (`dialects/ranks/peers.py`), except for groups of one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr
from xdsl.irdl import operand_def, prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp, ShapeError, int_of, ints_of, text_of
from dialects.graph.inference import NUMBERS, check_kind
from dialects.ranks import collectives as c
from dialects.ranks.attributes import GroupAttr, collective_of
from dialects.ranks.collectives import REDUCTIONS, Collective
from dialects.ranks.peers import sole
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.types import (
    Array,
    ExprAttr,
    SizesAttr,
    TensorType,
    byte_width,
    is_float,
    tensor,
)


class CollectiveOp(GraphOp):
    """An operation of all ranks of a group."""

    MAY_FOLD: ClassVar[bool] = False
    KIND: ClassVar[str]
    x = operand_def(TensorType)
    group = prop_def(GroupAttr)
    result = result_def(TensorType)

    @property
    def collective(self) -> Collective:
        """The operation as data."""
        return collective_of(self.KIND, self.properties)

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        [x], how = operands, self.collective
        return sole([x], how) if context.peers is None else context.peers.run(how, x)


def _size(attributes: Attributes) -> int:
    group = attributes["group"]
    assert isinstance(group, GroupAttr)
    return group.data.size


def _check_reduction(x: TensorType, attributes: Attributes) -> None:
    reduction = text_of(attributes, "reduce")
    if reduction not in REDUCTIONS:
        raise ShapeError(f"C1: the reduction is {reduction!r}, not one of {', '.join(REDUCTIONS)}")
    check_kind(NUMBERS, x.element, "C1")
    narrow = is_float(x.element) and byte_width(x.element) < 2
    if narrow or (reduction == "avg" and not is_float(x.element)):
        raise ShapeError(f"C1: {reduction} of {x.element} elements")


def _check_parts(x: TensorType, size: int, constraint: str) -> None:
    first = x.shape[0].constant if x.rank else 1
    if x.rank == 0 or (first is not None and first % size):
        raise ShapeError(
            f"{constraint}: the first dim of {x.short} cannot be divided among {size} ranks")


@irdl_op_definition
class AllReduceOp(CollectiveOp):
    """The operands of all ranks, combined elementwise; every rank gets the same.

    Constraints: (C1) the reduction is sum, avg, product, min or max; the elements are
    numbers, of at least two bytes if they are floats; avg needs floats.

    Source: torch.ops._c10d_functional.all_reduce.
    Example: %y = graph.all_reduce %x {reduce = "sum", group = #strata.group<"g", [[0]]>} : f32[n]
        given %x: f32[n]
    """

    name = "graph.all_reduce"
    KIND: ClassVar[str] = c.ALL_REDUCE
    reduce = prop_def(StringAttr)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        _check_reduction(types[0], attributes)
        return [types[0]]


@irdl_op_definition
class AllGatherOp(CollectiveOp):
    """The operands of all ranks, one after another along the first dim.

    Constraints: (C1) there is a first dim.

    Source: torch.ops._c10d_functional.all_gather_into_tensor.
    Example: %y = graph.all_gather %x {group = #strata.group<"g", [[0]]>} : f32[n, 3]
        given %x: f32[n, 3]
    """

    name = "graph.all_gather"
    KIND: ClassVar[str] = c.ALL_GATHER

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        x, size = types[0], _size(attributes)
        if x.rank == 0:
            raise ShapeError("C1: a tensor without dims cannot be gathered along the first")
        return [tensor(x.element, [x.shape[0] * size, *x.shape[1:]])]


@irdl_op_definition
class ReduceScatterOp(CollectiveOp):
    """The part for this rank, along the first dim, of the combined operands of all ranks.

    Constraints: (C1) the reduction is sum, avg, product, min or max; the elements are
    numbers, of at least two bytes if they are floats; avg needs floats;
    (C2) there is a first dim, which the number of ranks divides as far as it is known.

    Source: torch.ops._c10d_functional.reduce_scatter_tensor.
    Example: %y = graph.reduce_scatter %x {reduce = "sum", group = #strata.group<"g", [[0]]>}
        : f32[n, 3] given %x: f32[n, 3]
    """

    name = "graph.reduce_scatter"
    KIND: ClassVar[str] = c.REDUCE_SCATTER
    reduce = prop_def(StringAttr)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        x, size = types[0], _size(attributes)
        _check_reduction(x, attributes)
        _check_parts(x, size, "C2")
        return [tensor(x.element, [x.shape[0] // size, *x.shape[1:]])]


@irdl_op_definition
class AllToAllOp(CollectiveOp):
    """Of the operands of all ranks the parts for this rank, one after another.

    Each operand has as many equal parts along the first dim as there are ranks.

    Constraints: (C1) there is a first dim, which the number of ranks divides as far as it is known.

    Source: torch.ops._c10d_functional.all_to_all_single.
    Example: %y = graph.all_to_all %x {group = #strata.group<"g", [[0]]>} : f32[n, 3]
        given %x: f32[n, 3]
    """

    name = "graph.all_to_all"
    KIND: ClassVar[str] = c.ALL_TO_ALL

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        _check_parts(types[0], _size(attributes), "C1")
        return [types[0]]


@irdl_op_definition
class BroadcastRanksOp(CollectiveOp):
    """The operand of the rank at position `root` of the group.

    Constraints: (C1) the group has such a position.

    Source: torch.ops._c10d_functional.broadcast.
    Example: %y = graph.broadcast_ranks %x {root = 0, group = #strata.group<"g", [[0]]>} : f32[n]
        given %x: f32[n]
    """

    name = "graph.broadcast_ranks"
    KIND: ClassVar[str] = c.BROADCAST
    root = prop_def(ExprAttr)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        if not 0 <= int_of(attributes, "root") < _size(attributes):
            raise ShapeError(f"C1: the root is {int_of(attributes, 'root')} in a group of "
                             f"{_size(attributes)}")
        return [types[0]]


@irdl_op_definition
class ShardOp(CollectiveOp):
    """This rank's part, along the first dim, of its own operand; nothing is exchanged.

    Constraints: (C1) there is a first dim, which the number of ranks divides as far as it is known.
    Source: Shardy, where a tensor gets a sharding.
    Example: %y = graph.shard %x {group = #strata.group<"g", [[0]]>} : f32[n, 3]
        given %x: f32[n, 3]
    """

    name = "graph.shard"
    KIND: ClassVar[str] = c.SHARD

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        x, size = types[0], _size(attributes)
        _check_parts(x, size, "C1")
        return [tensor(x.element, [x.shape[0] // size, *x.shape[1:]])]


@irdl_op_definition
class ShardAsOp(GraphOp):
    """The operand. Says along which axes of a mesh its dims are to be divided among ranks.

    `axes` has an entry for each dim: the name of an axis, or `_`. `graph-partition` divides the
    tensor so, and what is computed from it as follows.
    Constraints: (C1) there is an entry for each dim, and no axis occurs twice.
    Source: Shardy sharding_constraint; GSPMD.
    Example: %y = graph.shard_as %x {axes = "_,tp"} : f32[n, 8] given %x: f32[n, 8]
    """

    name = "graph.shard_as"
    MAY_FOLD: ClassVar[bool] = False
    x = operand_def(TensorType)
    axes = prop_def(StringAttr)
    result = result_def(TensorType)

    @property
    def sharding(self) -> tuple[str, ...]:
        """The axis of each dim; empty for a dim that is not divided."""
        return sharding_of(self.axes.data)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        found = sharding_of(text_of(attributes, "axes"))
        used = [axis for axis in found if axis]
        if len(found) != types[0].rank or len({*used}) < len(used):
            raise ShapeError(f"C1: {text_of(attributes, 'axes')!r} does not divide the dims of "
                             f"{types[0].short}")
        return [types[0]]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        return operands[0]


def sharding_of(text: str) -> tuple[str, ...]:
    """`_,tp` as the axis of each dim, empty where there is none."""
    return tuple("" if word == "_" else word for word in text.split(",")) if text else ()


@irdl_op_definition
class PermuteRanksOp(CollectiveOp):
    """The operand of the rank that sends to this one: send and receive in one operation.

    `pairs` lists a sender and its receiver, then the next ones, as positions in the group. A rank
    to which none sends gets zeros.

    Constraints: (C1) the positions are those of members of the group, and none sends or receives
    twice.

    Source: StableHLO collective_permute; torch.distributed's send and receive.
    Example: %y = graph.permute_ranks %x {pairs = [0, 0], group = #strata.group<"g", [[0]]>}
        : f32[n] given %x: f32[n]
    """

    name = "graph.permute_ranks"
    KIND: ClassVar[str] = c.PERMUTE
    pairs = prop_def(SizesAttr)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        pairs, size = ints_of(attributes, "pairs"), _size(attributes)
        senders, receivers = pairs[::2], pairs[1::2]
        if len(pairs) % 2 or not all(0 <= k < size for k in pairs) or any(
                len({*places}) < len(places) for places in (senders, receivers)):
            raise ShapeError(f"C1: {list(pairs)} does not pair positions of {size} ranks")
        return [types[0]]
