"""Arrays of dense constants: numbers, and bytes in hexadecimal."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from dialects.strata import types as t
from dialects.strata.types import TensorType


def of_bytes(data: bytes, type_: TensorType, shape: list[int]) -> Any:
    if type_.dtype == np.bool_:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        size = int(np.prod(shape))
        return (np.broadcast_to(bits[:1], size) if len(data) == 1 else bits[:size]).reshape(
            shape).astype(np.bool_)
    found = np.frombuffer(data, type_.dtype)
    return np.broadcast_to(found, shape).copy() if found.size == 1 else found.reshape(shape).copy()


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
