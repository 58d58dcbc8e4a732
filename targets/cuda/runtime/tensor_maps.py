"""Tensor map descriptors: matrices described to the hardware that copies whole tiles (TMA).

The driver encodes a matrix's address, its sizes and the box that one copy moves, in 128 bytes among
the parameters. Kernels read all that from the map. Sizes and strides follow it as parameters of
their own only because Triton passes them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from targets.cuda.runtime.driver import call

_BYTES, _ALIGNED = 128, 64
HOST_TYPES = {8: 10, 9: 8, 10: 9}
"""CUtensorMapDataType by the element types of compiled code, where the two differ."""
_LINE = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
_PLAIN, _ZEROS = 0, 0  # CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE


@dataclass(frozen=True)
class Descriptor:
    """What compiled code expects of a tensor map: its position among the kernel's parameters, and
    the box of one copy. `element`, `swizzle`: the hardware's numbers for them."""

    place: int
    box: tuple[int, ...]
    element: int
    swizzle: int

    @staticmethod
    def of(place: int, facts: dict[str, Any]) -> Descriptor:
        """Made from Triton's metadata of a kernel."""
        return Descriptor(place, tuple(facts["block_size"]), facts["elem_type"], facts["swizzle"])


class TensorMap:
    """The map of a row-major matrix, whose address can be changed."""

    def __init__(
        self, address: int, shape: Sequence[int], width: int, descriptor: Descriptor
    ) -> None:
        self._memory = ctypes.create_string_buffer(_BYTES + _ALIGNED)
        start = ctypes.addressof(self._memory)
        self._map = c_void_p(start + -start % _ALIGNED)
        self._address = address
        rank, kind = len(shape), HOST_TYPES.get(descriptor.element, descriptor.element)
        pitches = [width * p for p in _strides(shape)[:-1]]
        call("cuTensorMapEncodeTiled", self._map, c_int(kind), c_uint32(rank), c_void_p(address),
             (c_uint64 * rank)(*reversed(shape)), (c_uint64 * rank)(*reversed(pitches)),
             (c_uint32 * rank)(*reversed(descriptor.box)), (c_uint32 * rank)(*[1] * rank),
             c_int(_PLAIN), c_int(descriptor.swizzle), c_int(_LINE), c_int(_ZEROS))
        self._behind = [*map(c_int32, shape), *map(c_int64, _strides(shape))]

    @property
    def value(self) -> int:
        """The matrix's address."""
        return self._address

    @value.setter
    def value(self, address: int) -> None:
        call("cuTensorMapReplaceAddress", self._map, c_void_p(address))
        self._address = address

    @property
    def parameters(self) -> list[int]:
        """The addresses of the map, and of the parameters that follow it."""
        assert self._map.value is not None
        return [self._map.value, *map(ctypes.addressof, self._behind)]


def _strides(shape: Sequence[int]) -> list[int]:
    """The stride of each dim, in elements."""
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return strides
