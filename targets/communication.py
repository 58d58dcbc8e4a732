"""Collective operations of a running program, which torch.distributed performs.

A program names its groups. A name that PyTorch knows is that process group; others, of programs
that Strata has divided, are made of all parts of the group on first use, in the order of the
program, which is the same on all ranks. Nothing here imports xDSL, and torch only when it is used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from dialects.ranks.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    REDUCE_SCATTER,
    SHARD,
    Collective,
    Group,
)
from targets.interface import RankError

_OPERATORS = {"sum": "SUM", "avg": "AVG", "product": "PRODUCT", "min": "MIN", "max": "MAX"}


class Exchange(NamedTuple):
    """A collective operation of a program, as data. `element`: the name of the dtype; `node`: the
    model's node. `programs`, `tile`: how many programs of a kernel exchange tiles of how many
    elements, which must be equal on all ranks; 0 where torch.distributed performs it."""

    how: Collective
    element: str
    node: str
    programs: int = 0
    tile: int = 0

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.how.facts(), self.element, self.node, self.programs, self.tile]

    @staticmethod
    def read(facts: Any) -> Exchange:
        """The inverse of `facts`."""
        how, element, node, programs, tile = facts
        return Exchange(Collective.read(how), str(element), str(node), int(programs), int(tile))


def perform(exchange: Exchange, source: Any, target: Any) -> None:
    """Write the result of a collective operation on this rank. Both are contiguous torch tensors.

    On a GPU the work is enqueued on the current stream. Raises RankError if there is no process
    group of these ranks, and if others do not take part.
    """
    try:
        _perform(exchange.how, source, target)
    except RuntimeError as error:
        own = _torch("torch.distributed").get_rank()
        at = f" at node {exchange.node!r}" if exchange.node else ""
        raise RankError(f"rank {own}: {exchange.how}{at} failed: "
                        f"{str(error).strip().splitlines()[0]}") from error


def _perform(how: Collective, source: Any, target: Any) -> None:
    if how.group.parts == ((0,),):
        target.copy_(source)
        return
    d, group = _torch("torch.distributed"), process_group(how.group)
    match how.kind:
        case kind if kind == ALL_REDUCE:
            _copy(source, target)
            _reduced(how, group, target, partial(d.all_reduce, target, group=group))
        case kind if kind == REDUCE_SCATTER:
            scatter = _either(d, "reduce_scatter_single", "reduce_scatter_tensor")
            _reduced(how, group, target, partial(scatter, target, source, group=group))
        case kind if kind == ALL_GATHER:
            _either(d, "all_gather_single", "all_gather_into_tensor")(target, source, group=group)
        case kind if kind == ALL_TO_ALL:
            d.all_to_all_single(target, source, group=group)
        case kind if kind == SHARD:
            target.copy_(source.chunk(how.group.size)[d.get_rank(group)])
        case kind if kind == BROADCAST:
            _copy(source, target)
            d.broadcast(target, group=group, group_src=how.root)
        case _:
            _permute(how, group, source, target)


def _copy(source: Any, target: Any) -> None:
    """Copy the operand, unless the operation is in place."""
    if source.data_ptr() != target.data_ptr():
        target.copy_(source)


def _torch(module: str) -> Any:
    return importlib.import_module(module)


def _either(module: Any, name: str, former: str) -> Any:
    """A function by its name, or by the name that it had before."""
    return getattr(module, name, None) or getattr(module, former)


def _reduced(how: Collective, group: Any, target: Any, run: Callable[..., Any]) -> None:
    """Reduce; a backend without averages sums, and divides afterwards."""
    d = _torch("torch.distributed")
    average = how.reduction == "avg" and d.get_backend(group) != "nccl"
    run(op=getattr(d.ReduceOp, "SUM" if average else _OPERATORS[how.reduction]))
    if average:
        target.div_(how.group.size)


def _permute(how: Collective, group: Any, source: Any, target: Any) -> None:
    d = _torch("torch.distributed")
    own = d.get_rank(group)
    sender = how.source_of(own)
    sends = [receiver for s, receiver in how.pairs if s == own and receiver != own]
    if sender is None:
        target.zero_()
    elif sender == own:
        target.copy_(source)
    steps = [d.P2POp(d.isend, source, group=group, group_peer=k) for k in sends]
    if sender is not None and sender != own:
        steps.append(d.P2POp(d.irecv, target, group=group, group_peer=sender))
    for work in d.batch_isend_irecv(steps) if steps else ():
        work.wait()


def slowest(seconds: float, exchanges: Sequence[Exchange]) -> float:
    """The most seconds of any rank of a program, so that all of them choose as many runs.

    `exchanges`: those of the program; a program without any has no other ranks.
    """
    return max(all_of(seconds)) if exchanges else seconds


def all_of(value: Any) -> list[Any]:
    """What every rank gives, in the order of ranks; in a process of its own, only its own value."""
    d: Any = sys.modules.get("torch.distributed")
    if d is None or not d.is_available() or not d.is_initialized():
        return [value]
    found: list[Any] = [None] * d.get_world_size()
    d.all_gather_object(found, value)
    return found


def process_group(group: Group) -> Any:
    """The process group of this rank.

    Raises RankError if there is none, or if it has other ranks than the program expects.
    """
    c10d = _torch("torch.distributed.distributed_c10d")
    if not c10d.is_initialized():
        raise RankError(
            f"the program runs on {group.world} ranks, and torch.distributed is not initialized: "
            "start it with torchrun, or call torch.distributed.init_process_group first")
    if group.world > c10d.get_world_size():
        raise RankError(f"the program needs {group.world} ranks, and only "
                          f"{c10d.get_world_size()} are running")
    try:
        found = c10d._resolve_process_group(group.name)
    except (RuntimeError, LookupError, ValueError):
        return _made(group, c10d.GroupMember.WORLD)
    if sorted(c10d.get_process_group_ranks(found)) not in map(sorted, group.parts):
        raise RankError(f"process group {group.name!r} has ranks "
                          f"{c10d.get_process_group_ranks(found)}, and the program was made for "
                          f"{list(group.parts)}")
    return found


def patience_of(connected: Any) -> Any:
    """For how long a process group waits for a rank, as a timedelta. That of new groups would be
    half an hour, whatever the user has chosen for all ranks."""
    device = connected._device_types[0]
    return connected._get_backend(device).options._timeout


def forget_groups() -> None:
    """Let go of groups, before the process ends its part in them."""
    _made.cache_clear()


@cache
def _made(group: Group, world: Any) -> Any:
    """Process groups for all parts of a group; the one of this rank. `world`: the group of all
    ranks, so that a process that initializes anew makes new ones."""
    d, limit = _torch("torch.distributed"), patience_of(world)
    own = d.get_rank()
    made = [d.new_group(list(part), timeout=limit) for part in group.parts]
    return next(g for g, part in zip(made, group.parts, strict=True) if own in part)
