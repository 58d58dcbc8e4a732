"""Collective operations on the device: NCCL, through torch.distributed.

In a CUDA graph such an operation is a child graph, captured from a stream, so that a step of a
model is one launch on every rank. NCCL connects the ranks of a group when the group first works,
which must not happen during a capture; so each group works once before.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from ctypes import byref, c_void_p
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from dialects.ranks.collectives import ALL_REDUCE, Collective, Group
from targets.communication import Exchange, perform, process_group
from targets.cuda.errors import CudaError
from targets.cuda.libraries.calls import captured
from targets.cuda.libraries.leaving import listen
from targets.cuda.runtime import driver
from targets.cuda.runtime.driver_graph import CallNode

_KEPT = 4
"""How many captured graphs of a node are kept: NCCL frees what a graph needs when the graph goes,
and replays in flight may still need it."""


@dataclass
class CollectiveLaunch(CallNode):
    """A collective operation on buffers: their addresses, and how many elements they have."""

    exchange: Exchange
    addresses: list[int]
    counts: Sequence[int]
    _graphs: deque[Captured] = field(default_factory=lambda: deque["Captured"](maxlen=_KEPT))

    def __call__(self, stream: int) -> None:
        source, target = self._tensors()
        with on_stream(stream):
            perform(self.exchange, source, target)

    def point(self, place: int, address: int) -> None:
        """Set the address that it reads (place 0) or writes (place 1)."""
        self.addresses[place] = address

    def captured(self) -> c_void_p:
        """See `CallNode`. Raises CudaError."""
        prepare(self.exchange.how.group)
        source, target = self._tensors()

        def run(stream: int) -> None:
            with on_stream(stream):
                perform(self.exchange, source, target)

        own = captured(run, urgent=True)  # other ranks wait for it
        self._graphs.append(Captured(own))
        copy = c_void_p()
        driver.call("cuGraphClone", byref(copy), own)
        return copy

    def _tensors(self) -> list[Any]:
        return [tensor_at(address, count, self.exchange.element)
                for address, count in zip(self.addresses, self.counts, strict=True)]


class Captured:
    """A captured graph, which is destroyed with this object."""

    def __init__(self, graph: c_void_p) -> None:
        self._free = driver.free_with(self, "cuGraphDestroy", graph)


def on_stream(stream: int) -> AbstractContextManager[Any]:
    """While inside, torch enqueues work on a stream of the driver."""
    cuda = torch_module().cuda
    return cuda.stream(cuda.ExternalStream(stream) if stream else cuda.default_stream())


def prepare(group: Group) -> None:
    """Let a group work once, so that its ranks are connected. Does nothing the next time."""
    if group.size > 1:
        _prepared(group, process_group(group))


@cache
def _prepared(group: Group, connected: Any) -> None:
    torch = torch_module()
    listen()
    given, got = (torch.zeros(1, device="cuda") for _ in range(2))
    first = Exchange(Collective(ALL_REDUCE, group, "sum"), "float32", "")
    perform(first, given, got)
    torch.cuda.synchronize()


class _Bytes:
    """Device memory, as other libraries take it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def tensor_at(address: int, count: int, element: str) -> Any:
    """A torch tensor of one dim on memory of the device."""
    torch = torch_module()
    dtype = getattr(torch, element)
    if count == 0:
        return torch.empty(0, dtype=dtype, device="cuda")
    memory = _Bytes(address, count * dtype.itemsize)
    return torch.as_tensor(memory, device=torch.device("cuda", driver.own_device())).view(dtype)


def torch_module() -> Any:
    """torch, which a program of several ranks has loaded. Raises CudaError."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise CudaError("the program runs on several ranks: start it with torchrun")
    return torch
