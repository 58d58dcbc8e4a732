"""The element types of ONNX, those of Strata, and elements in the bytes of ONNX files.

In files, elements of 2, 4 and 6 bits are packed, the first lowest.
Source: ONNX, the comments on `raw_data` in onnx.proto; docs/docsgen/source/technical/int4.md.
"""

from __future__ import annotations

import mmap
from functools import cache

import numpy as np
import onnx
from xdsl.ir import Attribute

from compiler.frontend.faults import Fault
from dialects.strata import types as t
from dialects.strata.types import Array

_BY_NAME: dict[str, Attribute] = {
    "FLOAT": t.f32, "DOUBLE": t.f64, "FLOAT16": t.f16, "BFLOAT16": t.bf16, "BOOL": t.i1,
    "INT8": t.i8, "INT16": t.i16, "INT32": t.i32, "INT64": t.i64, "UINT8": t.ui8,
    "UINT16": t.ui16, "UINT32": t.ui32, "UINT64": t.ui64, "INT2": t.i2, "UINT2": t.ui2,
    "INT4": t.i4, "UINT4": t.ui4, "FLOAT8E4M3FN": t.f8E4M3FN, "FLOAT8E4M3FNUZ": t.f8E4M3FNUZ,
    "FLOAT8E5M2": t.f8E5M2, "FLOAT8E5M2FNUZ": t.f8E5M2FNUZ, "FLOAT8E8M0": t.f8E8M0FNU,
    "FLOAT4E2M1": t.f4E2M1FN, "FLOAT6E2M3": t.f6E2M3FN, "FLOAT6E3M2": t.f6E3M2FN,
}
_ELEMENTS: dict[int, Attribute] = {  # an older onnx does not know the youngest types
    getattr(onnx.TensorProto, name): element for name, element in _BY_NAME.items()
    if hasattr(onnx.TensorProto, name)}
_DATA_TYPES = {element: data_type for data_type, element in _ELEMENTS.items()}


def element_type(data_type: int) -> Attribute:
    """The element type of an ONNX TensorProto.DataType. Raises Fault if it is not supported."""
    if data_type not in _ELEMENTS:
        raise Fault(f"element type {_data_type_name(data_type)} is not supported",
                    f"supported are {', '.join(map(_data_type_name, _ELEMENTS))}")
    return _ELEMENTS[data_type]


def data_type_of(element: Attribute) -> int:
    """The ONNX TensorProto.DataType of an element type."""
    return _DATA_TYPES[element]


def has_data_type(element: Attribute) -> bool:
    """Whether the installed onnx has an element type."""
    return element in _DATA_TYPES


@cache
def onnx_type_names() -> dict[str, str]:
    """ONNX's name of a tensor type -> Strata's name of its element: `tensor(float)` -> `f32`."""
    names = {"float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16"}
    texts = {_data_type_name(code).lower(): str(element) for code, element in _ELEMENTS.items()}
    return {f"tensor({name})": names.get(name, text) for name, text in texts.items()}


@cache
def _data_type_name(data_type: int) -> str:
    values = onnx.TensorProto.DataType.DESCRIPTOR.values_by_number
    return values[data_type].name if data_type in values else str(data_type)


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
