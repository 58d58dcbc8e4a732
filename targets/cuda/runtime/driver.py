"""The CUDA driver's library through ctypes: the few functions that launching needs.

Every call is checked. Errors that the user can fix are raised as CudaError with a hint.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from itertools import permutations
from typing import Any, Protocol

from targets.cuda.errors import CudaError, DeviceMemoryError

_LIBRARY = "libcuda.so.1"
_HINTS = {
    2: "the device's memory is full: use a smaller batch, or end other programs that use it",
    3: "the driver could not start",
    35: "the NVIDIA driver is too old for this CUDA version: update it",
    100: "this machine has no NVIDIA GPU: `--interpret` runs the kernels on the CPU, `lower` "
         "prints them",
    209: "the code was compiled for another architecture: choose this device's with `features`",
    218: "the code was compiled for another architecture: choose this device's with `features`",
    700: "a kernel accessed memory outside of its buffers",
    701: "a kernel needs more registers or shared memory than the device has: choose smaller "
         "tiles or fewer warps in the schedule",
    719: "a kernel failed on the device",
}
_OUT_OF_MEMORY = 2
_MULTIPROCESSORS, _CACHE, _MAJOR, _MINOR, _SHARED_OPTIN, _POOLS = (  # CUdevice_attribute
    16, 38, 75, 76, 97, 115)
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_DEFAULT_SHARED = 48 * 1024
_PINNED, _ON_DEVICE = 1, 1  # CUmemAllocationType, CUmemLocationType
_RELEASE_THRESHOLD = 4  # CUmemPool_attribute
_NON_BLOCKING = 1
_WITHOUT_TIMING = 2
_NOT_READY = 600


_SIGNATURES = {
    "cuCtxSetCurrent": [c_void_p],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuGraphLaunch": [c_void_p, c_void_p],
    "cuStreamWaitEvent": [c_void_p, c_void_p, c_uint],
}
"""Argument types of the functions used by every call of a model: with them ctypes converts integers
fastest."""


@cache
def library() -> ctypes.CDLL:
    """The initialized driver. Raises CudaError if there is no driver or no device."""
    try:
        lib = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise CudaError(f"no NVIDIA driver ({_LIBRARY}): `--interpret` runs the kernels on the "
                        "CPU, `lower` prints them") from None
    _check(lib, lib.cuInit(0), "cuInit")
    for name, types in _SIGNATURES.items():
        getattr(lib, name).argtypes = types
    return lib


def _check(lib: ctypes.CDLL, status: int, function: str) -> None:
    if status:
        text = c_char_p()
        lib.cuGetErrorString(status, byref(text))
        described = (text.value or b"unknown error").decode()
        hint = _HINTS.get(status)
        kind = DeviceMemoryError if status == _OUT_OF_MEMORY else CudaError
        raise kind(f"CUDA's {function} failed: {described} (error {status})"
                   + (f"; {hint}" if hint else ""))


def check(status: int, function: str) -> None:
    """Raises CudaError for a status of a failed driver function."""
    if status:
        _check(library(), status, function)


def call(function: str, *arguments: Any) -> None:
    """Call a driver function. Raises CudaError if it fails."""
    check(getattr(library(), function)(*arguments), function)


def free_with(owner: object, function: str, handle: Any) -> weakref.finalize[Any, Any]:
    """Free a driver handle when its owner is collected, or earlier by calling the returned object.

    Nothing is freed when the process ends, because the driver may be gone by then.
    """
    freed = weakref.finalize(owner, _free, function, handle)
    freed.atexit = False
    return freed


def _free(function: str, handle: Any) -> None:
    with suppress(CudaError):  # nothing could be done about it
        use_device()
        call(function, handle)


# ---------------------------------------------------------------------- devices
def is_available() -> bool:
    """Whether this machine has a driver and a device."""
    try:
        count = c_int()
        call("cuDeviceGetCount", byref(count))
    except CudaError:
        return False
    return count.value > 0


def reaching_devices() -> int:
    """How many devices this process has, if each can access the memory of all others; else 1."""
    count, reaches = c_int(), c_int()
    call("cuDeviceGetCount", byref(count))
    for one, other in permutations(range(count.value), 2):
        call("cuDeviceCanAccessPeer", byref(reaches), one, other)
        if not reaches.value:
            return 1
    return count.value


@cache
def own_device() -> int:
    """The device of this process: PyTorch's current one when this is first asked, else the first.

    Ranks of a distributed program choose theirs with torch.cuda.set_device.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.current_device())


