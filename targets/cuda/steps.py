"""Host functions call by call: the buffers and sizes of a call, and its straight steps.

Steps are made once from a function's operations and run on every call. They only put work into the
stream, and wait for nothing; those that wait are in `control.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Protocol

import numpy as np
from xdsl.ir import Operation, SSAValue

from dialects.expr import Expr
from dialects.func import AssumeOp
from dialects.host import AllocOp, CopyOp, FreeOp, ViewOp
from dialects.types import Array, BufferType
from targets.cuda import driver
from targets.cuda.kernels import Kernels, PackedLaunch, Variant, variant_of
from targets.cuda.memory import Heap
from targets.cuda.plan import KernelCall

_PACKED = 16
"""For how many sets of sizes a launch stays packed."""


@dataclass(frozen=True)
class Buffer:
    """Memory on the device. `contents`: what it holds, in row-major order, if the host knows."""

    address: int
    shape: tuple[int, ...]
    contents: Array | None = None


@dataclass(frozen=True)
class Run:
    """What all calls of one run share."""

    heap: Heap
    kernels: Kernels

    @property
    def stream(self) -> int:
        return self.heap.stream

    def read(self, buffer: Buffer, type_: BufferType) -> Array:
        """The elements, once all work before is done; at once where the host knows them."""
        if buffer.contents is not None:
            return buffer.contents.reshape(-1)
        array = np.empty(prod(buffer.shape), type_.dtype)
        driver.download(array.ctypes.data, buffer.address, array.nbytes, self.stream)
        driver.synchronize(self.stream)
        return array

    def copy(self, buffer: Buffer, type_: BufferType, op: Operation) -> Buffer:
        """The same in a block of its own."""
        size = prod(buffer.shape) * type_.dtype.itemsize
        address = self.heap.allocate(size, op)
        driver.copy(address, buffer.address, size, self.stream)
        return replace(buffer, address=address)


@dataclass
class Frame:
    """One call: its sizes and buffers so far. `launches`: all of its function."""

    run: Run
    sizes: dict[str, int]
    values: dict[SSAValue, Buffer]
    launches: Sequence[LaunchStep]
    arena: int = 0

    def size(self, expr: Expr) -> int:
        return int(expr.evaluate(self.sizes))

    def shape(self, type_: BufferType) -> tuple[int, ...]:
        return tuple(map(self.size, type_.shape))

    def read(self, value: SSAValue) -> Array:
        return self.run.read(self.values[value], buffer_type(value))

    def variants(self) -> Iterable[Variant]:
        """The kernels that will be launched, as far as their sizes are known by now."""
        for step in self.launches:
            if step.call.symbols <= self.sizes.keys():
                yield variant_of(step.call, step.call.size_values(self.sizes))


def buffer_type(value: SSAValue) -> BufferType:
    assert isinstance(value.type, BufferType)
    return value.type


class Step(Protocol):
    """One operation of a function."""

    def run(self, frame: Frame) -> None: ...


# ---------------------------------------------------------------------- memory
@dataclass(frozen=True)
class AllocStep:
    """At its place in the call's arena, or in a block of its own."""

    op: AllocOp

    def run(self, frame: Frame) -> None:
        op = self.op
        if op.offset is not None:
            address = frame.arena + frame.size(op.offset.data)
        else:
            address = frame.run.heap.allocate(frame.size(op.type.byte_size), op)
        frame.values[op.result] = Buffer(address, frame.shape(op.type))


@dataclass(frozen=True)
class ViewStep:
    op: ViewOp

    def run(self, frame: Frame) -> None:
        source = frame.values[self.op.source]
        frame.values[self.op.result] = replace(source, shape=frame.shape(self.op.type))


@dataclass(frozen=True)
class CopyStep:
    op: CopyOp

    def run(self, frame: Frame) -> None:
        source, target = frame.values[self.op.source], frame.values[self.op.target]
        size = frame.size(buffer_type(self.op.source).byte_size)
        driver.copy(target.address, source.address, size, frame.run.stream)


@dataclass(frozen=True)
class FreeStep:
    op: FreeOp

    def run(self, frame: Frame) -> None:
        frame.run.heap.free(frame.values.pop(self.op.buffer).address)


@dataclass(frozen=True)
class AssumeStep:
    op: AssumeOp

    def run(self, frame: Frame) -> None:
        self.op.check(frame.sizes)


# ---------------------------------------------------------------------- launches
@dataclass
class LaunchStep:
    """A kernel on buffers. Packed for the last few sets of sizes that it was launched with."""

    call: KernelCall
    buffers: tuple[SSAValue, ...]
    symbols: tuple[str, ...] = field(init=False)
    packed: dict[tuple[int, ...], PackedLaunch | None] = field(
        default_factory=dict[tuple[int, ...], "PackedLaunch | None"])

    def __post_init__(self) -> None:
        self.symbols = tuple(sorted(self.call.symbols))

    def run(self, frame: Frame) -> None:
        addresses = [frame.values[b].address for b in self.buffers]
        key = tuple([frame.sizes[s] for s in self.symbols])
        if key not in self.packed:
            self._pack(key, addresses, frame)
        launch = self.packed[key]
        if launch is not None:
            launch.point_at(addresses)
            launch(frame.run.stream)

    def _pack(self, key: tuple[int, ...], addresses: Sequence[int], frame: Frame) -> None:
        launch = frame.run.kernels.pack(self.call, frame.sizes, addresses, frame.variants)
        if len(self.packed) >= _PACKED:
            del self.packed[next(iter(self.packed))]
        self.packed[key] = launch

