"""Arrays of other libraries: in without a copy where their memory allows it, and the same kind out.

NumPy arrays, torch tensors, and whatever else has `__dlpack__`. NumPy has no bfloat16 of its own,
so such a tensor goes through its bits.
"""

from __future__ import annotations

import importlib
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, cast

import ml_dtypes
import numpy as np

from dialects.types import Array

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FILE_ERRORS = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)
"""What NumPy raises for a file that is not whole, or no file of its own."""
Back = Callable[[Any], Any]
"""Makes an array of the caller's kind; what is of it already stays."""


def to_numpy(value: Any) -> Array:
    """A C-contiguous NumPy array on the same memory; a copy only where that has another order.

    Raises TypeError for what is no array.
    """
    if isinstance(value, np.ndarray):
        return contiguous(cast(Array, value))
    if _is_torch(value):
        return _from_torch(value)
    if hasattr(value, "__dlpack__"):
        return np.ascontiguousarray(np.from_dlpack(value))
    if isinstance(value, bool | int | float | list | tuple | np.generic):
        return np.asarray(value)
    raise TypeError(f"{type(value).__name__} is no array: give NumPy arrays, torch tensors, or "
                    "anything with DLPack")


def contiguous(array: Array) -> Array:
    """The array itself if it is C-contiguous, else a copy; a scalar stays one."""
    return np.ascontiguousarray(array).reshape(array.shape)


def kind_of(value: Any) -> Back | None:
    """How to make an array of the kind of `value` from a NumPy array; None for NumPy's own."""
    if isinstance(value, np.ndarray):
        return None
    if _is_torch(value):
        return _torch_like(value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__array_namespace__"):
        return value.__array_namespace__().from_dlpack
    return None


def is_on_gpu(value: Any) -> bool:
    """Whether it is a torch tensor in the memory of a GPU."""
    return bool(getattr(value, "is_cuda", False))


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _from_torch(tensor: Any) -> Array:
    import torch

    plain = tensor.detach().contiguous().cpu()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view(BFLOAT16)
    return plain.numpy()


def _torch_like(tensor: Any) -> Back:
    torch: Any = importlib.import_module("torch")
    device = tensor.device

    def back(array: Any) -> Any:
        if _is_torch(array):
            return array
        array = np.require(array, requirements=["C", "W"])
        if array.dtype == BFLOAT16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)
        return torch.from_numpy(array).to(device)

    return back