def attribute(device: int | None, number: int) -> int:
    value = c_int()
    call("cuDeviceGetAttribute", byref(value), number, _own(device))
    return value.value


def _own(device: int | None) -> int:
    return own_device() if device is None else device


def version() -> int:
    """The CUDA version that the driver supports, such as 12040 for 12.4."""
    found = c_int()
    call("cuDriverGetVersion", byref(found))
    return found.value


def capability(device: int | None = None) -> str:
    """`sm_90`."""
    return f"sm_{attribute(device, _MAJOR)}{attribute(device, _MINOR)}"


def multiprocessors(device: int | None = None) -> int:
    return attribute(device, _MULTIPROCESSORS)


def shared_memory(device: int | None = None) -> int:
    """The most bytes of shared memory that one program may use."""
    return attribute(device, _SHARED_OPTIN)


def cache_size(device: int | None = None) -> int:
    """Bytes of the L2 cache, which all multiprocessors share."""
    return attribute(device, _CACHE)


def device_name(device: int | None = None) -> str:
    text = ctypes.create_string_buffer(256)
    call("cuDeviceGetName", text, 256, _own(device))
    return text.value.decode()


@cache
def primary_context(device: int | None = None) -> c_void_p:
    """The device's primary context, which the CUDA runtime and torch use; retained for good."""
    context = c_void_p()
    call("cuDevicePrimaryCtxRetain", byref(context), _own(device))
    return context


def use_device(device: int | None = None) -> None:
    """Make the device's primary context current in this thread."""
    set_current, context = _context_setter(device)
    check(set_current(context), "cuCtxSetCurrent")


@cache
def _context_setter(device: int | None) -> tuple[Callable[[Any], int], c_void_p]:
    return library().cuCtxSetCurrent, primary_context(device)


# ---------------------------------------------------------------------- memory and streams
def allocate(size: int) -> int:
    """The address of new device memory. Raises CudaError if the device is full."""
    address = c_uint64()
    call("cuMemAlloc_v2", byref(address), c_size_t(max(size, 1)))
    return address.value


def free(address: int) -> None:
    call("cuMemFree_v2", c_uint64(address))


def has_pools(device: int | None = None) -> bool:
    """Whether the device and its driver support `MemoryPool`."""
    return bool(attribute(device, _POOLS))


