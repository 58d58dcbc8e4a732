"""Run a straight host function: one arena and one CUDA graph per set of sizes.

The first call with new sizes compiles what is missing, launches kernel by kernel, and captures the
same launches as a graph; later calls copy inputs in, replay the graph, and copy outputs out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from dialects.weights import WeightStore
from targets.cuda import driver
from targets.cuda.errors import CudaError
from targets.cuda.kernels import Kernels, variant_of
from targets.cuda.memory import Memory, fetch, is_on_device, send, upload_constants
from targets.cuda.plan import Copy, HostPlan, Launch, Place, Slot, plan_host

_GRAPHS = 16
"""How many sets of sizes stay ready."""


@dataclass
class Ready:
    """All that a run with certain sizes needs: memory, packed launches, and later the graph."""

    sizes: Mapping[str, int]
    arena: Memory
    steps: list[Any] = field(default_factory=list[Any])
    graph: driver.Graph | None = None

    def launch_all(self, stream: int) -> None:
        for step in self.steps:
            step(stream)

    def capture(self, stream: int) -> None:
        driver.begin_capture(stream)
        self.launch_all(stream)
        self.graph = driver.Graph(stream)

    def close(self) -> None:
        if self.graph is not None:
            self.graph.close()
        self.arena.close()


@dataclass(frozen=True)
class _PackedCopy:
    target: int
    source: int
    size: int

    def __call__(self, stream: int) -> None:
        driver.copy(self.target, self.source, self.size, stream)


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
        self._ready: OrderedDict[tuple[tuple[str, int], ...], Ready] = OrderedDict()

    def run(self, sizes: Mapping[str, int], values: Sequence[Any], stream: int) -> list[Any]:
        """The outputs, on the device if an input is there."""
        ready = self._prepare(sizes)
        for slot, value in zip(self.plan.inputs, values, strict=True):
            send(value, self._address(slot.place, ready), stream)
        self._execute(ready, stream)
        on_device = any(map(is_on_device, values))
        return [self._copy_out(ready, slot, on_device, stream) for slot in self.plan.outputs]

    def replay(self, count: int) -> float:
        """Milliseconds per replay of the last graph alone."""
        if not self._ready:
            raise CudaError("run the model before timing replays")
        ready = next(reversed(self._ready.values()))
        assert ready.graph is not None
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

    def capture_again(self, copies: Sequence[Memory], count: int) -> driver.Graph:
        """The last run `count` times in one graph, its constants in these memories by turns."""
        ready = next(reversed(self._ready.values()))
        for memory in copies:
            driver.copy(memory.address, self._constants.address, self.constants_size, self._stream)
        steps = [[self._pack(s, ready, memory) for s in self.plan.steps]
                 for memory in copies or [self._constants]]
        driver.synchronize(self._stream)
        driver.begin_capture(self._stream)
        for step in islice(cycle(steps), count):
            for launch in filter(None, step):
                launch(self._stream)
        return driver.Graph(self._stream)

    # ------------------------------------------------------------------ one set of sizes
    def _prepare(self, sizes: Mapping[str, int]) -> Ready:
        """What these sizes need, made when they are new; the least recently used goes."""
        key = tuple(sorted(sizes.items()))
        if key in self._ready:
            self._ready.move_to_end(key)
            return self._ready[key]
        while len(self._ready) >= _GRAPHS:
            self._drop_oldest()
        launches = [s for s in self.plan.steps if isinstance(s, Launch)]
        self._kernels.prepare([variant_of(s, s.size_values(sizes)) for s in launches])
        ready = Ready(sizes, self._allocate(int(self.plan.arena.evaluate(sizes))))
        ready.steps = [p for s in self.plan.steps if (p := self._pack(s, ready)) is not None]
        self._ready[key] = ready
        return ready

    def _allocate(self, size: int) -> Memory:
        """An arena; older ones are given up when the device is full."""
        while True:
            try:
                return Memory(size)
            except CudaError:
                if not self._ready:
                    raise
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, ready = self._ready.popitem(last=False)
        self._done.wait(self._stream)
        driver.synchronize(self._stream)
        ready.close()

    def _execute(self, ready: Ready, stream: int) -> None:
        """Replay the graph; the first time launch one by one, then capture."""
        if ready.graph is not None:
            ready.graph.launch(stream)
            return
        ready.launch_all(stream)
        ready.capture(self._stream)

    def _copy_out(self, ready: Ready, slot: Slot, on_device: bool, stream: int) -> Any:
        shape = tuple(int(s.evaluate(ready.sizes)) for s in slot.type.shape)
        return fetch(self._address(slot.place, ready), shape, slot.type.dtype, on_device, stream)

    # ------------------------------------------------------------------ addresses
    def _address(self, place: Place, ready: Ready, constants: Memory | None = None) -> int:
        memory = (constants or self._constants) if place.in_constants else ready.arena
        return memory.address + int(place.offset.evaluate(ready.sizes))

    def _pack(self, step: Launch | Copy, ready: Ready, constants: Memory | None = None) -> Any:
        """A step as a call that takes the stream; None when it does nothing.

        `constants`: where they lie, if not in their own place.
        """
        if isinstance(step, Copy):
            return _PackedCopy(self._address(step.target, ready),
                               self._address(step.source, ready, constants),
                               int(step.size.evaluate(ready.sizes)))
        addresses = [self._address(b, ready, constants) for b in step.buffers]
        return self._kernels.pack(step, ready.sizes, addresses)
