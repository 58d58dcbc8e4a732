"""Host functions as interpreted steps: the state of one call, and the steps that never wait.

Steps are plain data, which `planning/functions.py` makes from a function's operations. Buffers are
numbered. The steps here only enqueue work on the stream; steps that wait for the device are in
`control.py`. Nothing here imports xDSL.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from dialects.strata.array_type import ArrayType, read_size, size_facts
from dialects.strata.assumptions import Assumption, check_with_choices
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from targets.communication import Exchange
from targets.cuda.libraries.calls import LibraryLaunch
from targets.cuda.libraries.collectives import CollectiveLaunch
from targets.cuda.runtime import driver
from targets.cuda.runtime.kernels import Kernels, PackedLaunch
from targets.cuda.runtime.memory.device import Heap
from targets.cuda.runtime.planned import KernelCall, PlannedKernel
from targets.cuda.runtime.step_facts import NUMBER, SIZE, TEXT, TYPE, Form, StepFacts
from targets.cuda.runtime.variants.variant import Variant, variant_of

if TYPE_CHECKING:
    from dialects.strata.types import Array

_PACKED = 16
"""For how many different sets of sizes a launch stays packed."""


class Buffer(NamedTuple):
    """Memory on the device. `contents`: its elements in row-major order, if the host knows them."""

    address: int
    shape: tuple[int, ...]
    contents: Array | None = None


Packed = dict[tuple[int, ...], PackedLaunch | LibraryLaunch | None]
"""A launch with its parameters packed, by the host sizes on which it depends."""


class Callee(Protocol):
    """A function that steps call."""

    def call_bound(
        self, run: Run, inputs: Sequence[Buffer], outer: Mapping[Symbol, int]
    ) -> list[Buffer]: ...


@dataclass(frozen=True)
class Run:
    """What all calls of one run share. `packed`: the launches that earlier runs packed."""

    heap: Heap
    kernels: Kernels
    packed: defaultdict[LaunchStep, Packed]
    functions: Mapping[str, Callee]

    @property
    def stream(self) -> int:
        return self.heap.stream

    def read(self, buffer: Buffer, dtype: np.dtype[np.generic]) -> Array:
        """The elements, after all earlier work on the stream; at once if the host knows them."""
        if buffer.contents is not None:
            return buffer.contents.reshape(-1)
        array = np.empty(prod(buffer.shape), dtype)
        driver.download(array.ctypes.data, buffer.address, array.nbytes, self.stream)
        driver.synchronize(self.stream)
        return array

    def is_true(self, flag: Buffer) -> bool:
        """The boolean in a buffer of one element."""
        return bool(self.read(flag, np.dtype(np.bool_))[0])

    def copy(self, buffer: Buffer, item: int, node: str) -> Buffer:
        """A copy in a block of its own; `item` bytes per element."""
        size = prod(buffer.shape) * item
        address = self.heap.allocate(size, node)
        driver.copy(address, buffer.address, size, self.stream)
        return buffer._replace(address=address)


@dataclass
class Frame:
    """One call: its sizes and buffers so far. `launches`: all launches of its function;
    `assumptions`: all that it assumes."""

    run: Run
    sizes: dict[Symbol, int]
    buffers: list[Buffer]
    launches: Sequence[LaunchStep]
    assumptions: Sequence[Assumption]
    arena: int = 0

    def size(self, expr: Expr) -> int:
        return int(expr.evaluate(self.sizes))

    def shape(self, sizes: Sequence[Expr]) -> tuple[int, ...]:
        return tuple([int(s.evaluate(self.sizes)) for s in sizes])

    def variants(self) -> Iterable[Variant]:
        """The variants of kernels that will be launched, where the sizes are already known."""
        for step in self.launches:
            if step.call.symbols <= self.sizes.keys() and step.call.happens(self.sizes):
                yield variant_of(step.call, step.call.size_values(self.sizes))


class Step(Protocol):
    """One operation of a function, as data."""

    def run(self, frame: Frame) -> None: ...

    def facts(self, kernels: Mapping[PlannedKernel, int]) -> list[Any]:
        """All fields, as JSON can represent them. `kernels`: the numbers of the kernels."""
        ...


# ---------------------------------------------------------------------- memory
@dataclass(frozen=True)
class AllocStep(StepFacts):
    """Allocates a buffer at its offset in the call's arena, or in a block of its own."""

    result: int
    type: ArrayType
    offset: Expr | None
    node: str

    forms: ClassVar[Mapping[str, Form]] = {
        "result": NUMBER, "type": TYPE, "offset": SIZE.optional, "node": TEXT}

    def run(self, frame: Frame) -> None:
        shape = frame.shape(self.type.shape)
        if self.offset is not None:
            address = frame.arena + frame.size(self.offset)
        else:
            size = prod(shape) * self.type.dtype.itemsize
            address = frame.run.heap.allocate(size, self.node)
        frame.buffers[self.result] = Buffer(address, shape)


