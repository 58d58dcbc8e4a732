"""Run a straight host function: one arena and one CUDA graph per set of sizes.

A graph works on the caller's own tensors where kernels can: when these lie elsewhere than in the
last call, the nodes that use them are pointed there. Its steps wait only for those whose results
they need (`order.py`). Arrays of the host have copies on the device.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle, islice
from math import prod
from typing import Any, TypeVar

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from dialects.weights import WeightStore
from targets.cuda import cuda_graph, driver
from targets.cuda.cuda_graph import CopyNode
from targets.cuda.errors import CudaError, DeviceMemoryError
from targets.cuda.kernels import Kernels, PackedLaunch, variant_of
from targets.cuda.library import LibraryLaunch
from targets.cuda.memory import (
    Memory,
    fetch,
    new_tensor,
    readable,
    send,
    tensor_kind,
    upload_constants,
)
from targets.cuda.order import Access, waits_of
from targets.cuda.plan import CONSTANTS, Copy, HostPlan, Launch, Place, plan_host

_GRAPHS = 16
"""How many sets of sizes stay ready."""

Step = PackedLaunch | LibraryLaunch | CopyNode
Sizes = tuple[tuple[str, int], ...]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Result:
    """What an output is at certain sizes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def tensor(self) -> Any:
        """A new one on the device. Raises DeviceMemoryError when that is full."""
        return new_tensor(self.shape, self._kind)

    @cached_property
    def _kind(self) -> Any:
        return tensor_kind(self.dtype)

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass
class Ready:
    """All that a run with certain sizes needs. `graph`: from the first run on.

    `addresses`: where inputs and outputs lie, as the graph has it. `staging`: memory for those that
    are arrays of the host. `users`: of an input or output, the nodes and their places of it.
    """

    sizes: Mapping[str, int]
    arena: Memory
    results: Sequence[Result]
    addresses: list[int] = field(default_factory=list[int])
    graph: cuda_graph.Graph | None = None
    steps: list[Step] = field(default_factory=list["Step"])
    users: defaultdict[int, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict[int, "list[tuple[int, int]]"](list))
    staging: dict[int, Memory] = field(default_factory=dict[int, Memory])

    def point_at(self, addresses: Sequence[int]) -> None:
        """Let the graph work on inputs and outputs at these addresses."""
        assert self.graph is not None
        if addresses == self.addresses:
            return
        changed: dict[int, None] = {}
        for k, (old, new) in enumerate(zip(self.addresses, addresses, strict=True)):
            if old != new:
                self.addresses[k] = new
                for number, place in self.users[k]:
                    self.steps[number].point(place, new)
                    changed[number] = None
        for number in changed:
            self.graph.update(number)

    def close(self) -> None:
        if self.graph is not None:
            self.graph.close()
        for memory in (self.arena, *self.staging.values()):
            memory.close()


