"""Converts arrays of other libraries, without a copy if possible, and back to the same kind.

NumPy arrays, torch tensors, and whatever else has `__dlpack__`. NumPy has neither bfloat16 nor
narrow types, so such tensors are converted through their bits. Their dtypes are those of
`ml_dtypes`, which have the same names as torch's.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from dialects.strata.types import Array

Back = Callable[[Any], Any]
"""Converts an array to the caller's kind, unless it already is of that kind."""


def to_numpy(value: Any) -> Array:
    """A C-contiguous NumPy array that shares memory, or a copy if the layout differs.

    Raises TypeError for anything that is not an array.
    """
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray) and cast("Any", value).mask.any():
            raise TypeError("an array with hidden elements is not an array: fill them with "
                            "x.filled(value)")
        return contiguous(cast("Array", value))
    if _is_torch(value):
        return _from_torch(value)
    if hasattr(value, "__dlpack__"):
        return contiguous(np.from_dlpack(value))
    if isinstance(value, bool | int | float | list | tuple | np.generic):
        return np.asarray(value)
    raise TypeError(f"{type(value).__name__} is not an array: give NumPy arrays, torch tensors, "
                    "or anything with DLPack")


def contiguous(array: Array) -> Array:
    """The array itself if it is C-contiguous, otherwise a copy; a scalar stays a scalar."""
    return np.ascontiguousarray(array).reshape(array.shape)


def kind_of(value: Any) -> Back | None:
    """The conversion from NumPy to arrays of the kind of `value`; None for NumPy arrays."""
    if isinstance(value, np.ndarray):
        return None
    if _is_torch(value):
        return _torch_like(value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__array_namespace__"):
        return value.__array_namespace__().from_dlpack
    return None


def is_foreign(dtype: np.dtype[Any]) -> bool:
    """Whether it is a dtype that NumPy itself lacks and cannot store in files."""
    return dtype.isbuiltin == 2


def is_on_gpu(value: Any) -> bool:
    """Whether it is a torch tensor in the memory of a GPU."""
    return bool(getattr(value, "is_cuda", False))


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _from_torch(tensor: Any) -> Array:
    import ml_dtypes
    import torch

    if tensor.is_meta or str(tensor.layout) != "torch.strided":
        kind = "has no memory" if tensor.is_meta else f"is of layout {tensor.layout}"
        raise TypeError(f"a tensor that {kind} is not an array: give one whose elements all lie in "
                        "memory, such as x.to_dense()")
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().cpu()
    foreign = getattr(ml_dtypes, str(plain.dtype).removeprefix("torch."), None)
    if foreign is None:
        return plain.numpy()
    bits = {1: torch.uint8, 2: torch.int16}[plain.itemsize]
    return plain.view(bits).numpy().view(foreign)


def _torch_like(tensor: Any) -> Back:
    device = tensor.device
    return lambda array: to_torch(array, device)


def to_torch(array: Any, device: Any) -> Any:
    """A torch tensor on a device; on the CPU it shares the memory of a writable array."""
    torch: Any = importlib.import_module("torch")
    if _is_torch(array):
        return array
    array = np.require(array, requirements=["C", "W"])
    if not is_foreign(array.dtype):
        return torch.from_numpy(array).to(device)
    if array.dtype.name.startswith(("int", "uint")):  # of 4 bits: torch computes nothing with them
        from dialects.semantics.numerics import widen

        return torch.from_numpy(widen(array)).to(device)
    bits = torch.from_numpy(array.view({1: np.uint8, 2: np.int16}[array.itemsize]))
    return bits.view(getattr(torch, array.dtype.name)).to(device)
