"""What a straight host function needs to run at certain sizes: memory, results and a CUDA graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dialects.symbolic.symbol import Symbol
from targets.cuda.libraries.calls import LibraryLaunch
from targets.cuda.libraries.collectives import CollectiveLaunch
from targets.cuda.runtime import driver_graph
from targets.cuda.runtime.driver_graph import CopyNode
from targets.cuda.runtime.kernels import PackedLaunch
from targets.cuda.runtime.memory.arenas import Need
from targets.cuda.runtime.memory.device import Memory, dtype_name, tensor_maker, tensor_within
from targets.cuda.runtime.planned import ARENA
from targets.cuda.runtime.variants.variant import Variant
from targets.memory import Home

Step = PackedLaunch | LibraryLaunch | CollectiveLaunch | CopyNode
_NOWHERE = -1
"""An address that no buffer has."""


class Call(NamedTuple):
    """What calls with inputs of the same shapes, dtypes and devices have in common.

    `on_device`: whether any input, and thus every output, is on the device; `is_mixed`: whether
    other inputs are not.
    """

    sizes: Mapping[Symbol, int]
    on_device: bool
    is_mixed: bool


@dataclass(frozen=True)
class Result:
    """An output at certain sizes. `home`: its place in a donated input, if it has one."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    home: Home | None = None

    def within(self, given: Any) -> Any:
        """The output in the memory of the donated input; the input itself if it is alike."""
        assert self.home is not None
        if self.home.offset == 0 and tuple(given.shape) == self.shape and (
                dtype_name(given) == self.dtype.name):
            return given
        return tensor_within(given, self.home.offset, self.shape, self.dtype)

    @cached_property
    def make(self) -> Callable[[], Any]:
        """Makes a new tensor on the device. Raises DeviceMemoryError if the device is full."""
        return tensor_maker(self.shape, self.dtype)

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass
class Ready:
    """All that a run at certain sizes needs. `graph`: present after the first run.

    `need`: the bytes of an arena. `arena`: that of the last run. `addresses`: the addresses of
    inputs and outputs in the graph. `staging`: device memory for those that are arrays on the host.
    `users`: for the arena and each input or output, the nodes that use it, with the position of its
    address in each, and the offset there.
    """

    sizes: Mapping[Symbol, int]
    need: Need
    results: Sequence[Result]
    arena: Memory | None = None
    addresses: list[int] = field(default_factory=list[int])
    graph: driver_graph.Graph | None = None
    steps: list[Step] = field(default_factory=list["Step"])
    users: defaultdict[int, list[tuple[int, int, int]]] = field(
        default_factory=lambda: defaultdict[int, "list[tuple[int, int, int]]"](list))
    version: int = 0
    """Of the kernels (`Kernels.version`) when the variants were found to be the best."""
    variants: Sequence[Variant] = ()
    staging: dict[int, Memory] = field(default_factory=dict[int, Memory])

    def point_at(self, addresses: Sequence[int], arena: Memory) -> None:
        """Make the graph work on inputs and outputs at these addresses, and in this arena.

        If this is interrupted, the graph's addresses are unknown, and the next call sets them all.
        """
        assert self.graph is not None
        changed: dict[int, None] = {}
        before, self.addresses = self.addresses, [_NOWHERE] * len(addresses)
        moved = [(k, new) for k, (old, new) in enumerate(zip(before, addresses, strict=True))
                 if old != new]
        if arena is not self.arena:
            self.arena = None
            moved.append((ARENA, arena.address))
        for k, new in moved:
            for number, place, offset in self.users[k]:
                self.steps[number].point(place, new + offset)
                changed[number] = None
        for number in changed:
            self.graph.update(number)
        self.addresses, self.arena = [*addresses], arena

    def close(self) -> None:
        """Free all that belongs to it alone."""
        if self.graph is not None:
            self.graph.close()
        for memory in self.staging.values():
            memory.close()
