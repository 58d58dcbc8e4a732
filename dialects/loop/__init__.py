"""The `loop` dialect: nests over tensors, and the kernels that group them."""

from dialects.loop.axes import AxesAttr, Axis, extents_of
from dialects.loop.ops import (
    COMBINERS,
    LOOP_OPS,
    CallOp,
    EmptyOp,
    IndexOp,
    KernelOp,
    Loop,
    NestOp,
    ViewOp,
    YieldOp,
    scalar_type,
)

__all__ = [
    "COMBINERS", "LOOP_OPS", "AxesAttr", "Axis", "CallOp", "EmptyOp", "IndexOp", "KernelOp",
    "Loop", "NestOp", "ViewOp", "YieldOp", "extents_of", "scalar_type",
]