class GraphRunner:
    """A straight host function with its constants. `done`: the event behind all earlier work."""

    def __init__(
        self, module: ModuleOp, weights: WeightStore, kernels: Kernels, stream: int,
        done: driver.Event,
    ) -> None:
        self.plan: HostPlan = plan_host(module)
        self._kernels, self._stream, self._done = kernels, stream, done
        self._kernels.prepare([(k, frozenset(), False) for k in self.plan.kernels
                               if not k.size_names])
        self._constants = upload_constants(self.plan.constants, weights, stream)
        self._ready: OrderedDict[Sizes, Ready] = OrderedDict()

    def run(self, sizes: Mapping[str, int], values: Sequence[Any], stream: int) -> list[Any]:
        """The outputs, on the device if an input is there."""
        ready = self._prepare(sizes)
        arrays = [isinstance(v, np.ndarray) for v in values]
        inputs = [self._sent(k, v, ready, stream) if is_array else readable(v)
                  for k, (v, is_array) in enumerate(zip(values, arrays, strict=True))]
        if not all(arrays):
            outputs = [self._made(r.tensor) for r in ready.results]
            self._launch(ready, [_address(v) for v in (*inputs, *outputs)], stream)
            return outputs
        staged = [self._staged(len(values) + k, r.bytes, ready)
                  for k, r in enumerate(ready.results)]
        self._launch(ready, [_address(v) for v in (*inputs, *staged)], stream)
        return [fetch(memory.address, r.shape, r.dtype, False, stream)
                for r, memory in zip(ready.results, staged, strict=True)]

    def replay(self, count: int) -> float:
        """Milliseconds per replay of the last graph alone."""
        if not self._ready:
            raise CudaError("run the model before timing replays")
        ready = next(reversed(self._ready.values()))
        assert ready.graph is not None
        if len(ready.staging) < len(ready.addresses):
            raise CudaError("replays are timed on memory of the model's own: run it on arrays of "
                            "the host before")
        start, end = driver.Event(timing=True), driver.Event(timing=True)
        self._done.wait(self._stream)
        start.record(self._stream)
        for _ in range(count):
            ready.graph.launch(self._stream)
        end.record(self._stream)
        self._done.record(self._stream)
        return end.milliseconds_since(start) / count

    @property
    def constants_size(self) -> int:
        """Bytes of the constants."""
        return self.plan.constants.size

    def repeated(self, copies: Sequence[Memory], count: int) -> cuda_graph.Graph:
        """The last run `count` times in one graph, its constants in these memories by turns."""
        ready = next(reversed(self._ready.values()))
        for memory in copies:
            driver.copy(memory.address, self._constants.address, self.constants_size, self._stream)
        driver.synchronize(self._stream)
        nodes = [node for memory in islice(cycle(copies or [self._constants]), count)
                 for step in self.plan.steps
                 if (node := self._pack(step, ready, memory)) is not None]
        return cuda_graph.Graph(nodes, [[k - 1] if k else [] for k in range(len(nodes))])

    # ------------------------------------------------------------------ memory of a run
    def _sent(self, number: int, value: Any, ready: Ready, stream: int) -> Memory:
        """An input of the host's, in its memory on the device."""
        memory = self._staged(number, value.nbytes, ready)
        send(value, memory.address, stream)
        return memory

    def _staged(self, number: int, size: int, ready: Ready) -> Memory:
        """The memory of an input or output that is an array of the host."""
        if number not in ready.staging:
            ready.staging[number] = self._made(lambda: Memory(size))
        return ready.staging[number]

    def _made(self, make: Callable[[], Made], used: int = 1) -> Made:
        """New memory; older graphs are given up when the device is full, the `used` last not."""
        while True:
            try:
                return make()
            except DeviceMemoryError:
                if len(self._ready) <= used:
                    raise
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, ready = self._ready.popitem(last=False)
        self._done.wait(self._stream)
        driver.synchronize(self._stream)
        ready.close()

    # ------------------------------------------------------------------ one set of sizes
    def _prepare(self, sizes: Mapping[str, int]) -> Ready:
        """What these sizes need, made when they are new; the least recently used goes."""
        key = tuple(sizes.items())
        if key in self._ready:
            self._ready.move_to_end(key)
            return self._ready[key]
        while len(self._ready) >= _GRAPHS:
            self._drop_oldest()
        launches = [s for s in self.plan.steps if isinstance(s, Launch)]
        self._kernels.prepare([variant_of(s, s.size_values(sizes)) for s in launches])
        size = int(self.plan.arena.evaluate(sizes))
        arena = self._made(lambda: Memory(size), used=0)
        ready = self._ready[key] = Ready(sizes, arena, self._results(sizes))
        return ready

    def _results(self, sizes: Mapping[str, int]) -> list[Result]:
        return [Result(tuple(int(s.evaluate(sizes)) for s in type_.shape), type_.dtype)
                for type_ in self.plan.outputs]

    def _launch(self, ready: Ready, addresses: list[int], stream: int) -> None:
        """Run the graph on inputs and outputs at these addresses; the first time, make it."""
        if ready.graph is None:
            ready.addresses = addresses
            ready.graph = self._make_graph(ready)
        else:
            ready.point_at(addresses)
        ready.graph.launch(stream)

    # ------------------------------------------------------------------ the graph
    def _make_graph(self, ready: Ready) -> cuda_graph.Graph:
        """The steps that do anything, as nodes."""
        packed = [(s, p) for s in self.plan.steps
                  if (p := self._pack(s, ready, self._constants)) is not None]
        waits = waits_of([_accesses(step, ready.sizes) for step, _ in packed])
        ready.steps = [p for _, p in packed]
        ready.users.clear()
        for number, (step, _) in enumerate(packed):
            for k, place in enumerate(step.places):
                ready.users[place.memory].append((number, k))
        return cuda_graph.Graph(ready.steps, waits)

    def _pack(
        self, step: Launch | Copy, ready: Ready, constants: Memory
    ) -> Step | None:
        """A step with its addresses; None when it does nothing."""
        addresses = [_address_in(place, ready, constants) for place in step.places]
        if isinstance(step, Launch):
            return self._kernels.pack(step, ready.sizes, addresses)
        source, target = addresses
        size = int(step.source.size.evaluate(ready.sizes))
        return CopyNode(source, target, size) if size else None


def _address_in(place: Place, ready: Ready, constants: Memory) -> int:
    if place.memory >= 0:
        return ready.addresses[place.memory]
    memory = constants if place.memory == CONSTANTS else ready.arena
    return memory.address + int(place.offset.evaluate(ready.sizes))


def _accesses(step: Launch | Copy, sizes: Mapping[str, int]) -> list[Access]:
    """The bytes that a step touches, constants aside."""
    found: list[Access] = []
    for k, place in enumerate(step.places):
        if place.memory != CONSTANTS:
            start = int(place.offset.evaluate(sizes))
            end = start + int(place.size.evaluate(sizes))
            found.append(Access(place.memory, start, end, k in step.written))
    return found


def _address(memory: Any) -> int:
    """Where memory of ours, or a tensor, lies."""
    return memory.address if isinstance(memory, Memory) else memory.data_ptr()
