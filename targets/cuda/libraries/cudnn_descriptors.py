"""Descriptors of cuDNN's graph interface through ctypes; everything in that interface is one.

A descriptor has attributes, each an array of values of one type. Once finalized, it is constant.
The numbers are those of `cudnn_graph.h`, version 9.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_bool, c_char, c_float, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any, NamedTuple

from targets.cuda.build.packages import load
from targets.cuda.errors import CudaError
from targets.cuda.libraries import cublas

_NAMES = ("libcudnn.so.9",)
_PACKAGES = ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12")
_COMPILER_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
_COMPILER_PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
_MESSAGE = 512

_BOOLEAN, _INT64, _FLOAT, _POINTER, _DESCRIPTOR = 2, 3, 4, 6, 15  # cudnnBackendAttributeType_t
_HANDLE, _DATA_TYPE, _CONVOLUTION_MODE, _HEURISTIC, _NOTE, _POINTWISE_MODE = 0, 1, 7, 8, 11, 14
_NAN, _BEHAVIOR = 10, 19
_CELLS: dict[int, Any] = {_HANDLE: c_void_p, _BOOLEAN: c_bool, _INT64: c_int64, _FLOAT: c_float,
                          _POINTER: c_void_p, _DESCRIPTOR: c_void_p}


class Attribute(NamedTuple):
    """An attribute: its number, and the type of its elements."""

    number: int
    type: int


POINTWISE, CONVOLUTION, ENGINE, CONFIGURATION, HEURISTICS, PLAN = range(6)
"""cudnnBackendDescriptorType_t."""
CONVOLUTION_FORWARD, POINTWISE_OPERATION, OPERATION_GRAPH, VARIANT_PACK, TENSOR = 10, 13, 15, 16, 17

MODE, MATH_TYPE = Attribute(0, _POINTWISE_MODE), Attribute(1, _DATA_TYPE)
NAN_PROPAGATION = Attribute(2, _NAN)
COMPUTE_TYPE, CONVOLUTION_MODE = Attribute(100, _DATA_TYPE), Attribute(101, _CONVOLUTION_MODE)
DILATIONS, STRIDES, AFTER, BEFORE, SPATIAL = (Attribute(n, _INT64) for n in range(102, 107))
HEURISTIC_MODE = Attribute(200, _HEURISTIC)
HEURISTIC_GRAPH, HEURISTIC_RESULTS = Attribute(201, _DESCRIPTOR), Attribute(202, _DESCRIPTOR)
CONFIGURATION_ENGINE = Attribute(300, _DESCRIPTOR)
PLAN_HANDLE, PLAN_CONFIGURATION = Attribute(400, _HANDLE), Attribute(401, _DESCRIPTOR)
PLAN_WORKSPACE = Attribute(402, _INT64)
ALPHA, BETA = Attribute(700, _FLOAT), Attribute(701, _FLOAT)
CONVOLUTION_OF, FILTER, DATA, RESULT = (Attribute(n, _DESCRIPTOR) for n in range(702, 706))
POINTWISE_OF, LEFT, RIGHT, SUM = (Attribute(n, _DESCRIPTOR) for n in range(750, 754))
GRAPH_HANDLE, GRAPH_OPERATIONS = Attribute(800, _HANDLE), Attribute(801, _DESCRIPTOR)
ALIGNMENT, ELEMENT = Attribute(900, _INT64), Attribute(901, _DATA_TYPE)
DIMS, STEPS = Attribute(902, _INT64), Attribute(903, _INT64)
NAME, IS_VIRTUAL = Attribute(906, _INT64), Attribute(907, _BOOLEAN)
PACK_NAMES, PACK_POINTERS = Attribute(1000, _INT64), Attribute(1001, _POINTER)
PACK_WORKSPACE = Attribute(1003, _POINTER)
ENGINE_NOTES, ENGINE_BEHAVIOR = Attribute(1303, _NOTE), Attribute(1305, _BEHAVIOR)


@cache
def library() -> ctypes.CDLL | None:
    """cuDNN; None if it is missing, or a library that it calls: without those libraries cuDNN would
    end the process."""
    needed = [cublas.library(), load(_COMPILER_NAMES, _COMPILER_PACKAGES)]
    return None if None in needed else load(_NAMES, _PACKAGES)


@cache
def version() -> int | None:
    """The version, such as 91900; None without cuDNN."""
    lib = library()
    if lib is None:
        return None
    lib.cudnnGetVersion.restype = c_size_t
    return int(lib.cudnnGetVersion())


def call(function: str, *arguments: Any) -> None:
    """Call a function of cuDNN. Raises CudaError if it fails."""
    lib = library()
    assert lib is not None, "asked for where there is one"
    status = getattr(lib, function)(*arguments)
    if status:
        text = (c_char * _MESSAGE)()
        lib.cudnnGetLastErrorString(text, c_size_t(_MESSAGE))
        raise CudaError(f"cuDNN's {function} failed with status {status}: "
                        f"{text.value.decode(errors='replace')}")


class Descriptor:
    """One descriptor, which keeps those that it refers to alive. Raises CudaError."""

    def __init__(self, kind: int) -> None:
        self.handle = c_void_p()
        self._held: list[Descriptor] = []
        call("cudnnBackendCreateDescriptor", c_int(kind), byref(self.handle))

    @staticmethod
    def of(kind: int, *attributes: tuple[Attribute, Any]) -> Descriptor:
        """A finalized descriptor; each attribute is given one value or several."""
        new = Descriptor(kind)
        for attribute, value in attributes:
            new._set(attribute, value if isinstance(value, list | tuple) else [value])
        call("cudnnBackendFinalize", new.handle)
        return new

    def _set(self, attribute: Attribute, values: Any) -> None:
        self._held += [v for v in values if isinstance(v, Descriptor)]
        plain = [v.handle.value if isinstance(v, Descriptor) else v for v in values]
        cells = (_CELLS.get(attribute.type, c_int) * len(plain))(*plain)
        call("cudnnBackendSetAttribute", self.handle, c_int(attribute.number),
             c_int(attribute.type), c_int64(len(plain)), cells)

    def numbers(self, attribute: Attribute, most: int = 1) -> list[int]:
        """The first values of an attribute."""
        cells = (_CELLS.get(attribute.type, c_int) * most)()
        return list(cells[:self._get(attribute, most, cells)])

    def descriptors(self, attribute: Attribute, kind: int, most: int) -> list[Descriptor]:
        """The first values of an attribute, which are descriptors of a kind."""
        made = [Descriptor(kind) for _ in range(most)]
        cells = (c_void_p * most)(*(d.handle.value for d in made))
        return made[:self._get(attribute, most, cells)]

    def _get(self, attribute: Attribute, most: int, cells: Any) -> int:
        count = c_int64()
        call("cudnnBackendGetAttribute", self.handle, c_int(attribute.number),
             c_int(attribute.type), c_int64(most), byref(count), cells)
        return min(count.value, most)

    def __del__(self) -> None:
        lib = library()
        if lib is not None and self.handle:
            lib.cudnnBackendDestroyDescriptor(self.handle)
