"""Memory that the ranks of a group share, through which programs of kernels exchange tiles.

PyTorch allocates it and tells every rank the addresses of the others
(`torch.distributed._symmetric_memory`). A kernel is given one table of 64-bit numbers:

| place | number |
|---|---|
| 0 | the position of this rank in the group |
| 1 | the address of the numbers of exchanges, one i32 for each program |
| 2 | the address of a word of the host's, where a program that waits in vain writes |
| 3 | for how many nanoseconds a program waits |
| 4 ... | for each rank of the group, the address of its inbox |

An inbox has two halves of `WORDS` words from each rank. Exchanges take the halves in turn: a rank
that sends the next but one has received the next one whole, so all have read this one. A word holds
a value in its lower half, and the number of the exchange in its upper half; it arrives at once, so
that nothing else tells that it is there. This is the protocol that NCCL calls LL.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from dialects.ranks.collectives import Group
from targets.communication import Exchange, patience_of, process_group
from targets.cuda.errors import CudaError
from targets.cuda.libraries.collectives import torch_module
from targets.cuda.runtime import driver

PROGRAMS = 2048
"""The most programs of a kernel that exchanges tiles."""
WORDS = 1 << 17
"""The most elements of all of its tiles together."""


def shares_memory() -> bool:
    """Whether all ranks that torchrun has started have a device of this host, and each can write to
    the memory of the others. It is assumed of other machines, for which a single process compiles.
    """
    d: Any = sys.modules.get("torch.distributed")
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if d is not None and d.is_available() and d.is_initialized():
        world = d.get_world_size()
    if world == 1:
        return True
    here = os.environ.get("LOCAL_WORLD_SIZE") == str(world)
    return here and (not driver.is_available() or driver.reaching_devices() >= world)


@dataclass(frozen=True)
class Shared:
    """The memory of a group on this rank. `held`: tensors that keep it."""

    table: Any
    held: Sequence[Any]


class Fault(NamedTuple):
    """Where a program that waits in vain writes: a word of the host's memory. `rank`: the position
    of this rank in the group."""

    rank: int
    word: Any


_FAULTS: dict[Group, Fault] = {}
"""Those of the groups that share memory."""


def table_of(group: Group) -> int:
    """The address of the table of a group; all of its ranks must ask together the first time.

    Raises CudaError if they cannot share memory.
    """
    return _shared(group, process_group(group)).table.data_ptr()


@cache
def _shared(group: Group, connected: Any) -> Shared:
    torch, count = torch_module(), group.size
    symmetric: Any = import_module("torch.distributed._symmetric_memory")
    size = 2 * count * WORDS
    try:
        inbox = symmetric.empty(size, dtype=torch.int64, device="cuda")
        meeting = symmetric.rendezvous(inbox, connected)
        inboxes = [meeting.get_buffer(rank, (size,), torch.int64) for rank in range(count)]
    except RuntimeError as error:
        why = str(error).strip().splitlines()[0]
        raise CudaError(f"the ranks of group {group.name!r} cannot share memory of their devices: "
                        f"{why} (--without one-launch leaves sums to NCCL)") from error
    inbox.zero_()
    numbers = torch.zeros(PROGRAMS, dtype=torch.int32, device="cuda")
    fault = torch.zeros(1, dtype=torch.int32, pin_memory=True)
    patience = patience_of(connected).total_seconds()
    table = torch.tensor(
        [meeting.rank, numbers.data_ptr(), fault.data_ptr(), int(1e9 * patience),
         *(box.data_ptr() for box in inboxes)], dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    meeting.barrier(timeout_ms=int(1e3 * patience))  # no rank sends before all inboxes are empty
    torch.cuda.synchronize()
    _FAULTS[group] = Fault(meeting.rank, fault)
    return Shared(table, (meeting, inbox, *inboxes, numbers))


def given_up(exchanges: Sequence[Exchange]) -> str:
    """Which exchange a program has given up, waiting for other ranks, which ends its run; or empty.

    Asks no other rank: groups that share no memory yet have exchanged nothing."""
    groups = {e.how.group: e for e in exchanges if e.programs}
    return next((f"{e.how}: rank {_FAULTS[group].rank} waited in vain for the others"
                 for group, e in groups.items()
                 if group in _FAULTS and _FAULTS[group].word[0]), "")
