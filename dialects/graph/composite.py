"""Helpers for the definitions of composite operations, such as widening to f32."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from dialects.graph.base import Build
from dialects.graph.constant import ConstantOp
from dialects.graph.shape import ReshapeOp, SliceOp
from dialects.graph.unary import CastOp
from dialects.strata.types import bf16, f16, f32, tensor_type
from dialects.symbolic.expr import Size


def wide(build: Build, value: SSAValue) -> SSAValue:
    """f16 and bf16 cast to f32; anything else unchanged."""
    return cast(build, value, wide_type(tensor_type(value).element))


def wide_type(element: Attribute) -> Attribute:
    """f32 for f16 and bf16; any other element type unchanged."""
    return f32 if element in (f16, bf16) else element


def cast(build: Build, value: SSAValue, element: Attribute) -> SSAValue:
    """The value cast to an element type, unless it already has it."""
    return value if tensor_type(value).element == element else build(CastOp, value, to=element)


def scalar(build: Build, value: float, like: SSAValue) -> SSAValue:
    """A constant of no dims, in the element type of `like`."""
    return build.insert(ConstantOp.scalar(value, tensor_type(like).element)).results[0]


def reshaped(build: Build, value: SSAValue, shape: Sequence[Size]) -> SSAValue:
    return build(ReshapeOp, value, shape=list(shape))


def part(build: Build, value: SSAValue, axis: int, start: int, size: int) -> SSAValue:
    """A slice of `size` entries along one axis, starting at `start`."""
    sizes: list[Size] = list(tensor_type(value).shape)
    rank = len(sizes)
    sizes[axis] = size
    starts = [start if dim == axis else 0 for dim in range(rank)]
    return build(SliceOp, value, starts=starts, sizes=sizes, steps=[1] * rank)
