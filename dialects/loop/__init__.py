"""The operations of the `loop` level: nests over tensors, and kernels that group them.

A nest specifies what is computed at each point of an iteration domain. The order, the tiles and
the number of threads remain open until a schedule determines them. Index expressions (see
`dialects.symbolic.expr`) range over the nest's axes, size symbols, and `in0`, `in1` ...: the value
of an earlier integer input at this point (a gather).
"""

from dialects.loop.axes import AxesAttr, Axis, extents_of, fresh_axes
from dialects.loop.body_ops import IndexOp, YieldOp
from dialects.loop.kernel import CallOp, EmptyOp, KernelOp, ViewOp, VisibleOp
from dialects.loop.nest import COMBINERS, NestOp, scalar_type

__all__ = [
    "COMBINERS", "AxesAttr", "Axis", "CallOp", "EmptyOp", "IndexOp", "KernelOp",
    "NestOp", "ViewOp", "VisibleOp", "YieldOp", "extents_of", "fresh_axes",
    "scalar_type",
]
