"""A CUDA driver for tests: device memory is host memory, and kernels run by their NumPy meaning.

It stands in for `targets.cuda.driver`, so that all above the driver's calls is what runs on a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import pytest

from dialects.block import KernelOp
from dialects.block.interpret import interpret_kernel
from dialects.types import Array, BufferType
from targets.cuda import driver


@dataclass
class FakeDriver:
    """`kernels`: by name, what cubins mean. `log`: what was done, for tests to look at."""

    kernels: dict[str, KernelOp]
    log: list[str] = field(default_factory=list[str])
    memory: dict[int, Array] = field(default_factory=dict[int, Array])
    limit: int = 1 << 30
    captured: list[Callable[[], None]] | None = None

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Replace the driver's functions for a test."""
        names = ("allocate", "free", "upload", "download", "copy", "launch", "begin_capture",
                 "load_function")
        for name in names:
            patch.setattr(driver, name, getattr(self, name))
        patch.setattr(driver, "use_device", lambda: None)
        patch.setattr(driver, "make_stream", lambda: 7)
        patch.setattr(driver, "synchronize", lambda stream: None)
        patch.setattr(driver, "Event", FakeEvent)
        patch.setattr(driver, "Graph", lambda stream: self._end_capture())

    # ------------------------------------------------------------------ memory
    def allocate(self, size: int) -> int:
        if size + sum(a.size for a in self.memory.values()) > self.limit:
            raise driver.CudaError("out of memory")
        array = np.full(size + 256, 0xFF, np.uint8)
        address = -(-array.ctypes.data // 256) * 256
        self.memory[address] = array
        self.log.append(f"allocate {size}")
        return address

    def free(self, address: int) -> None:
        del self.memory[address]
        self.log.append("free")

    def upload(self, target: int, source: int, size: int, stream: int) -> None:
        self.copy(target, source, size, stream)

    def download(self, target: int, source: int, size: int, stream: int) -> None:
        self.copy(target, source, size, stream)

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        self._do(lambda: ctypes.memmove(target, source, size))

    # ------------------------------------------------------------------ kernels
    def load_function(self, cubin: bytes, entry: str, shared: int) -> KernelOp:
        assert cubin[:4] == b"\x7fELF"
        return self.kernels[entry]

    def launch(
        self, function: KernelOp, programs: int, threads: int, shared: int, parameters: Any,
        stream: int,
    ) -> None:
        assert threads % 32 == 0
        name = function.sym_name.data
        self._do(lambda: self._run(name, function, programs, parameters))

    def _run(self, name: str, kernel: KernelOp, programs: int, parameters: Any) -> None:
        count = len(kernel.buffers)
        pointers = [_cell(parameters[k], ctypes.c_uint64) for k in range(count)]
        sizes = {size: _cell(parameters[count + k], ctypes.c_uint32)
                 for k, size in enumerate(kernel.size_names)}
        assert all(p % 256 == 0 for p in pointers)
        assert programs == prod(int(e.evaluate(sizes)) for e in kernel.grid.data)
        buffers = [_view(p, b.type, sizes) for p, b in zip(pointers, kernel.buffers, strict=True)]
        interpret_kernel(kernel, buffers, sizes)
        self.log.append(f"run {name}")

    # ------------------------------------------------------------------ graphs
    def begin_capture(self, stream: int) -> None:
        self.captured = []

    def _end_capture(self) -> FakeGraph:
        assert self.captured is not None
        graph, self.captured = FakeGraph(self.captured, self.log), None
        return graph

    def _do(self, work: Callable[[], Any]) -> None:
        if self.captured is not None:
            self.captured.append(work)
        else:
            work()


@dataclass
class FakeGraph:
    work: Sequence[Callable[[], None]]
    log: list[str]

    def launch(self, stream: int) -> None:
        self.log.append("replay")
        for step in self.work:
            step()

    def close(self) -> None:
        self.log.append("close")


class FakeEvent:
    def __init__(self, timing: bool = False) -> None:
        self.recorded = False

    def record(self, stream: int) -> None:
        self.recorded = True

    def wait(self, stream: int) -> None:
        assert self.recorded

    def milliseconds_since(self, earlier: FakeEvent) -> float:
        return 1.0


def _cell(address: int, kind: Any) -> int:
    return kind.from_address(address).value


def _view(address: int, type_: Any, sizes: dict[str, int]) -> Array:
    """A buffer as an array over its memory."""
    assert isinstance(type_, BufferType)
    shape = tuple(int(s.evaluate(sizes)) for s in type_.shape)
    raw = (ctypes.c_uint8 * max(1, prod(shape) * type_.dtype.itemsize)).from_address(address)
    return np.frombuffer(raw, type_.dtype, prod(shape)).reshape(shape)
