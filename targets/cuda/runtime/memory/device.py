"""Device memory, and copies between it and the caller's arrays.

A `Memory` lives as long as its owner. A `Heap` holds the blocks of one run, which are allocated and
freed in stream order. They come from torch's allocator if the caller uses torch, else from the
driver's pool, else from blocks that are kept for the next run.
"""

from __future__ import annotations

import sys
import weakref
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from targets.cuda.errors import CudaError, DeviceMemoryError
from targets.cuda.runtime import driver
from targets.cuda.runtime.constants import ALIGNMENT, ConstantLayout, Resident
from targets.host_checks import MOST_BYTES, memory_error

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore

_KEPT = 1 << 30
"""The most bytes of freed memory that are kept."""


def device_in_torch() -> str:
    """What PyTorch calls the device of this process."""
    return f"cuda:{driver.own_device()}"


def torch_on_device() -> Any:
    """torch, if the caller has imported it and it can use the device; else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_available() else None


def _full(reason: str) -> DeviceMemoryError:
    return DeviceMemoryError("the device's memory is full: use a smaller batch, or end other "
                             f"programs that use it ({reason.partition(chr(10))[0]})")


class Memory:
    """Bytes on the device, from torch if the caller uses torch, else from the driver."""

    def __init__(self, size: int) -> None:
        """Raises DeviceMemoryError if the device is full."""
        if size > MOST_BYTES:
            raise _full(f"{size} bytes")
        self.size = size
        torch = torch_on_device()
        self._tensor: Any = None
        if torch is not None:
            self._tensor = tensor_maker((max(size, 1),), np.dtype(np.uint8))()
            _wait_for_last_users(torch)
            self.address: int = self._tensor.data_ptr()
            self._free = None
        else:
            self.address = driver.allocate(size)
            self._free = weakref.finalize(self, driver.free, self.address)
            self._free.atexit = False  # at exit the driver frees it anyway

    def close(self) -> None:
        self._tensor = None
        if self._free is not None:
            self._free()


def _wait_for_last_users(torch: Any) -> None:
    """Wait until earlier work of torch's stream is done. That work may still use a block that torch
    hands out again, since torch expects the new owner's work to follow on the same stream. During a
    capture, blocks belong to that capture alone."""
    if not torch.cuda.is_current_stream_capturing():
        driver.synchronize(current_stream())


# ---------------------------------------------------------------------- blocks of a run
class Pool(Protocol):
    """A source of blocks. A freed block may be reused by work that follows in the stream."""

    def allocate(self, size: int, stream: int) -> int:
        """Raises DeviceMemoryError if the device is full."""
        ...

    def free(self, address: int, stream: int) -> None: ...


@dataclass(frozen=True)
class TorchPool:
    """torch's allocator, which also reuses blocks in stream order."""

    torch: Any

    def allocate(self, size: int, stream: int) -> int:
        try:
            return self.torch.cuda.caching_allocator_alloc(
                size, driver.own_device(), stream)
        except self.torch.cuda.OutOfMemoryError as error:
            raise _full(str(error)) from None

    def free(self, address: int, stream: int) -> None:
        self.torch.cuda.caching_allocator_delete(address)


class KeptBlocks:
    """Driver memory that is kept when freed, for devices without pools.

    The runs of one state execute one after another on any stream, and these blocks serve only them.
    A block can therefore be reused as soon as it is freed.
    """

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._sizes: dict[int, int] = {}
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        weakref.finalize(self, _release, self._free, driver.free).atexit = False

    def allocate(self, size: int, stream: int) -> int:
        size = _rounded(size)
        if self._free[size]:
            return self._free[size].pop()
        try:
            address = driver.allocate(size)
        except DeviceMemoryError:
            self._give_back()
            address = driver.allocate(size)
        self._sizes[address] = size
        return address

    def free(self, address: int, stream: int) -> None:
        self._free[self._sizes[address]].append(address)
        if self.kept > self._most:
            driver.synchronize(stream)
            self._give_back()

    @property
    def kept(self) -> int:
        """Bytes of blocks that are not in use."""
        return sum(size * len(blocks) for size, blocks in self._free.items())

    def _give_back(self) -> None:
        for address in (a for blocks in self._free.values() for a in blocks):
            del self._sizes[address]
        _release(self._free, driver.free)


