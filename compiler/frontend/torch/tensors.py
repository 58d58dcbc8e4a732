"""Converts PyTorch's element types and tensors to those of Strata."""

from __future__ import annotations

from typing import Any

from xdsl.ir import Attribute

from compiler.frontend.builder import Builder
from compiler.frontend.torch.contents import contents_of, element_name
from compiler.frontend.torch.sizes import Sizes
from compiler.frontend.values import Value, constant
from dialects.strata import types as t
from dialects.strata.types import TensorType


def element_of(dtype: Any) -> Attribute:
    """The element type of a torch.dtype. Raises Fault if it is not supported."""
    return getattr(t, element_name(dtype))


def type_of(tensor: Any, sizes: Sizes) -> TensorType:
    """The type of a tensor, fake or real: of complex numbers [...] that of reals [..., 2]. Raises
    Fault if its element type is not supported."""
    part = part_type_of(tensor, sizes)
    return t.tensor(part.element, (*part.shape, 2)) if tensor.dtype.is_complex else part


def part_type_of(tensor: Any, sizes: Sizes) -> TensorType:
    """The same, but of complex numbers that of each part."""
    return t.tensor(element_of(tensor.dtype), sizes.shape(tensor.shape))


def constant_of(build: Builder, tensor: Any, label: str) -> Value:
    """A weight as a constant, which shares the tensor's memory if that is contiguous. Raises Fault.
    """
    return constant(build, contents_of(tensor, label), label, label)


def parameter_of(build: Builder, tensor: Any, label: str) -> Value:
    """A weight whose contents may be replaced later. Raises Fault."""
    return build.parameter(label, contents_of(tensor, label))
