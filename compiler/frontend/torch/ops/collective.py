"""Functional collectives of torch.distributed, as DTensor, FSDP2 and traced DDP use them.

They name a process group, which must exist while a program is imported: the group's ranks become
part of the program. `wait_tensor` is its operand, because results are only used once they are
there. Results have the operand's first dim, or a multiple of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.frontend.faults import Fault
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.torch.process_groups import ranks_of
from compiler.frontend.values import Value
from dialects.graph.collective import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    BroadcastRanksOp,
    ReduceScatterOp,
)
from dialects.ranks.attributes import GroupAttr
from dialects.ranks.collectives import Group
from dialects.symbolic.expr import Size

_OWN = "_c10d_functional"


def group_of(given: Any) -> GroupAttr:
    """The process group of a name, with its ranks. Raises Fault if there is none."""
    name, ranks = ranks_of(given)
    return GroupAttr(Group(name, (ranks,)))


@aten_op(f"{_OWN}.wait_tensor.default", f"{_OWN}._wrap_tensor_autograd.default")
def wait_tensor(n: Node, x: Value) -> Value:
    return x


@aten_op(f"{_OWN}.all_reduce.default", f"{_OWN}.all_reduce_.default")
def all_reduce(n: Node, x: Value, reduction: str, group: Any) -> Value:
    return n(AllReduceOp, x, reduce=reduction, group=group_of(group))


@aten_op(f"{_OWN}.all_reduce_coalesced.default")
def all_reduce_coalesced(
    n: Node, xs: Sequence[Value], reduction: str, group: Any
) -> list[Value]:
    return [all_reduce(n, x, reduction, group) for x in xs]


@aten_op(f"{_OWN}.all_gather_into_tensor.default",
         f"{_OWN}_autograd.all_gather_into_tensor.default")
def all_gather(n: Node, x: Value, size: Size, group: Any) -> Value:
    return n(AllGatherOp, x, group=group_of(group))


@aten_op(f"{_OWN}.all_gather_into_tensor_coalesced.default")
def all_gather_coalesced(n: Node, xs: Sequence[Value], size: Size, group: Any) -> list[Value]:
    return [all_gather(n, x, size, group) for x in xs]


@aten_op(f"{_OWN}.reduce_scatter_tensor.default", f"{_OWN}_autograd.reduce_scatter_tensor.default")
def reduce_scatter(n: Node, x: Value, reduction: str, size: Size, group: Any) -> Value:
    return n(ReduceScatterOp, x, reduce=reduction, group=group_of(group))


@aten_op(f"{_OWN}.reduce_scatter_tensor_coalesced.default")
def reduce_scatter_coalesced(
    n: Node, xs: Sequence[Value], reduction: str, size: Size, group: Any
) -> list[Value]:
    return [reduce_scatter(n, x, reduction, size, group) for x in xs]


@aten_op(f"{_OWN}.all_to_all_single.default", f"{_OWN}_autograd.all_to_all_single.default")
def all_to_all(
    n: Node, x: Value, received: Sequence[Size], sent: Sequence[Size], group: Any
) -> Value:
    """Only parts of equal size; others differ from rank to rank."""
    known = group_of(group)
    if len({*map(str, received), *map(str, sent)}) != 1:
        raise Fault("its ranks send parts of different sizes")
    return n(AllToAllOp, x, group=known)


@aten_op(f"{_OWN}.broadcast.default", f"{_OWN}.broadcast_.default")
def broadcast(n: Node, x: Value, root: int, group: Any) -> Value:
    return n(BroadcastRanksOp, x, root=root, group=group_of(group))
