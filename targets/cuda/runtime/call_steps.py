"""Host functions as interpreted steps: the state of one call, and the steps that never wait.

Steps are built once from a function's operations and run on every call, so that a call need not
look at operations. Buffers are numbered. The steps here only enqueue work on the stream; steps that
wait for the device are in `control.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, Protocol

import numpy as np
from xdsl.ir import Operation, SSAValue

from dialects.host import AllocOp, CopyOp, FreeOp, LaunchOp, ViewOp
from dialects.strata.sizes import AssumeOp
from dialects.strata.types import Array, buffer_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from targets.cuda.libraries.calls import LibraryLaunch
from targets.cuda.runtime import driver
from targets.cuda.runtime.kernels import Kernels, PackedLaunch, Variant, variant_of
from targets.cuda.runtime.memory import Heap
from targets.cuda.runtime.planned import KernelCall

_PACKED = 16
"""For how many different sets of sizes a launch stays packed."""


class Buffer(NamedTuple):
    """Memory on the device. `contents`: its elements in row-major order, if the host knows them."""

    address: int
    shape: tuple[int, ...]
    contents: Array | None = None


Packed = dict[tuple[int, ...], PackedLaunch | LibraryLaunch | None]
"""A launch with its parameters packed, by the host sizes on which it depends."""


@dataclass(frozen=True)
class Run:
    """What all calls of one run share. `packed`: the launches that earlier runs packed."""

    heap: Heap
    kernels: Kernels
    packed: defaultdict[LaunchStep, Packed]

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

    def copy(self, buffer: Buffer, item: int, op: Operation) -> Buffer:
        """A copy in a block of its own; `item` bytes per element."""
        size = prod(buffer.shape) * item
        address = self.heap.allocate(size, op)
        driver.copy(address, buffer.address, size, self.stream)
        return buffer._replace(address=address)


@dataclass
class Frame:
    """One call: its sizes and buffers so far. `launches`: all launches of its function."""

    run: Run
    sizes: dict[Symbol, int]
    buffers: list[Buffer]
    launches: Sequence[LaunchStep]
    arena: int = 0

    def size(self, expr: Expr) -> int:
        return int(expr.evaluate(self.sizes))

    def shape(self, sizes: Sequence[Expr]) -> tuple[int, ...]:
        return tuple([int(s.evaluate(self.sizes)) for s in sizes])

    def variants(self) -> Iterable[Variant]:
        """The variants of kernels that will be launched, where the sizes are already known."""
        for step in self.launches:
            if step.call.symbols <= self.sizes.keys():
                yield variant_of(step.call, step.call.size_values(self.sizes))


class Numbers:
    """The numbers of a function's buffers, assigned at the first request."""

    def __init__(self) -> None:
        self._numbers: dict[SSAValue, int] = {}

    def __getitem__(self, value: SSAValue) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    def all(self, values: Iterable[SSAValue]) -> tuple[int, ...]:
        return tuple([self[v] for v in values])


class Step(Protocol):
    """One operation of a function."""

    def run(self, frame: Frame) -> None: ...


# ---------------------------------------------------------------------- memory
class AllocStep:
    """Allocates a buffer at its offset in the call's arena, or in a block of its own."""

    def __init__(self, op: AllocOp, numbers: Numbers) -> None:
        self.op, self.result = op, numbers[op.result]
        self.offset = None if op.offset is None else op.offset.data
        self.shape, self.item = op.type.shape, op.type.dtype.itemsize

    def run(self, frame: Frame) -> None:
        shape = frame.shape(self.shape)
        if self.offset is not None:
            address = frame.arena + frame.size(self.offset)
        else:
            address = frame.run.heap.allocate(prod(shape) * self.item, self.op)
        frame.buffers[self.result] = Buffer(address, shape)


class ViewStep:
    def __init__(self, op: ViewOp, numbers: Numbers) -> None:
        self.source, self.result = numbers[op.source], numbers[op.result]
        self.shape = buffer_type(op.result).shape

    def run(self, frame: Frame) -> None:
        source = frame.buffers[self.source]
        frame.buffers[self.result] = Buffer(
            source.address, frame.shape(self.shape), source.contents)


class CopyStep:
    def __init__(self, op: CopyOp, numbers: Numbers) -> None:
        self.source, self.target = numbers[op.source], numbers[op.target]
        self.item = buffer_type(op.source).dtype.itemsize

    def run(self, frame: Frame) -> None:
        source = frame.buffers[self.source]
        driver.copy(frame.buffers[self.target].address, source.address,
                    prod(source.shape) * self.item, frame.run.stream)


class FreeStep:
    def __init__(self, op: FreeOp, numbers: Numbers) -> None:
        self.buffer = numbers[op.buffer]

    def run(self, frame: Frame) -> None:
        frame.run.heap.free(frame.buffers[self.buffer].address)


@dataclass(frozen=True)
class AssumeStep:
    op: AssumeOp

    def run(self, frame: Frame) -> None:
        self.op.check(frame.sizes)


# ---------------------------------------------------------------------- launches
@dataclass(frozen=True, eq=False)
class LaunchStep:
    """Launches a kernel on buffers. Each state keeps its own packed launches, for the last few sets
    of sizes, because a packed launch holds the addresses of one call."""

    call: KernelCall
    buffers: tuple[int, ...]
    symbols: tuple[Symbol, ...]

    @staticmethod
    def of(call: KernelCall, op: LaunchOp, numbers: Numbers) -> LaunchStep:
        return LaunchStep(call, numbers.all(op.buffers), tuple(sorted(call.symbols)))

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