@dataclass(frozen=True)
class ViewStep(StepFacts):
    """Another shape for the same memory, from an offset in bytes on."""

    source: int
    result: int
    shape: tuple[Expr, ...]
    offset: Expr

    forms: ClassVar[Mapping[str, Form]] = {
        "source": NUMBER, "result": NUMBER, "shape": SIZE.listed, "offset": SIZE}

    def run(self, frame: Frame) -> None:
        source, offset = frame.buffers[self.source], frame.size(self.offset)
        shape = frame.shape(self.shape)
        is_whole = prod(shape) == prod(source.shape)
        frame.buffers[self.result] = Buffer(
            source.address + offset, shape, source.contents if is_whole else None)


@dataclass(frozen=True)
class CopyStep(StepFacts):
    """Copies a buffer; `item` bytes per element."""

    source: int
    target: int
    item: int

    forms: ClassVar[Mapping[str, Form]] = {"source": NUMBER, "target": NUMBER, "item": NUMBER}

    def run(self, frame: Frame) -> None:
        source = frame.buffers[self.source]
        driver.copy(frame.buffers[self.target].address, source.address,
                    prod(source.shape) * self.item, frame.run.stream)


@dataclass(frozen=True)
class CollectStep(StepFacts):
    """Exchanges a buffer with other ranks, and writes another one."""

    source: int
    target: int
    exchange: Exchange

    forms: ClassVar[Mapping[str, Form]] = {
        "source": NUMBER, "target": NUMBER, "exchange": Form(Exchange.facts, Exchange.read)}

    def run(self, frame: Frame) -> None:
        buffers = [frame.buffers[self.source], frame.buffers[self.target]]
        CollectiveLaunch(self.exchange, [b.address for b in buffers],
                         [prod(b.shape) for b in buffers])(frame.run.stream)


@dataclass(frozen=True)
class FreeStep(StepFacts):
    """Frees a block."""

    buffer: int

    forms: ClassVar[Mapping[str, Form]] = {"buffer": NUMBER}

    def run(self, frame: Frame) -> None:
        frame.run.heap.free(frame.buffers[self.buffer].address)


@dataclass(frozen=True)
class AssumeStep(StepFacts):
    """Checks an assumption of the function, by its number."""

    number: int

    forms: ClassVar[Mapping[str, Form]] = {"number": NUMBER}

    def run(self, frame: Frame) -> None:
        choices = (a for a in frame.assumptions if a.choice is not None)
        check_with_choices(frame.assumptions[self.number], choices, frame.sizes)


# ---------------------------------------------------------------------- launches
@dataclass(frozen=True, eq=False)
class LaunchStep:
    """Launches a kernel on buffers. Each state keeps its own packed launches, for the last few sets
    of sizes, because a packed launch holds the addresses of one call."""

    call: KernelCall
    buffers: tuple[int, ...]
    symbols: tuple[Symbol, ...]

    @staticmethod
    def of(call: KernelCall, buffers: tuple[int, ...]) -> LaunchStep:
        return LaunchStep(call, buffers, tuple(sorted(call.symbols)))

    def run(self, frame: Frame) -> None:
        addresses = [frame.buffers[b].address for b in self.buffers]
        key, packed = tuple([frame.sizes[s] for s in self.symbols]), frame.run.packed[self]
        if key not in packed:
            launch = frame.run.kernels.pack(self.call, frame.sizes, addresses, frame.variants)
            if len(packed) >= _PACKED:
                del packed[next(iter(packed))]
            packed[key] = launch
        launch = packed[key]
        if launch is not None:
            launch.point_at(addresses)
            launch(frame.run.stream)

    def facts(self, kernels: Mapping[PlannedKernel, int]) -> list[Any]:
        """All fields, as JSON can represent them."""
        call = self.call
        when = [] if call.when is None else [size_facts(call.when)]
        return [kernels[call.kernel], list(map(size_facts, call.sizes)), call.node, self.buffers,
                *when]

    @staticmethod
    def read(facts: Sequence[Any], kernels: Sequence[PlannedKernel]) -> LaunchStep:
        """The inverse of `facts`."""
        kernel, sizes, node, buffers, *when = facts
        call = KernelCall(kernels[int(kernel)], tuple(map(read_size, sizes)), str(node),
                          when=read_size(when[0]) if when else None)
        return LaunchStep.of(call, tuple(map(int, buffers)))
