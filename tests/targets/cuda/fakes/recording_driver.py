"""A CUDA driver for tests that runs nothing and writes down what is launched, as plain data.

Device memory is host memory, so that copies work; results are what was there. It imports neither
xDSL nor anything of the compiler: a process that loads a program can use it and show what else it
has imported.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from targets.cuda.build.compile import Binary, CompileOptions, Job
from targets.cuda.machine import machine_of
from targets.cuda.runtime import control_runner, driver, driver_graph, kernels
from targets.cuda.runtime.driver_graph import CopyNode
from targets.cuda.runtime.memory import device

Set = Callable[[Any, str, Any], None]


@dataclass
class Function:
    """A kernel: a hash of its code, its entry, and its dynamic shared memory."""

    code: str
    entry: str
    shared: int


@dataclass
class RecordingDriver:
    """`launches`: for each launch its kernel, programs, threads, parameters. Addresses are written
    as the block, by number, and the offset there."""

    arch: str = "sm_90"
    name: str = "recorded"
    multiprocessors: int = 132
    version: int = 13000
    launches: list[list[Any]] = field(default_factory=list[list[Any]])
    blocks: dict[int, Any] = field(default_factory=dict[int, Any])
    loaded: int = 0
    compiled: int = 0
    """How many kernels were loaded, and compiled."""

    @staticmethod
    def placed(put: Set, **facts: Any) -> RecordingDriver:
        """A device of these facts that takes the place of the last one, and of the compiler."""
        device = RecordingDriver(**facts)
        device.install(put)
        device.install_compiler(put)
        return device

    def install(self, put: Set) -> None:
        """Replace the driver's functions by `put(module, name, value)`. There seems to be no torch,
        whatever the machine has. Call `forget` at the end."""
        forget()
        for module in (device, control_runner):
            put(module, "torch_on_device", lambda: None)
        found: dict[str, Any] = {
            "is_available": lambda: True, "capability": lambda device=0: self.arch,
            "device_name": lambda device=0: self.name, "shared_memory": lambda device=0: 232448,
            "multiprocessors": lambda device=0: self.multiprocessors,
            "cache_size": lambda device=0: 50 << 20, "version": lambda: self.version,
            "use_device": lambda device=0: None, "has_pools": lambda device=0: False,
            "allocate": self.allocate, "free": self.blocks.pop, "upload": self.copy,
            "download": self.copy, "copy": self.copy, "make_stream": lambda owner=None: 1,
            "synchronize": lambda stream: None, "Event": Event,
            "load_function": self.load_function, "launch": self.launch}
        for name, value in found.items():
            put(driver, name, value)
        put(driver_graph, "Graph", lambda *arguments, **options: Graph(self, *arguments))
        put(kernels, "TensorMap", Map)

    def install_compiler(self, put: Set) -> None:
        """Replace Triton, too: what stands for code is a hash of the source and of what is known
        of its parameters."""
        put(kernels, "compile_kernels", self.compile)

    def compile(self, jobs: Sequence[Job], options: CompileOptions) -> list[Binary]:
        self.compiled += len(jobs)
        made: list[Binary] = []
        for job in jobs:
            said = f"{job.source.text} {job.divisible} {options.arch} {options.fp_fusion}"
            widths = tuple(8 if type_[0] == "*" else 4 for _, type_ in job.source.signature)
            made.append(Binary(job.source.name, said, b"\x7fELF" + said.encode(), 0,
                               job.source.warps, widths))
        return made

    def allocate(self, size: int) -> int:
        array = np.zeros(size + 512, np.uint8)
        start = -array.ctypes.data % 256
        self.blocks[array.ctypes.data + start] = array[start: start + max(size, 1)]
        return array.ctypes.data + start

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(target, source, size)

    def load_function(self, cubin: bytes, entry: str, shared: int) -> Function:
        assert cubin[:4] == b"\x7fELF"
        self.loaded += 1
        return Function(hashlib.sha256(cubin).hexdigest()[:12], entry, shared)

    def launch(
        self, function: Function, blocks: tuple[int, int, int], threads: int, shared: int,
        parameters: Any, stream: int,
    ) -> None:
        cells = [ctypes.c_uint64.from_address(p).value for p in parameters]
        self.launches.append([function.code, function.entry, function.shared, prod(blocks),
                              threads, shared, [self._shown(cell) for cell in cells]])

    def _shown(self, cell: int) -> Any:
        """A parameter: the number of a block and the offset there, or the lower half of a number.
        """
        for number, (address, block) in enumerate(self.blocks.items()):
            if address <= cell < address + block.size:
                return [number, cell - address]
        return cell & 0xFFFFFFFF if cell >> 32 == 0 else "other"


def forget() -> None:
    """Forget what is known of the device."""
    machine_of.cache_clear()


class Event:
    """An event that is over."""

    def __init__(self, timing: bool = False) -> None:
        del timing

    def record(self, stream: int) -> None:
        pass

    def wait(self, stream: int) -> None:
        pass


class Map:
    """A tensor map that holds only the address."""

    def __init__(self, address: int, shape: Sequence[int], width: int, descriptor: Any) -> None:
        self.value = address
        self._cells = [ctypes.c_uint64(n) for n in (len(shape), width, *descriptor.box)]

    @property
    def parameters(self) -> list[int]:
        return list(map(ctypes.addressof, self._cells))


class Graph:
    """Its nodes run in their order."""

    def __init__(self, device: RecordingDriver, nodes: Sequence[Any], *rest: Any) -> None:
        self.device, self.nodes, self.waits = device, nodes, rest[0]

    def update(self, number: int) -> None:
        pass

    def launch(self, stream: int) -> None:
        self.device.launches.append(["graph", [list(w) for w in self.waits]])
        for node in self.nodes:
            if isinstance(node, CopyNode):
                self.device.copy(node.target, node.source, node.size, stream)
            else:
                self.device.launch(node.function, node.blocks, node.threads, node.shared,
                                   node.parameters, stream)

    def close(self) -> None:
        pass
