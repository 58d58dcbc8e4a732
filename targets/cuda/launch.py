"""Run models on a GPU: one arena and one CUDA graph per set of sizes.

The first call with new sizes compiles what is missing, launches kernel by kernel, and captures the
same launches as a graph; later calls copy inputs in, replay the graph, and copy outputs out. Work
goes to the caller's current stream. torch is used for memory only when the caller has imported it.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from dialects.block import KernelOp
from dialects.func import SizeError
from dialects.graph.interpret import EvaluationError, bind_sizes
from dialects.host import host_function
from dialects.types import Array, tensor_of
from dialects.weights import WeightStore
from targets.base import Executable
from targets.cuda import driver
from targets.cuda.compile import Binary, CompileOptions, Job, compile_kernels
from targets.cuda.emit import EmitOptions, emit_kernel
from targets.cuda.errors import CudaError
from targets.cuda.plan import (
    Copy,
    HostPlan,
    Launch,
    Place,
    Slot,
    most_elements,
    plan_host,
    stride_sizes,
)

_GRAPHS = 16
"""How many sets of sizes stay ready."""
_DEVICE = "cuda:0"
_INT32 = 2**31 - 1
_WARP = 32

Variant = tuple[KernelOp, frozenset[str], bool]
"""A kernel, its sizes that 16 divides, and whether offsets need 64 bits."""


# ---------------------------------------------------------------------- memory
class Memory:
    """Bytes on the device: torch's, when the caller uses torch, else the driver's."""

    def __init__(self, size: int) -> None:
        torch = sys.modules.get("torch")
        self._tensor: Any = None
        if torch is not None and torch.cuda.is_available():
            self._tensor = _torch_bytes(torch, size)
            self.address: int = self._tensor.data_ptr()
            self._free = None
        else:
            self.address = driver.allocate(size)
            self._free = weakref.finalize(self, driver.free, self.address)
            self._free.atexit = False  # the driver is gone by then, and its memory with it

    def close(self) -> None:
        self._tensor = None
        if self._free is not None:
            self._free()


def _torch_bytes(torch: Any, size: int) -> Any:
    try:
        return torch.empty(max(size, 1), dtype=torch.uint8, device=_DEVICE)
    except torch.cuda.OutOfMemoryError as error:
        raise CudaError("the device's memory is full: use a smaller batch, or end other programs "
                        f"that use it ({str(error).splitlines()[0]})") from None


# ---------------------------------------------------------------------- kernels
class Kernels:
    """Compiled kernels on the device, by variant."""

    def __init__(self, options: CompileOptions) -> None:
        self._options = options
        self._loaded: dict[Variant, tuple[Any, Binary]] = {}

    def prepare(self, variants: Sequence[Variant]) -> None:
        """Compile and load what is missing, all at once."""
        missing = [v for v in dict.fromkeys(variants) if v not in self._loaded]
        binaries = compile_kernels([_job(v) for v in missing], self._options)
        for variant, binary in zip(missing, binaries, strict=True):
            function = driver.load_function(binary.cubin, binary.entry, binary.shared)
            self._loaded[variant] = function, binary

    def get(self, variant: Variant) -> tuple[Any, Binary]:
        return self._loaded[variant]


def _job(variant: Variant) -> Job:
    kernel, divisible, wide = variant
    count = len(kernel.buffers)
    sizes = [count + k for k, name in enumerate(kernel.size_names) if name in divisible]
    source = emit_kernel(kernel, EmitOptions(wide=wide))
    return Job(source, (*range(count), *sizes))  # buffers lie at multiples of 256 bytes


def _variant(launch: Launch, sizes: dict[str, int]) -> Variant:
    values = launch.size_values(sizes)
    divisible = frozenset(s for s in stride_sizes(launch.kernel) if values[s] % 16 == 0)
    symbolic = bool(launch.kernel.size_names)
    return launch.kernel, divisible, symbolic and most_elements(launch.kernel, values) > _INT32


# ---------------------------------------------------------------------- one set of sizes
@dataclass
class Ready:
    """All that a run with certain sizes needs: memory, packed launches, and later the graph."""

    sizes: dict[str, int]
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
class _PackedLaunch:
    """A launch with its parameters in place."""

    function: Any
    programs: int
    threads: int
    shared: int
    parameters: Any
    cells: list[Any]

    def __call__(self, stream: int) -> None:
        driver.launch(self.function, self.programs, self.threads, self.shared, self.parameters,
                      stream)


@dataclass(frozen=True)
class _PackedCopy:
    target: int
    source: int
    size: int

    def __call__(self, stream: int) -> None:
        driver.copy(self.target, self.source, self.size, stream)


# ---------------------------------------------------------------------- the model
class CudaExecutable(Executable):
    """A model on the GPU. Takes and returns NumPy arrays, or torch tensors on the device."""

    takes_gpu_tensors = True

    def __init__(self, module: ModuleOp, weights: WeightStore, options: CompileOptions) -> None:
        """Compile, and upload the constants. Raises CudaError without a suitable device."""
        driver.use_device()
        function = host_function(module)
        self.input_names, self.output_names = function.input_names, function.output_names
        self.plan: HostPlan = plan_host(module)
        self._kernels = Kernels(options)
        self._kernels.prepare([(k, frozenset(), False) for k in self.plan.kernels
                               if not k.size_names])
        self._stream = driver.make_stream()
        self._done = driver.Event()
        self._constants = Memory(self.plan.constant_bytes)
        self._ready: OrderedDict[tuple[tuple[str, int], ...], Ready] = OrderedDict()
        self._lock = threading.Lock()
        self._upload_constants(weights)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Outputs in model order, torch tensors on the device if an input is one, else arrays."""
        values = [_as_value(v) for v in inputs]
        sizes = self._bind(values)
        with self._lock:
            driver.use_device()
            stream = self._current_stream(values)
            self._done.wait(stream)  # the arena may still be in use on another stream
            ready = self._prepare(sizes)
            for slot, value in zip(self.plan.inputs, values, strict=True):
                self._copy_in(ready, slot, value, stream)
            self._execute(ready, stream)
            on_device = any(_is_on_device(v) for v in values)
            outputs = [self._copy_out(ready, slot, on_device, stream) for slot in self.plan.outputs]
            self._done.record(stream)
            if not on_device:
                driver.synchronize(stream)
        return outputs

    def replay(self, count: int) -> float:
        """Milliseconds per replay of the last graph alone, for benchmarks; inputs stay."""
        if not self._ready:
            raise CudaError("run the model before timing replays")
        ready = next(reversed(self._ready.values()))
        assert ready.graph is not None
        start, end = driver.Event(timing=True), driver.Event(timing=True)
        with self._lock:
            self._done.wait(self._stream)
            start.record(self._stream)
            for _ in range(count):
                ready.graph.launch(self._stream)
            end.record(self._stream)
            self._done.record(self._stream)
        return end.milliseconds_since(start) / count

    # ------------------------------------------------------------------ steps of a run
    def _bind(self, values: Sequence[Any]) -> dict[str, int]:
        """The sizes, from the inputs' shapes. Raises CudaError naming an input that is wrong."""
        if len(values) != len(self.input_names):
            raise CudaError(f"takes {len(self.input_names)} inputs "
                            f"({', '.join(self.input_names)}), not {len(values)}")
        types = [slot.type for slot in self.plan.inputs]
        for name, type_, value in zip(self.input_names, types, values, strict=True):
            if _is_on_device(value) and str(value.device) != _DEVICE:
                raise CudaError(f"input {name!r} is on {value.device}, the model on {_DEVICE}")
            found = str(value.dtype).removeprefix("torch.")
            if found != type_.dtype.name:
                raise CudaError(f"input {name!r} must be {type_.dtype.name}, not {found}")
        try:
            sizes = bind_sizes([tensor_of(type_) for type_ in types], values, self.input_names)
            self.plan.check(sizes)
        except (EvaluationError, SizeError) as error:
            raise CudaError(str(error)) from error
        return sizes

    def _current_stream(self, values: Sequence[Any]) -> int:
        torch = sys.modules.get("torch")
        if torch is not None and any(_is_on_device(v) for v in values):
            return torch.cuda.current_stream().cuda_stream
        return self._stream

    def _prepare(self, sizes: dict[str, int]) -> Ready:
        """What these sizes need, made when they are new; the least recently used goes."""
        key = tuple(sorted(sizes.items()))
        if key in self._ready:
            self._ready.move_to_end(key)
            return self._ready[key]
        while len(self._ready) >= _GRAPHS:
            self._drop_oldest()
        launches = [s for s in self.plan.steps if isinstance(s, Launch)]
        self._kernels.prepare([_variant(s, sizes) for s in launches])
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

    def _copy_in(self, ready: Ready, slot: Slot, value: Any, stream: int) -> None:
        target = self._address(slot.place, ready)
        if _is_on_device(value):
            value = value.contiguous()
            driver.copy(target, value.data_ptr(), value.nbytes, stream)
        else:
            driver.upload(target, value.ctypes.data, value.nbytes, stream)

    def _copy_out(self, ready: Ready, slot: Slot, on_device: bool, stream: int) -> Any:
        shape = tuple(int(s.evaluate(ready.sizes)) for s in slot.type.shape)
        source = self._address(slot.place, ready)
        if not on_device:
            array: Array = np.empty(shape, slot.type.dtype)
            driver.download(array.ctypes.data, source, array.nbytes, stream)
            return array
        torch = sys.modules["torch"]
        tensor = torch.empty(shape, dtype=getattr(torch, slot.type.dtype.name), device=_DEVICE)
        driver.copy(tensor.data_ptr(), source, tensor.nbytes, stream)
        return tensor

    # ------------------------------------------------------------------ addresses
    def _address(self, place: Place, ready: Ready) -> int:
        memory = self._constants if place.in_constants else ready.arena
        return memory.address + int(place.offset.evaluate(ready.sizes))

    def _pack(self, step: Launch | Copy, ready: Ready) -> Any:
        """A step as a call that takes the stream; None when it does nothing."""
        if isinstance(step, Copy):
            return _PackedCopy(self._address(step.target, ready), self._address(step.source, ready),
                               int(step.size.evaluate(ready.sizes)))
        programs = step.programs(ready.sizes)
        if programs == 0:
            return None
        function, binary = self._kernels.get(_variant(step, ready.sizes))
        values = [self._address(b, ready) for b in step.buffers]
        values += step.size_values(ready.sizes).values()
        parameters, cells = driver.pack_parameters(values, binary.parameters)
        return _PackedLaunch(function, programs, _WARP * binary.warps, binary.shared, parameters,
                             cells)

    def _upload_constants(self, weights: WeightStore) -> None:
        for op, slot in self.plan.constants:
            array = np.ascontiguousarray(op.array(weights))
            target = self._constants.address + int(slot.place.offset.evaluate({}))
            driver.upload(target, array.ctypes.data, array.nbytes, self._stream)
            driver.synchronize(self._stream)
        self._done.record(self._stream)


def _is_on_device(value: Any) -> bool:
    return bool(getattr(value, "is_cuda", False))


def _as_value(value: Any) -> Any:
    """A torch tensor on the device as it is, anything else as a C-contiguous array."""
    return value if _is_on_device(value) else np.asarray(value, order="C")
