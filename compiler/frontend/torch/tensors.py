"""Converts PyTorch's element types and tensors to those of Strata."""

from __future__ import annotations

from functools import cache
from typing import Any

from xdsl.ir import Attribute

from compiler.frontend.builder import Builder
from compiler.frontend.faults import Fault
from compiler.frontend.torch.library import torch_module
from compiler.frontend.torch.sizes import Sizes
from compiler.frontend.values import Value, constant
from compiler.io.arrays import to_numpy
from dialects.strata import types as t
from dialects.strata.types import Array, TensorType


@cache
def _elements() -> dict[Any, Attribute]:
    torch = torch_module()
    return {
        torch.float32: t.f32, torch.float64: t.f64, torch.float16: t.f16, torch.bfloat16: t.bf16,
        torch.bool: t.i1, torch.int8: t.i8, torch.int16: t.i16, torch.int32: t.i32,
        torch.int64: t.i64, torch.uint8: t.ui8, torch.uint16: t.ui16, torch.uint32: t.ui32,
        torch.uint64: t.ui64,
        torch.float8_e4m3fn: t.f8E4M3FN, torch.float8_e4m3fnuz: t.f8E4M3FNUZ,
        torch.float8_e5m2: t.f8E5M2, torch.float8_e5m2fnuz: t.f8E5M2FNUZ,
    }


def element_of(dtype: Any) -> Attribute:
    """The element type of a torch.dtype. Raises Fault if it is not supported."""
    known = _elements()
    if dtype not in known:
        raise Fault(f"element type {str(dtype).removeprefix('torch.')} is not supported",
                    f"supported are {', '.join(str(d).removeprefix('torch.') for d in known)}")
    return known[dtype]


def type_of(tensor: Any, sizes: Sizes) -> TensorType:
    """The type of a tensor, fake or real. Raises Fault if its element type is not supported."""
    return t.tensor(element_of(tensor.dtype), sizes.shape(tensor.shape))


def constant_of(build: Builder, tensor: Any, label: str) -> Value:
    """A weight as a constant, which shares the tensor's memory if that is contiguous. Raises Fault.
    """
    return constant(build, contents_of(tensor, label), label, label)


def parameter_of(build: Builder, tensor: Any, label: str) -> Value:
    """A weight whose contents may be replaced later. Raises Fault."""
    return build.parameter(label, contents_of(tensor, label))


def contents_of(tensor: Any, label: str) -> Array:
    """A weight as an array, which shares the tensor's memory if that is contiguous. Raises Fault.
    """
    element_of(tensor.dtype)
    if tensor.is_meta or "Fake" in type(tensor).__name__:
        raise Fault(f"'{label}' has no data", "export the model with real weights")
    if str(tensor.layout) != "torch.strided":
        raise Fault(f"'{label}' has the layout {tensor.layout}; only dense tensors are supported")
    return to_numpy(tensor.resolve_conj().resolve_neg())
