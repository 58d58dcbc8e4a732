"""The OpenCL device of this machine, through ctypes: no package but the system's own library.

Arrays are used where they lie (`CL_MEM_USE_HOST_PTR`): a device that shares the host's memory reads
and writes it there, and any other copies what a launch needs. A call returns when its results are
in the arrays.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache, cached_property

from dialects.strata.types import Array
from targets.interface import TargetError

_DEVICE_NAME, _DRIVER_VERSION, _COMPUTE_UNITS, _FP64 = 0x102B, 0x102D, 0x1002, 0x1032
_KINDS = (1 << 2, 1 << 3, 0xFFFFFFFF)
"""GPUs, then accelerators, then any device."""
_READ_ONLY, _USE_HOST_PTR = 1 << 2, 1 << 3
_MAP_READ = 1
_BUILD_LOG = 0x1183
_BUILD_FAILED = -11
_POINTERS = ("clCreateContext", "clCreateCommandQueue", "clCreateProgramWithSource",
             "clCreateKernel", "clCreateBuffer", "clEnqueueMapBuffer")
"""The functions that return a pointer, and their error through the last argument."""


@cache
def library() -> ctypes.CDLL:
    """The loader of OpenCL. Raises TargetError if there is none."""
    name = ctypes.util.find_library("OpenCL") or "libOpenCL.so.1"
    try:
        found = ctypes.CDLL(name)
    except OSError:
        raise TargetError("there is no OpenCL here: install its loader (ocl-icd-libopencl1) and a "
                          "driver, such as pocl-opencl-icd for processors") from None
    for function in _POINTERS:
        getattr(found, function).restype = c_void_p
    return found


def _check(status: int, name: str) -> None:
    if status != 0:
        raise TargetError(f"{name} failed: OpenCL's error {status}")


def _call(name: str, *arguments: object) -> None:
    _check(getattr(library(), name)(*arguments), name)


def _made(name: str, *arguments: object) -> c_void_p:
    """What a function returns, as a pointer."""
    status = c_int()
    found = getattr(library(), name)(*arguments, byref(status))
    _check(status.value, name)
    return c_void_p(found)


@cache
def find_device() -> Device:
    """The first GPU, else the first accelerator, else the first device. Raises TargetError."""
    count, platforms = c_uint(), (c_void_p * 16)()
    if library().clGetPlatformIDs(16, platforms, byref(count)) != 0 or not count.value:
        raise TargetError("OpenCL has no driver here: install one, such as pocl-opencl-icd")
    for kind in _KINDS:
        for platform in platforms[: min(count.value, 16)]:
            device = c_void_p()
            if library().clGetDeviceIDs(c_void_p(platform), c_uint64(kind), 1, byref(device),
                                        None) == 0:
                return Device(device)
    raise TargetError("OpenCL has no device here")


class Device:
    """A device with its context and a queue, which calls of several threads share."""

    def __init__(self, handle: c_void_p) -> None:
        self.handle = handle
        self.context = _made("clCreateContext", None, 1, byref(handle), None, None)
        self.queue = _made("clCreateCommandQueue", self.context, handle, c_uint64(0))

    def _text(self, fact: int) -> str:
        text = ctypes.create_string_buffer(256)
        _call("clGetDeviceInfo", self.handle, fact, c_size_t(256), text, None)
        return text.value.decode(errors="replace")

    @property
    def name(self) -> str:
        return f"{self._text(_DEVICE_NAME).strip()}, driver {self._text(_DRIVER_VERSION)}"

    def _number(self, fact: int) -> int:
        number = c_uint64()
        _call("clGetDeviceInfo", self.handle, fact, c_size_t(8), byref(number), None)
        return number.value

    @cached_property
    def compute_units(self) -> int:
        return self._number(_COMPUTE_UNITS) & 0xFFFFFFFF

    @cached_property
    def has_f64(self) -> bool:
        return self._number(_FP64) != 0

    def build(self, source: str) -> Program:
        """Compile OpenCL C. Raises TargetError with the compiler's messages."""
        text = c_char_p(source.encode())
        program = _made("clCreateProgramWithSource", self.context, 1, byref(text), None)
        status = library().clBuildProgram(program, 1, byref(self.handle), b"", None, None)
        if status == _BUILD_FAILED:
            log = ctypes.create_string_buffer(1 << 16)
            library().clGetProgramBuildInfo(
                program, self.handle, _BUILD_LOG, c_size_t(len(log)), log, None)
            raise TargetError(f"OpenCL's compiler refused a kernel:\n{log.value.decode()}")
        _check(status, "clBuildProgram")
        return Program(self, program)


class Program:
    """Compiled kernels. Launches of several threads do not disturb each other."""

    def __init__(self, device: Device, handle: c_void_p) -> None:
        self.device, self.handle = device, handle

    def __del__(self) -> None:
        library().clReleaseProgram(self.handle)

    def launch(
        self, name: str, arrays: Sequence[Array], sizes: Sequence[int], grid: Sequence[int]
    ) -> None:
        """Run a kernel: a work-item for each point of a grid of one to three dims, the last of
        which is that of neighbours. Takes C-contiguous arrays, and fills them."""
        if math.prod(grid) == 0:
            return
        kernel = _made("clCreateKernel", self.handle, name.encode())
        queue = self.device.queue
        try:
            with self._buffers(arrays) as buffers:
                for number, buffer in enumerate(buffers):
                    _call("clSetKernelArg", kernel, number, c_size_t(8), byref(buffer))
                for number, size in enumerate(sizes, len(buffers)):
                    _call("clSetKernelArg", kernel, number, c_size_t(8), byref(c_int64(size)))
                extents = (c_size_t * len(grid))(*reversed(grid))
                _call("clEnqueueNDRangeKernel", queue, kernel, len(grid), None, extents, None, 0,
                      None, None)
        finally:
            library().clReleaseKernel(kernel)

    @contextmanager
    def _buffers(self, arrays: Sequence[Array]) -> Generator[list[c_void_p]]:
        """The memory of arrays for a launch. Those at one address are one buffer."""
        spans: dict[int, Array] = {}
        for array in arrays:
            known = spans.get(array.ctypes.data)
            if array.nbytes and (known is None or known.nbytes < array.nbytes):
                spans[array.ctypes.data] = array
        made: dict[int, c_void_p] = {}
        try:
            for address, array in spans.items():
                flags = _USE_HOST_PTR | (0 if array.flags.writeable else _READ_ONLY)
                made[address] = _made("clCreateBuffer", self.device.context, c_uint64(flags),
                                      c_size_t(array.nbytes), c_void_p(address))
            yield [made[a.ctypes.data] if a.nbytes else c_void_p() for a in arrays]
            for address, array in spans.items():
                if array.flags.writeable:
                    self._fetch(made[address], array.nbytes)
        finally:
            library().clFinish(self.device.queue)
            for buffer in made.values():
                library().clReleaseMemObject(buffer)

    def _fetch(self, buffer: c_void_p, size: int) -> None:
        """Wait until an array holds what the device wrote."""
        queue = self.device.queue
        mapped = _made("clEnqueueMapBuffer", queue, buffer, c_uint(1), c_uint64(_MAP_READ),
                       c_size_t(0), c_size_t(size), 0, None, None)
        _call("clEnqueueUnmapMemObject", queue, buffer, mapped, 0, None, None)
