"""What a straight host function needs to run with certain sizes: memory, results and its graph."""

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
from targets.cuda.runtime import driver_graph
from targets.cuda.runtime.driver_graph import CopyNode
from targets.cuda.runtime.kernels import PackedLaunch
from targets.cuda.runtime.memory import Memory, tensor_maker

Step = PackedLaunch | LibraryLaunch | CopyNode
_NOWHERE = -1
"""An address that nothing has."""


class Call(NamedTuple):
    """What is known of calls with inputs of certain shapes, types and devices.

    `on_device`: whether an input is there, and outputs therefore, too; `is_mixed`: others are not.
    """

    sizes: Mapping[Symbol, int]
    on_device: bool
    is_mixed: bool


@dataclass(frozen=True)
class Result:
    """What an output is at certain sizes. `given`: the input in whose memory it is computed."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    given: int | None = None

    @cached_property
    def make(self) -> Callable[[], Any]:
        """Makes a new tensor on the device. Raises DeviceMemoryError when that is full."""
        return tensor_maker(self.shape, self.dtype)

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass
class Ready:
    """All that a run with certain sizes needs. `graph`: from the first run on.

    `addresses`: where inputs and outputs lie, as the graph has it. `staging`: memory for those that
    are arrays of the host. `users`: of an input or output, the nodes and their places of it.
    """

    sizes: Mapping[Symbol, int]
    arena: Memory
    results: Sequence[Result]
    addresses: list[int] = field(default_factory=list[int])
    graph: driver_graph.Graph | None = None
    steps: list[Step] = field(default_factory=list["Step"])
    users: defaultdict[int, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict[int, "list[tuple[int, int]]"](list))
    staging: dict[int, Memory] = field(default_factory=dict[int, Memory])

    def point_at(self, addresses: Sequence[int]) -> None:
        """Let the graph work on inputs and outputs at these addresses.

        After an exception it is not known where it works: the next call points all of it anew.
        """
        assert self.graph is not None
        changed: dict[int, None] = {}
        before, self.addresses = self.addresses, [_NOWHERE] * len(addresses)
        for k, (old, new) in enumerate(zip(before, addresses, strict=True)):
            if old != new:
                for number, place in self.users[k]:
                    self.steps[number].point(place, new)
                    changed[number] = None
        for number in changed:
            self.graph.update(number)
        self.addresses = [*addresses]

    def close(self) -> None:
        if self.graph is not None:
            self.graph.close()
        for memory in (self.arena, *self.staging.values()):
            memory.close()
