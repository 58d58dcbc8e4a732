"""A CUDA driver for tests: device memory is host memory, and kernels run by their NumPy meaning.

It stands in for `targets.cuda.runtime.driver`, so that all above the driver's calls is what runs on
a GPU. As there, work is only noted when it is asked for, and done when somebody waits for its
stream (`fake_streams.py`); memory that a pool takes back may be given out again at once. Whatever
touches memory that is not there, or is freed by then, fails. Any number of threads may call it.
"""

from __future__ import annotations

import ctypes
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import prod
from typing import Any, cast

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from dialects.block import KernelOp
from dialects.block.interpret import interpret_kernel
from dialects.strata.types import Array, BufferType
from dialects.symbolic.symbol import Symbol
from targets.cuda.build.compile import Binary, CompileOptions, Job
from targets.cuda.emit import KernelSource
from targets.cuda.libraries import calls as library
from targets.cuda.libraries import cublas, cudnn
from targets.cuda.libraries.calls import LibraryLaunch
from targets.cuda.runtime import driver, driver_graph, graph_cache, kernels
from targets.cuda.runtime.driver_graph import CopyNode, RecordNode
from targets.cuda.runtime.memory.arenas import Arenas
from targets.cuda.runtime.tensor_maps import Descriptor
from tests.targets.cuda.fakes.fake_libraries import FakeCall, FakeConvolution, FakeProduct
from tests.targets.cuda.fakes.fake_streams import FakeEvent, FakeStreams, Work

MULTIPROCESSORS = 3
MAP = "tensordesc"


