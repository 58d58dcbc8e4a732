"""Runs a straight host function with one CUDA graph per set of sizes.

Runs on tensors use the arena of their stream (`arenas.py`), runs on arrays one of their own, and
runs that a CUDA graph of the caller's captures a new one each.

A graph works directly on the caller's tensors where their layout allows it. If they lie elsewhere
than in the last call, the nodes that use them are updated. A step waits only for the steps whose
results it needs (`dependencies.py`). Arrays on the host are copied to the device.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from dialects.strata.array_type import dtype_named
from dialects.symbolic.symbol import Symbol
from targets.cuda.errors import CudaError
from targets.cuda.libraries.collectives import CollectiveLaunch
from targets.cuda.libraries.lost_ranks import Watch, watch
from targets.cuda.libraries.symmetric import given_up, table_of
from targets.cuda.runtime import driver, driver_graph
from targets.cuda.runtime.constants import ALIGNMENT
from targets.cuda.runtime.dependencies import Access, waits_of
from targets.cuda.runtime.driver_graph import CopyNode
from targets.cuda.runtime.kernels import Kernels
from targets.cuda.runtime.memory.arenas import ARENAS, Need
from targets.cuda.runtime.memory.device import (
    Memory,
    fetch,
    is_on_device,
    layout_of,
    readable,
    send,
    tensor_of,
    torch_on_device,
    upload_constants,
)
from targets.cuda.runtime.memory.donation import donated, homes, with_donations, with_homes
from targets.cuda.runtime.planned import (
    ARENA,
    CONSTANTS,
    RESIDENT,
    Collect,
    HostPlan,
    Launch,
    Place,
    PlannedStep,
    RankLaunch,
)
from targets.cuda.runtime.prepared_run import Call, Ready, Result, Step
from targets.cuda.runtime.stream_order import DEFAULT, RunOrder
from targets.cuda.runtime.variants.variant import Variant, variant_of
from targets.memory import Home

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore

_NETWORK = -5
"""The memory that stands for what connects the ranks."""
_GRAPHS = 64
"""For how many sets of sizes graphs are kept."""

Sizes = tuple[tuple[Symbol, int], ...]


class GraphProgram:
    """A straight host function with its constants and kernels. Runs only read it."""

    def __init__(
        self, plan: HostPlan, weights: WeightStore, kernels: Kernels, stream: int
    ) -> None:
        layout = layout_of(weights)
        self.plan, self.constants_size = plan.placed(layout), layout.size
        self.kernels = kernels
        kernels.prepare([(k, frozenset(), False) for k in plan.kernels if not k.size_names])
        self.constants = upload_constants(layout, stream)
        self.places = {c: layout.place(c) for c in plan.constants}
        """Where each constant lies; see `ConstantLayout.place`."""
        self._residents = weights.residents  # keeps them alive as long as their readers
        self.donated: dict[int, int] = {}
        self.homes: dict[int, Home] = {}
        """The places of outputs in inputs."""
        self._has_runner = False

    def donate(self, pairs: Mapping[int, int]) -> dict[int, int]:
        """Compute outputs in the memory of inputs where possible. To be called before `runner`."""
        if not self._has_runner:
            self.donated = donated(self.plan, pairs)
            self.plan.steps = with_donations(self.plan, self.donated)
            self.homes |= {k: Home(given, 0) for k, given in self.donated.items()}
        return self.donated

    def spare(self, inputs: Collection[int]) -> set[int]:
        """Place outputs in these inputs, as far as there is room. To be called before `runner`.
        Returns the inputs that runs then overwrite."""
        if not self._has_runner:
            taken = {home.given for home in self.homes.values()}
            found = homes(self.plan, [k for k in inputs if k not in taken])
            self.plan.steps = with_homes(self.plan, found)
            self.homes |= found
        return {home.given for home in self.homes.values()}.intersection(inputs)

    def runner(self, order: RunOrder) -> GraphRunner:
        """A runner whose runs follow the given order."""
        self._has_runner = True
        return GraphRunner(self, order)


class GraphRunner:
    """Runs in sequence, which share one memory. `order`: their order across streams."""

    def __init__(self, program: GraphProgram, order: RunOrder) -> None:
        self.program, self._order = program, order
        self._own: Memory | None = None
        """The arena of runs on arrays."""
        self._captured = list[Memory]()
        """The arenas of runs that the caller has captured, which may be replayed at any time."""
        self._ready: OrderedDict[Sizes, Ready] = OrderedDict()
        self._call: Call | None = None
        self._watch: Watch | None = None
        self._current: Ready | None = None
        """The state of the last call's sizes, so that an equal call need not look it up."""

    def run(self, call: Call, values: Sequence[Any], stream: int) -> list[Any]:
        """The outputs, on the device if any input is there. Equal inputs use the same `call`.

        Raises DeviceMemoryError only while it is still safe to try the call again.
        """
        ready = self._current
        if call is not self._call or ready is None or ready.version != self.program.kernels.version:
            self._call = None
            ready = self._current = self._prepare(call.sizes)
            self._call = call
        try:
            if not call.on_device:
                return self._on_arrays(ready, values, stream)
            if call.is_mixed:
                values = [v if is_on_device(v) else tensor_of(v, stream) for v in values]
            return self._on_tensors(ready, values, stream)
        except CudaError as error:
            if why := given_up(self.program.plan.exchanges):
                raise CudaError(f"{why} ({error})") from error
            raise

    def _on_tensors(self, ready: Ready, tensors: Sequence[Any], stream: int) -> list[Any]:
        addresses = [v.data_ptr() for v in tensors]
        if not all([v.is_contiguous() for v in tensors]) or any(
                [a % ALIGNMENT for a in addresses]):
            tensors = [readable(v) for v in tensors]
            addresses = [v.data_ptr() for v in tensors]
        outputs = [r.make() if r.home is None else r.within(tensors[r.home.given])
                   for r in ready.results]
        addresses += [v.data_ptr() for v in outputs]
        self._launch(ready, addresses, self._arena_on(stream, ready.need), stream)
        return outputs

    def _on_arrays(self, ready: Ready, arrays: Sequence[Array], stream: int) -> list[Any]:
        """Run on arrays of the host, through copies on the device."""
        inputs = [self._staged(k, v.nbytes, ready) for k, v in enumerate(arrays)]
        for memory, array in zip(inputs, arrays, strict=True):
            send(array, memory.address, stream)
        outputs = [self._staged(len(arrays) + k, r.bytes, ready).address if r.home is None
                   else inputs[r.home.given].address + r.home.offset
                   for k, r in enumerate(ready.results)]
        addresses = [*(m.address for m in inputs), *outputs]
        self._launch(ready, addresses, self._own_arena(ready.need.size), stream)
        return [fetch(address, r.shape, r.dtype, False, stream)
                for r, address in zip(ready.results, outputs, strict=True)]

    def replay(self, count: int) -> float:
        """Milliseconds per replay of the last graph alone."""
        if not self._ready:
            raise CudaError("run the model before timing replays")
        ready = next(reversed(self._ready.values()))
        assert ready.graph is not None
        if ready.arena is not self._own:
            raise CudaError("replays are timed on memory that the model owns: run it on host "
                            "arrays first")
        start, end = driver.Event(timing=True), driver.Event(timing=True)
        stream = self._order.own
        self._order.begin(stream)
        start.record(stream)
        for _ in range(count):
            ready.graph.launch(stream)
        end.record(stream)
        self._order.end(stream)
        return end.milliseconds_since(start) / count

    def repeated(self, copies: Sequence[Memory], count: int) -> driver_graph.Graph:
        """`count` runs with the last sizes in one graph, using these copies of the constants in
        turn."""
        ready, program = next(reversed(self._ready.values())), self.program
        for memory in copies:
            driver.copy(memory.address, program.constants.address, program.constants_size,
                        self._order.own)
        driver.synchronize(self._order.own)
        nodes = [node for memory in islice(cycle(copies or [program.constants]), count)
                 for step in program.plan.steps
                 if (node := self._pack(step, ready, memory)) is not None]
        return driver_graph.chain(nodes)

    def packed(self) -> list[tuple[PlannedStep, Step | None]]:
        """The steps of a run with the last sizes, in turn; None for one that has nothing to do."""
        ready, program = next(reversed(self._ready.values())), self.program
        return [(s, self._pack(s, ready, program.constants)) for s in program.plan.steps]

    # ------------------------------------------------------------------ memory of a run
    def _staged(self, number: int, size: int, ready: Ready) -> Memory:
        """The device memory of an input or output that is an array on the host."""
        if number not in ready.staging:
            ready.staging[number] = Memory(size)
        return ready.staging[number]

    def drop_oldest(self, call: Call) -> bool:
        """Free the memory and the graph of the least recently used sizes, other than the call's.
        Returns whether there were any."""
        oldest = next(iter(self._ready), None)
        if oldest is None or oldest == tuple(call.sizes.items()):
            return False
        self._drop(oldest)
        return True

    def _drop(self, sizes: Sizes) -> None:
        self._current = None
        self._order.finish()
        self._ready.pop(sizes).close()
        if self._own is not None and all(r.arena is not self._own for r in self._ready.values()):
            self._own.close()
            self._own = None

    def close(self) -> None:
        """Free all memory and all graphs."""
        for sizes in list(self._ready):
            self._drop(sizes)

    # ------------------------------------------------------------------ one set of sizes
    def _prepare(self, sizes: Mapping[Symbol, int]) -> Ready:
        """The memory for these sizes, created if they are new; evicts the least recently used."""
        key, kernels = tuple(sizes.items()), self.program.kernels
        version, variants = kernels.version, self._variants(sizes)
        if key in self._ready and self._ready[key].variants != variants:
            self._drop(key)  # others suit these sizes better, and are compiled now
        if key in self._ready:
            self._ready.move_to_end(key)
            self._ready[key].version = version
            return self._ready[key]
        while len(self._ready) >= _GRAPHS:
            self._drop(next(iter(self._ready)))
        plan = self.program.plan
        kernels.prepare(variants)
        kernels.expect(plan.kernels)
        need = Need(int(plan.arena.evaluate(sizes)), ARENAS)
        ready = self._ready[key] = Ready(
            sizes, need, self._results(sizes), version=version, variants=variants)
        return ready

    def _arena_on(self, stream: int, need: Need) -> Memory:
        """The arena for a run on tensors."""
        if stream == DEFAULT or not torch_on_device().cuda.is_current_stream_capturing():
            return need.arena(stream)
        self._captured.append(Memory(need.size))
        return self._captured[-1]

    def _own_arena(self, size: int) -> Memory:
        """The arena for a run on arrays. Only one such run of a runner is in progress."""
        if self._own is None or self._own.size < size:
            self._own = Memory(size)
        return self._own

    def _variants(self, sizes: Mapping[Symbol, int]) -> list[Variant]:
        """The variants of the kernels that are launched at these sizes."""
        return [self.program.kernels.suited(variant_of(s, s.size_values(sizes)))
                for s in self.program.plan.steps if isinstance(s, Launch) and s.happens(sizes)]

    def _results(self, sizes: Mapping[Symbol, int]) -> list[Result]:
        return [Result(tuple(int(s.evaluate(sizes)) for s in type_.shape), type_.dtype,
                       self.program.homes.get(k))
                for k, type_ in enumerate(self.program.plan.outputs)]

    def _launch(self, ready: Ready, addresses: list[int], arena: Memory, stream: int) -> None:
        """Launch the graph on inputs and outputs at these addresses, and in this arena; build it
        the first time."""
        if ready.graph is None:
            ready.addresses, ready.arena = addresses, arena
            ready.graph = self._make_graph(ready)
            self._watch = self._watch or watch(self.program.plan.exchanges, driver.Event)
        elif addresses != ready.addresses or arena is not ready.arena:
            ready.point_at(addresses, arena)
        ready.graph.launch(stream)
        if self._watch is not None:
            self._watch.enqueued(stream)

    # ------------------------------------------------------------------ the graph
    def _make_graph(self, ready: Ready) -> driver_graph.Graph:
        """A graph with one node for every step that does any work."""
        packed = [(s, p) for s in self.program.plan.steps
                  if (p := self._pack(s, ready, self.program.constants)) is not None]
        waits = waits_of([accesses_of(step, ready.sizes) for step, _ in packed],
                         self.program.kernels.lanes)
        ready.steps = [p for _, p in packed]
        ready.users.clear()
        for number, (step, _) in enumerate(packed):
            for k, place in enumerate(step.places):
                if place.memory >= 0 or place.memory == ARENA:
                    offset = int(place.offset.evaluate(ready.sizes))
                    ready.users[place.memory].append((number, k, offset))
        return driver_graph.Graph(ready.steps, waits, overlap=True)

    def _pack(
        self, step: PlannedStep, ready: Ready, constants: Memory
    ) -> Step | None:
        """A step with its addresses; None if there is nothing to do."""
        addresses = [_address_in(place, ready, constants) for place in step.places]
        if isinstance(step, Launch):
            if isinstance(step, RankLaunch):
                addresses.append(table_of(step.exchange.how.group))
            return self.program.kernels.pack(step, ready.sizes, addresses)
        source, target = addresses
        if isinstance(step, Collect):
            item = dtype_named(step.exchange.element).itemsize
            counts = [int(p.size.evaluate(ready.sizes)) // item for p in step.places]
            return CollectiveLaunch(step.exchange, addresses, counts)
        size = int(step.source.size.evaluate(ready.sizes))
        return CopyNode(source, target, size) if size else None


def _address_in(place: Place, ready: Ready, constants: Memory) -> int:
    if place.memory >= 0:
        return ready.addresses[place.memory] + int(place.offset.evaluate(ready.sizes))
    if place.memory == RESIDENT:
        return int(place.offset.evaluate(ready.sizes))
    memory = constants if place.memory == CONSTANTS else ready.arena
    assert memory is not None
    return memory.address + int(place.offset.evaluate(ready.sizes))


def accesses_of(step: PlannedStep, sizes: Mapping[Symbol, int]) -> list[Access]:
    """The bytes that a step accesses, except constants. Collective operations run in their order,
    as if they wrote the same memory, because all ranks must execute them in the same order."""
    found = [Access(_NETWORK, 0, 1, True)] if isinstance(step, Collect | RankLaunch) else (
        list[Access]())
    for k, place in enumerate(step.places):
        if place.memory not in (CONSTANTS, RESIDENT):
            start = int(place.offset.evaluate(sizes))
            end = start + int(place.size.evaluate(sizes))
            found.append(Access(place.memory, start, end, k in step.written))
    return found
