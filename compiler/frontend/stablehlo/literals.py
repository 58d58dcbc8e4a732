"""Arrays of dense constants: numbers, and bytes in hexadecimal."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from dialects.strata import types as t
from dialects.strata.types import TensorType


def array_of(contents: Any, type_: TensorType) -> Any:
    """A constant: of None, which has no elements, of bytes, or of nested lists of numbers. Raises
    ValueError or OverflowError for contents that are no such array."""
    shape = [size.constant or 0 for size in type_.shape]
    if contents is None:
        return np.zeros(shape, type_.dtype)
    if isinstance(contents, bytes):
        return of_bytes(contents, type_, shape)
    return np.broadcast_to(of_numbers(contents, type_), shape)


def of_bytes(data: bytes, type_: TensorType, shape: list[int]) -> Any:
    """The elements, or one for all of them, which is not copied: an array may be larger than the
    memory. Truth values are bits, the lowest first. Raises ValueError if the sizes differ."""
    count = math.prod(shape)
    if type_.dtype == np.bool_:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(np.bool_)
        is_one = len(data) == 1 and count > 8
        found = bits[:1] if is_one else bits[:count] if len(data) == -(-count // 8) else bits[:0]
    elif len(data) % type_.dtype.itemsize:
        raise ValueError(f"{len(data)} bytes are no elements of {type_.dtype}")
    else:
        found = np.frombuffer(data, type_.dtype)
    if found.size == 1 and count:
        return np.broadcast_to(found.reshape([]), shape)
    if found.size != count:
        raise ValueError(f"a constant of {count} elements has {len(data)} bytes")
    return found.reshape(shape).copy()


def of_numbers(contents: Any, type_: TensorType) -> Any:
    """Numbers of a literal; floats in hexadecimal are bits."""
    if isinstance(contents, list):
        items = cast("list[Any]", contents)
        return np.array([of_numbers(item, type_) for item in items], type_.dtype)
    if isinstance(contents, str) and contents.lstrip("-").startswith("0x"):
        width = f"u{type_.dtype.itemsize}"
        return np.array(int(contents, 0), width).view(type_.dtype)
    if isinstance(contents, str):
        whole = t.is_float(type_.element)
        return np.array(float(contents) if whole else int(contents)).astype(type_.dtype)
    return np.array(contents, type_.dtype)
