"""Arrays of dense constants: numbers, and bytes in hexadecimal."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from compiler.frontend.stablehlo.parts import part_type
from dialects.strata import types as t
from dialects.strata.types import TensorType


def dtype_of(type_: TensorType) -> np.dtype[Any]:
    """The dtype of a constant, which may be complex."""
    part = part_type(type_)
    if part is type_:
        return type_.dtype
    return np.dtype(np.complex128 if part.element == t.f64 else np.complex64)


def array_of(contents: Any, type_: TensorType) -> Any:
    """A constant: of None, which has no elements, of bytes, or of nested lists of numbers. Raises
    ValueError or OverflowError for contents that are no such array."""
    shape = [size.constant or 0 for size in type_.shape]
    if contents is None:
        return np.zeros(shape, dtype_of(type_))
    if isinstance(contents, bytes):
        return of_bytes(contents, type_, shape)
    return np.broadcast_to(of_numbers(contents, type_), shape)


def of_bytes(data: bytes, type_: TensorType, shape: list[int]) -> Any:
    """The elements, or one for all of them, which is not copied: an array may be larger than the
    memory. Truth values are bits, the lowest first. Raises ValueError if the sizes differ."""
    count, dtype = math.prod(shape), dtype_of(type_)
    if dtype == np.bool_:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(np.bool_)
        is_one = len(data) == 1 and count > 8
        found = bits[:1] if is_one else bits[:count] if len(data) == -(-count // 8) else bits[:0]
    elif len(data) % dtype.itemsize:
        raise ValueError(f"{len(data)} bytes are no elements of {dtype}")
    else:
        found = np.frombuffer(data, dtype)
    if found.size == 1 and count:
        return np.broadcast_to(found.reshape([]), shape)
    if found.size != count:
        raise ValueError(f"a constant of {count} elements has {len(data)} bytes")
    return found.reshape(shape).copy()


def of_numbers(contents: Any, type_: TensorType) -> Any:
    """Numbers of a literal; floats in hexadecimal are bits."""
    if isinstance(contents, list):
        items = cast("list[Any]", contents)
        return np.array([of_numbers(item, type_) for item in items], dtype_of(type_))
    if (part := part_type(type_)) is not type_:
        parts = cast("tuple[Any, ...]", contents) if isinstance(contents, tuple) else ()
        if len(parts) != 2:
            raise ValueError("a complex number has two parts: (1.0, 2.0)")
        number = np.empty([], dtype_of(type_))
        number.real, number.imag = (of_numbers(v, part) for v in parts)
        return number
    if isinstance(contents, str) and contents.lstrip("-").startswith("0x"):
        width = f"u{type_.dtype.itemsize}"
        return np.array(int(contents, 0), width).view(type_.dtype)
    if isinstance(contents, str):
        whole = t.is_float(type_.element)
        return np.array(float(contents) if whole else int(contents)).astype(type_.dtype)
    return np.array(contents, type_.dtype)
