"""Elements in the bytes of ONNX files, where those of 2, 4 and 6 bits are packed, the first lowest.

Source: ONNX, the comments on `raw_data` in onnx.proto; docs/docsgen/source/technical/int4.md.
"""

from __future__ import annotations

import mmap

import numpy as np
from xdsl.ir import Attribute

from dialects.strata import types as t
from dialects.strata.types import Array


def packed_size(element: Attribute, count: int) -> int:
    """The number of bytes that `count` elements occupy in a file."""
    return (count * _stored_bits(element) + 7) // 8


def packed_array(
    data: mmap.mmap | bytes, offset: int, element: Attribute, count: int
) -> Array:
    """`count` elements from `offset` on: a view of the data, or a copy with a byte for each."""
    dtype, bits = t.dtype_of(element), _stored_bits(element)
    if not count:
        return np.empty(0, dtype)
    if bits >= 8:
        return np.frombuffer(data, dtype, count, offset)
    packed = np.frombuffer(data, np.uint8, packed_size(element, count), offset)
    if bits == 6:
        return _of_six_bits(packed)[:count].view(dtype)
    places = np.arange(0, 8, bits, dtype=np.uint8)
    apart = (packed[:, None] >> places) & np.uint8((1 << bits) - 1)
    return apart.reshape(-1)[:count].view(dtype)


def _of_six_bits(packed: Array) -> Array:
    """Four codes of each three bytes, of which the last ones may be missing."""
    low, middle, high = np.pad(packed, (0, -len(packed) % 3)).reshape(-1, 3).T
    codes = (low, low >> 6 | middle << 2, middle >> 4 | high << 4, high >> 2)
    return np.stack(codes, 1).reshape(-1) & np.uint8(0x3F)


def _stored_bits(element: Attribute) -> int:
    return 8 if element == t.i1 else t.bit_width(element)