class _PoolProperties(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = [("kind", c_int), ("handles", c_int), ("place", c_int), ("device", c_int),
                ("security", c_void_p), ("reserved", c_uint64 * 8)]


class MemoryPool:
    """Memory that is allocated and freed in stream order.

    Freed memory is returned to the device only while the pool holds more than `kept` bytes.
    """

    def __init__(self, kept: int, device: int | None = None) -> None:
        self.handle = c_void_p()
        properties = _PoolProperties(kind=_PINNED, place=_ON_DEVICE, device=_own(device))
        call("cuMemPoolCreate", byref(self.handle), byref(properties))
        threshold = c_uint64(kept)
        call("cuMemPoolSetAttribute", self.handle, c_int(_RELEASE_THRESHOLD), byref(threshold))
        free_with(self, "cuMemPoolDestroy", self.handle)

    def allocate(self, size: int, stream: int) -> int:
        """Raises DeviceMemoryError if the device is full."""
        address = c_uint64()
        call("cuMemAllocFromPoolAsync", byref(address), c_size_t(max(size, 1)), self.handle,
             c_void_p(stream))
        return address.value

    def free(self, address: int, stream: int) -> None:
        call("cuMemFreeAsync", c_uint64(address), c_void_p(stream))


def upload(target: int, source: int, size: int, stream: int) -> None:
    """Copy host memory to device memory."""
    if size:
        call("cuMemcpyHtoDAsync_v2", c_uint64(target), c_void_p(source), c_size_t(size),
             c_void_p(stream))


def download(target: int, source: int, size: int, stream: int) -> None:
    """Copy device memory to host memory."""
    if size:
        call("cuMemcpyDtoHAsync_v2", c_void_p(target), c_uint64(source), c_size_t(size),
             c_void_p(stream))


def copy(target: int, source: int, size: int, stream: int) -> None:
    """Copy device memory to device memory."""
    if size:
        call("cuMemcpyDtoDAsync_v2", c_uint64(target), c_uint64(source), c_size_t(size),
             c_void_p(stream))


def make_stream(owner: object | None = None, urgent: bool = False) -> int:
    """A new stream. With an owner, the stream is destroyed when its owner is collected. `urgent`:
    with the highest priority that there is."""
    stream = c_void_p()
    if urgent:
        lowest, highest = c_int(), c_int()
        call("cuCtxGetStreamPriorityRange", byref(lowest), byref(highest))
        call("cuStreamCreateWithPriority", byref(stream), c_uint(_NON_BLOCKING), highest)
    else:
        call("cuStreamCreate", byref(stream), c_uint(_NON_BLOCKING))
    if owner is not None:
        free_with(owner, "cuStreamDestroy_v2", stream)
    return stream.value or 0


def synchronize(stream: int) -> None:
    call("cuStreamSynchronize", c_void_p(stream))


class Event:
    """A CUDA event: a point in a stream's work."""

    def __init__(self, timing: bool = False) -> None:
        self.handle = c_void_p()
        call("cuEventCreate", byref(self.handle), c_uint(0 if timing else _WITHOUT_TIMING))
        self._record = library().cuEventRecord
        free_with(self, "cuEventDestroy_v2", self.handle)

    def record(self, stream: int) -> None:
        check(self._record(self.handle, stream), "cuEventRecord")

    def wait(self, stream: int) -> None:
        """Make later work of the stream wait for the event."""
        call("cuStreamWaitEvent", stream, self.handle, 0)

    def is_done(self) -> bool:
        """Whether all work before the event is done; for any thread."""
        use_device()
        status = library().cuEventQuery(self.handle)
        if status != _NOT_READY:
            check(status, "cuEventQuery")
        return status != _NOT_READY

    def milliseconds_since(self, earlier: Event) -> float:
        """Time between two recorded events; waits for this one."""
        call("cuEventSynchronize", self.handle)
        elapsed = c_float()
        call("cuEventElapsedTime", byref(elapsed), earlier.handle, self.handle)
        return elapsed.value


# ---------------------------------------------------------------------- kernels
class Function(c_void_p):
    """A kernel. Its module stays loaded as long as this object or a graph that uses it exists."""


def load_function(cubin: bytes, entry: str, shared: int) -> Function:
    """A kernel of a cubin, allowed to use `shared` bytes of dynamic shared memory."""
    module, function = c_void_p(), Function()
    call("cuModuleLoadData", byref(module), c_char_p(cubin))
    free_with(function, "cuModuleUnload", module)
    call("cuModuleGetFunction", byref(function), module, c_char_p(entry.encode()))
    if shared > _DEFAULT_SHARED:
        call("cuFuncSetAttribute", function, c_int(_DYNAMIC_SHARED), c_int(shared))
    return function


def function_attribute(function: Function, number: int) -> int:
    """A fact of a kernel's code, by its number among CUfunction_attribute."""
    value = c_int()
    call("cuFuncGetAttribute", byref(value), c_int(number), function)
    return value.value


class Cell(Protocol):
    """A launch parameter: its value, and the addresses from which the launch reads it."""

    value: int

    @property
    def parameters(self) -> list[int]: ...


def pack_parameters(
    values: Sequence[int | Cell], widths: Sequence[int]
) -> tuple[Any, list[Any]]:
    """The array of parameter addresses for a launch, and the cells it points to. The cells must
    live as long as the array.

    Parameters beyond the values are Triton's pointers to scratch memory. Our kernels do not use
    scratch memory, so these are null.
    """
    cells: list[Any] = []
    addresses: list[int] = []
    for value in values:
        if isinstance(value, int):
            cells.append((c_uint64 if widths[len(addresses)] == 8 else c_uint)(value))
            addresses.append(ctypes.addressof(cells[-1]))
        else:
            cells.append(value)
            addresses += value.parameters
    scratch = [c_uint64(0) for _ in widths[len(addresses):]]
    cells += scratch
    addresses += map(ctypes.addressof, scratch)
    return (c_void_p * len(addresses))(*addresses), cells


def launch(
    function: c_void_p, blocks: tuple[int, int, int], threads: int, shared: int, parameters: Any,
    stream: int,
) -> None:
    """Launch a grid of programs."""
    call("cuLaunchKernel", function, *map(c_uint, blocks), c_uint(threads),
         c_uint(1), c_uint(1), c_uint(shared), c_void_p(stream), parameters, None)