@dataclass
class FakeDriver:
    """`kernels`: by name, what cubins mean. `log`: what was done, for tests to look at."""

    kernels: dict[str, KernelOp]
    has_pools: bool = True
    limit: int = 1 << 30
    cache: int = 1 << 20
    cost: float = 1.0
    """The milliseconds of a kernel."""
    log: list[str] = field(default_factory=list[str])
    memory: dict[int, Array] = field(default_factory=dict[int, Array])
    """Blocks by address."""
    given: set[int] = field(default_factory=set[int])
    """Blocks of pools that are in use, as the host sees it."""
    freed: set[int] = field(default_factory=set[int])
    """Blocks of pools that are not in use, as the device sees it."""
    streams: FakeStreams = field(default_factory=FakeStreams)
    sources: dict[str, KernelSource] = field(default_factory=dict[str, "KernelSource"])
    """By name, of what was compiled here."""

    @staticmethod
    def of(module: ModuleOp, **options: Any) -> FakeDriver:
        return FakeDriver({op.sym_name.data: op for op in module.body.block.ops
                           if isinstance(op, KernelOp)}, **options)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Replace the driver's functions for a test.

        There seem to be no torch and no libraries, whatever the machine has: those would use the
        real device.
        """
        patch.delitem(sys.modules, "torch", raising=False)
        patch.setattr(cublas, "version", lambda: None)
        patch.setattr(cudnn, "version", lambda: None)
        _forget_calls(patch)
        names = ("allocate", "free", "upload", "download", "copy", "launch", "load_function",
                 "synchronize", "function_attribute")
        for name in names:
            patch.setattr(driver, name, getattr(self, name))
        patch.setattr(driver, "has_pools", lambda: self.has_pools)
        patch.setattr(driver, "MemoryPool", partial(FakePool, self))
        patch.setattr(driver, "use_device", lambda: None)
        patch.setattr(driver, "cache_size", lambda: self.cache)
        patch.setattr(driver, "make_stream", self.streams.make)
        patch.setattr(driver, "Event", partial(FakeEvent, self.streams))
        patch.setattr(driver, "device_name", lambda: "a fake")
        patch.setattr(driver_graph, "Graph", partial(FakeGraph, self))
        patch.setattr(graph_cache, "ARENAS", Arenas())

    def install_compiler(self, patch: pytest.MonkeyPatch) -> None:
        """Replace Triton, too: kernels are emitted, but not compiled."""
        patch.setattr(kernels, "compile_kernels", self.compile)
        patch.setattr(kernels, "TensorMap", FakeMap)
        patch.setattr(driver, "multiprocessors", lambda: MULTIPROCESSORS)

    def install_libraries(self, patch: pytest.MonkeyPatch) -> None:
        """Let there be cuBLAS and cuDNN."""
        patch.setattr(cublas, "version", lambda: 130000)
        patch.setattr(cublas, "Call", partial(FakeProduct, self))
        patch.setattr(cudnn, "version", lambda: 91900)
        patch.setattr(cudnn, "Call", partial(FakeConvolution, self))
        _forget_calls(patch)

    def compile(self, jobs: Sequence[Job], options: CompileOptions) -> list[Binary]:
        if jobs:
            self.log.append(f"compile {len(jobs)}")
        self.sources |= {job.source.name: job.source for job in jobs}
        return [Binary(job.source.name, "", b"\x7fELF", 0, job.source.warps,
                       tuple(n for _, type_ in job.source.signature for n in _widths(type_)),
                       tuple(Descriptor(k, (), 0, 0)
                             for k, (_, type_) in enumerate(job.source.signature)
                             if type_.startswith(MAP)))
                for job in jobs]

    # ------------------------------------------------------------------ memory
    def allocate(self, size: int) -> int:
        """As in C, sizes wrap around."""
        size = ctypes.c_size_t(size).value
        with self.streams.lock:
            if size + sum(a.size for a in self.memory.values()) > self.limit:
                raise driver.DeviceMemoryError("out of memory")
            array = np.full(size + 257, 0xFF, np.uint8)
            start = -array.ctypes.data % 256
            address = array.ctypes.data + start
            self.memory[address] = array[start: start + max(size, 1)]
            self.log.append(f"allocate {size}")
            return address

    def free(self, address: int) -> None:
        with self.streams.lock:
            self.streams.finish_all()
            del self.memory[address]
            self.log.append("free")

    def upload(self, target: int, source: int, size: int, stream: int) -> None:
        """What is uploaded is what is there now."""
        content = ctypes.string_at(source, size)
        self.later(lambda: _write(self._checked(target, size), content), stream)

    def download(self, target: int, source: int, size: int, stream: int) -> None:
        self.log.append(f"download {size}")
        self.later(lambda: _write(target, ctypes.string_at(self._checked(source, size), size)),
                   stream)

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        self.later(self.copied(target, source, size), stream)

    def copied(self, target: int, source: int, size: int) -> Work:
        return lambda: _write(self._checked(target, size),
                              ctypes.string_at(self._checked(source, size), size))

    def _checked(self, address: int, size: int) -> int:
        """The address, behind which so many bytes are in one block in use."""
        for start, block in self.memory.items():
            if start <= address and address + size <= start + block.size:
                assert start not in self.freed, "memory is used after it was freed"
                return address
        raise AssertionError(f"{size} bytes at {address:#x} are not on the device")

    # ------------------------------------------------------------------ kernels
    def load_function(self, cubin: bytes, entry: str, shared: int) -> KernelOp:
        assert cubin[:4] == b"\x7fELF"
        return self.kernels[entry]

    def launch(
        self, function: KernelOp, blocks: tuple[int, int, int], threads: int, shared: int,
        parameters: Any, stream: int,
    ) -> None:
        self.later(self.launched(function, prod(blocks), threads, parameters), stream)

    def launched(self, function: KernelOp, programs: int, threads: int, parameters: Any) -> Work:
        """A launch whose parameters are what they are now."""
        assert threads % 32 == 0
        count = len(function.buffers)
        source = self.sources.get(function.sym_name.data)
        places = [0]
        for _, type_ in source.signature if source else [("", "*")] * len(parameters):
            places.append(places[-1] + len(_widths(type_)))
        pointers = [_cell(parameters[places[k]], ctypes.c_uint64) for k in range(count)]
        sizes = {size: _cell(parameters[places[count + k]], ctypes.c_uint32)
                 for k, size in enumerate(function.size_names)}
        assert all(p % 256 == 0 for p in pointers)
        tiles = [int(e.evaluate(sizes)) for e in function.grid.data]
        assert programs == (source.programs(tiles, MULTIPROCESSORS) if source else prod(tiles))
        return lambda: self._run(function, pointers, sizes)

    def _run(self, kernel: KernelOp, pointers: Sequence[int], sizes: dict[Symbol, int]) -> None:
        buffers = [self._view(p, b.type, sizes)
                   for p, b in zip(pointers, kernel.buffers, strict=True)]
        interpret_kernel(kernel, buffers, sizes)
        self.streams.clock += self.cost
        self.log.append(f"run {kernel.sym_name.data}")

    def function_attribute(self, function: KernelOp, number: int) -> int:
        return {1: 0, 3: 16, 4: len(function.buffers)}[number]

    def _view(self, address: int, type_: Any, sizes: dict[Symbol, int]) -> Array:
        """A buffer as an array over its memory."""
        assert isinstance(type_, BufferType)
        shape = tuple(int(s.evaluate(sizes)) for s in type_.shape)
        size = prod(shape) * type_.dtype.itemsize
        raw = (ctypes.c_uint8 * max(1, size)).from_address(self._checked(address, size))
        return np.frombuffer(raw, type_.dtype, prod(shape)).reshape(shape)

    # ------------------------------------------------------------------ order
    def later(self, work: Work, stream: int) -> None:
        """Do it in its turn."""
        self.streams.later(work, stream)

    def synchronize(self, stream: int) -> None:
        self.streams.finish(stream)


@dataclass
class FakePool:
    """A pool that gives out a freed block as soon as it can, to the stream that freed it."""

    device: FakeDriver
    kept: int
    free_blocks: defaultdict[tuple[int, int], list[int]] = field(
        default_factory=lambda: defaultdict[tuple[int, int], list[int]](list))

    def allocate(self, size: int, stream: int) -> int:
        with self.device.streams.lock:
            blocks = self.free_blocks[stream, size]
            address = blocks.pop() if blocks else self.device.allocate(size)
            self.device.given.add(address)
            self.device.later(lambda: self.device.freed.discard(address), stream)
            return address

    def free(self, address: int, stream: int) -> None:
        with self.device.streams.lock:
            self.device.given.remove(address)
            block = self.device.memory[address]
            self.free_blocks[stream, block.size].append(address)
            self.device.later(lambda: self._end(address, block), stream)

    def _end(self, address: int, block: Array) -> None:
        self.device.freed.add(address)
        block.fill(0xFF)


class FakeGraph:
    """Its nodes run in an order that is as unlike their own as what they wait for allows."""

    def __init__(
        self, device: FakeDriver, nodes: Sequence[Any], waits: Sequence[Sequence[int]],
        overlap: bool = False,
    ) -> None:
        self.device, self.nodes = device, nodes
        self.work = [self._made(node) for node in nodes]
        self.order: list[int] = []
        while len(self.order) < len(nodes):
            done = set(self.order)
            self.order.append(next(k for k in reversed(range(len(nodes)))
                                   if k not in done and done.issuperset(waits[k])))

    def _made(self, node: Any) -> Work:
        if isinstance(node, LibraryLaunch):
            addresses = [node.addresses[k] for k in node.order]
            return partial(cast(FakeCall, node.call).now, addresses)
        if isinstance(node, RecordNode):
            return cast(FakeEvent, node.event).reached
        if isinstance(node, CopyNode):
            return self.device.copied(node.target, node.source, node.size)
        return self.device.launched(node.function, prod(node.blocks), node.threads, node.parameters)

    def update(self, number: int) -> None:
        self.device.log.append(f"update {number}")
        self.work[number] = self._made(self.nodes[number])

    def launch(self, stream: int) -> None:
        self.device.log.append("replay")
        with self.device.streams.lock:
            for number in self.order:
                self.device.later(self.work[number], stream)

    def close(self) -> None:
        self.device.log.append("close")


class FakeMap:
    """A map that holds nothing but the buffer's address."""

    def __init__(
        self, address: int, shape: Sequence[int], width: int, descriptor: Descriptor
    ) -> None:
        assert shape[-1] * width % 16 == 0
        behind = (*shape, *[0] * len(shape))
        self._cell, self._behind = ctypes.c_uint64(address), [*map(ctypes.c_int, behind)]

    @property
    def value(self) -> int:
        return self._cell.value

    @value.setter
    def value(self, address: int) -> None:
        self._cell.value = address

    @property
    def parameters(self) -> list[int]:
        return [*map(ctypes.addressof, (self._cell, *self._behind))]


def _forget_calls(patch: pytest.MonkeyPatch) -> None:
    """Calls that are kept for further launches are the test's own, so that no other test gets a
    library's that is not there for it."""
    patch.setattr(library, "_made", lru_cache(library._made.__wrapped__))


def _widths(type_: str) -> tuple[int, ...]:
    """The bytes of what stands for a parameter; behind a map its buffer's sizes and pitches."""
    if type_.startswith(MAP):
        rank = type_.partition("]")[0].count(",") + 1
        return 128, *[4] * rank, *[8] * rank
    return (8 if type_[0] == "*" else 4,)


def _cell(address: int, kind: Any) -> int:
    return kind.from_address(address).value


def _write(target: int, content: bytes) -> None:
    ctypes.memmove(target, content, len(content))
