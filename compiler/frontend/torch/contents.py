"""The contents of PyTorch's tensors as arrays. Nothing here imports xDSL."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from compiler.frontend.faults import Fault
from compiler.frontend.torch.library import torch_module
from compiler.io.arrays import to_numpy

if TYPE_CHECKING:
    from dialects.strata.types import Array

ELEMENTS = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "i1",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "ui8",
    "uint16": "ui16", "uint32": "ui32", "uint64": "ui64", "float8_e4m3fn": "f8E4M3FN",
    "float8_e4m3fnuz": "f8E4M3FNUZ", "float8_e5m2": "f8E5M2", "float8_e5m2fnuz": "f8E5M2FNUZ",
    "float8_e8m0fnu": "f8E8M0FNU"}
"""PyTorch's dtypes that are supported -> our element types, by name."""
PARTS = {"complex32": "f16", "complex64": "f32", "complex128": "f64"}
"""PyTorch's dtypes of complex numbers -> the element types of their parts."""


_PAGE, _WORD = 4096, 8
"""Of each page of a tensor's memory, in bytes, these first bytes are compared."""


class Contents(Mapping[str, "Array"]):
    """The contents of tensors, by name: each is read whenever it is asked for."""

    uncounted: ClassVar[int] = 0
    """How often an optimizer has told of writes that PyTorch may not have counted."""

    def __init__(self, tensors: Mapping[str, Any], names: Collection[str]):
        self._tensors, self._names = tensors, names

    def __getitem__(self, name: str) -> Array:
        """Raises Fault for a tensor that is not supported."""
        if name not in self._names:
            raise KeyError(name)
        return contents_of(self._tensors[name], name)

    def version_of(self, name: str) -> Hashable | None:
        """What tells the contents of a tensor on the CPU from all others in this process; None for
        one with gaps in memory.

        A tensor has the same contents as long as it has the same memory and PyTorch counts no
        write. Of writes that it does not count, those of a page or more are noticed.
        """
        tensor = self._tensors[name]
        if tensor.device.type != "cpu" or str(tensor.layout) != "torch.strided" or (
                not tensor.is_contiguous() or not tensor.numel()):
            return None
        memory, storages = contents_of(tensor, name).reshape(-1).view(np.uint8), torch_module(
            "torch.multiprocessing.reductions")
        pages = memory[:len(memory) // _PAGE * _PAGE].reshape(-1, _PAGE)[:, :_WORD]
        return (storages.StorageWeakRef(tensor.untyped_storage()), tensor.data_ptr(),
                tensor._version, Contents.uncounted, tensor.dtype, tensor.shape,
                tensor.is_conj(), tensor.is_neg(), pages.tobytes(), memory[-_PAGE:].tobytes())

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def element_name(dtype: Any) -> str:
    """The name of the element type of a torch.dtype, of the parts of complex numbers. Raises Fault
    if it is not supported."""
    name = str(dtype).removeprefix("torch.")
    if name in PARTS:
        return PARTS[name]
    if name not in ELEMENTS:
        raise Fault(f"element type {name} is not supported",
                    f"supported are {', '.join((*ELEMENTS, *PARTS))}")
    return ELEMENTS[name]


def real_view(tensor: Any) -> Any:
    """A tensor as compiled code takes it: complex numbers [...] are reals [..., 2]."""
    if not tensor.dtype.is_complex:
        return tensor
    return torch_module().view_as_real(tensor.resolve_conj())


def contents_of(tensor: Any, label: str) -> Array:
    """A weight as an array, which shares the tensor's memory if that is contiguous. Complex numbers
    [...] are reals [..., 2]. Raises Fault."""
    element_name(tensor.dtype)
    if tensor.is_meta or "Fake" in type(tensor).__name__:
        raise Fault(f"'{label}' has no data", "export the model with real weights")
    if str(tensor.layout) != "torch.strided":
        raise Fault(f"'{label}' has the layout {tensor.layout}; only dense tensors are supported")
    return to_numpy(real_view(tensor).resolve_neg())