def _rounded(size: int) -> int:
    """The size rounded up, by at most an eighth or to the alignment, so that sizes share blocks."""
    step = max(ALIGNMENT, 1 << max(0, size.bit_length() - 4))
    return -(-size // step) * step


def _release(blocks: defaultdict[int, list[int]], free: Callable[[int], None]) -> None:
    for address in (a for found in blocks.values() for a in found):
        free(address)
    blocks.clear()


def own_pool() -> Pool:
    """A pool for the runs of one state, for programs without torch."""
    return driver.MemoryPool(_KEPT) if driver.has_pools() else KeptBlocks()


@dataclass
class Heap:
    """The blocks of one run on one stream: `with Heap(...) as heap`. Frees the rest at its end."""

    pool: Pool
    stream: int
    blocks: dict[int, None] = field(default_factory=dict[int, None])

    def allocate(self, size: int, node: str) -> int:
        """The address of a new block.

        Raises, naming the node, DeviceMemoryError if the device is full, and ValueError for a size
        that no device has.
        """
        if size > MOST_BYTES:
            raise memory_error(node, size)
        try:
            address = self.pool.allocate(max(size, 1), self.stream)
        except DeviceMemoryError:
            raise DeviceMemoryError(str(memory_error(node, size))) from None
        self.blocks[address] = None
        return address

    def free(self, address: int) -> None:
        del self.blocks[address]
        self.pool.free(address, self.stream)

    def __enter__(self) -> Heap:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """After a device error, freeing fails as well, so only the first error is raised."""
        for address in list(self.blocks):
            with suppress(*([CudaError] if error is not None else [])):
                self.free(address)


# ---------------------------------------------------------------------- the caller's arrays
def is_on_device(value: Any) -> bool:
    """Whether a value is a torch tensor on the device."""
    return bool(getattr(value, "is_cuda", False))


def current_stream() -> int:
    """torch's current stream on the device."""
    return sys.modules["torch"]._C._cuda_getCurrentRawStream(driver.own_device())


def readable(value: Any) -> Any:
    """A device tensor that kernels can read: the value itself if its layout and alignment fit."""
    if not value.is_contiguous():
        return value.contiguous()
    return value if value.data_ptr() % ALIGNMENT == 0 else value.clone()


def send(value: Any, target: int, stream: int) -> None:
    """Copy an array, or a tensor on the device, to device memory."""
    if is_on_device(value):
        value = value.contiguous()
        driver.copy(target, value.data_ptr(), value.nbytes, stream)
    else:
        driver.upload(target, value.ctypes.data, value.nbytes, stream)


def fetch(
    source: int, shape: tuple[int, ...], dtype: np.dtype[Any], on_device: bool, stream: int
) -> Any:
    """A copy of device memory, as a new array or as a tensor on the device."""
    if not on_device:
        array: Array = np.empty(shape, dtype)
        driver.download(array.ctypes.data, source, array.nbytes, stream)
        return array
    tensor = tensor_maker(shape, dtype)()
    driver.copy(tensor.data_ptr(), source, tensor.nbytes, stream)
    return tensor


def tensor_maker(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], Any]:
    """A maker of uninitialized device tensors. It raises DeviceMemoryError if the device is full.
    """
    torch = sys.modules["torch"]
    kind, device = getattr(torch, dtype.name), torch.device(device_in_torch())
    strides = _strides(shape)
    make = partial(torch.empty_strided, shape, strides, dtype=kind, device=device)

    def checked() -> Any:
        try:
            return make()
        except torch.cuda.OutOfMemoryError as error:
            raise _full(str(error)) from None

    return checked


def tensor_within(owner: Any, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """A contiguous tensor so many bytes into the memory of another one, which it keeps alive."""
    storage = owner.untyped_storage()
    start = owner.data_ptr() - storage.data_ptr() + offset
    kind = getattr(sys.modules["torch"], dtype.name)
    return owner.new_empty(0, dtype=kind).set_(
        storage, start // dtype.itemsize, shape, _strides(shape))


def dtype_name(tensor: Any) -> str:
    """NumPy's name of a tensor's element type."""
    return str(tensor.dtype).removeprefix("torch.")


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(max(n, 1) for n in shape[k + 1:]) for k in range(len(shape)))


def tensor_of(array: Array, stream: int) -> Any:
    """A tensor on the device with the contents of an array."""
    tensor = tensor_maker(array.shape, array.dtype)()
    send(array, tensor.data_ptr(), stream)
    return tensor


# ---------------------------------------------------------------------- constants
def residents_of(weights: WeightStore) -> list[Resident]:
    """The weights that the caller already has on the device, in a layout that kernels can read."""
    return [Resident(v.data_ptr(), v.nbytes, partial(_read, v)) for v in weights.residents
            if _is_readable(v)]


def _is_readable(value: Any) -> bool:
    """Whether kernels can read a tensor of the caller where it lies."""
    return (str(value.device) == device_in_torch() and value.is_contiguous()
            and not value.data_ptr() % ALIGNMENT)


def layout_of(weights: WeightStore) -> ConstantLayout:
    """The layout of a program's constants, with the weights that the caller has on the device."""
    readable = {k: v.data_ptr() for k, v in weights.tensors.items() if _is_readable(v)}
    return ConstantLayout(weights, residents_of(weights), readable)


def _read(tensor: Any, size: int) -> Array:
    """The first `size` bytes of a tensor on the device."""
    return bytes_at(tensor.data_ptr(), size, current_stream())


def bytes_at(address: int, size: int, stream: int) -> Array:
    """Bytes of the device, after all earlier work on the stream."""
    array = np.empty(size, np.uint8)
    driver.download(array.ctypes.data, address, size, stream)
    driver.synchronize(stream)
    return array


def upload_constants(layout: ConstantLayout, stream: int) -> Memory:
    """Device memory that holds the constants at their offsets."""
    memory = Memory(layout.size)
    for constant, offset in layout.filled:
        value = layout.weights.tensors.get(constant.key)
        if value is None:
            value = np.ascontiguousarray(constant.array(layout.weights))
        else:
            value = value.contiguous()
            driver.synchronize(current_stream())  # on which that copy was made
        send(value, memory.address + offset, stream)
        driver.synchronize(stream)
    return memory
