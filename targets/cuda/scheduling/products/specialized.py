"""Which products may use warp specialization (`emit/specialized`), and with which layouts.

The input is a contraction as the schedule rules see it. Its factors must be matrices whose tiles
the hardware can copy (TMA), of floats that tensor cores multiply from shared memory. Its epilogue
must be elementwise. Only Hopper GPUs have both such copies and such products.
"""

from __future__ import annotations

from xdsl.ir import BlockArgument

from dialects.loop import KernelOp, NestOp
from dialects.strata import types as t
from dialects.strata.types import TensorType, shape_of
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.rewrites.loop.nests import Read, gathered_inputs, reads_of
from targets.cuda.emit.scalar import NATIVE_FLOATS
from targets.cuda.emit.specialized.copied import PITCH, RANK
from targets.cuda.machine import machine_of
from targets.cuda.scheduling.roles import Roles
from targets.cuda.scheduling.tiles import width_of
from targets.options import TargetOptions

_HALVES = (t.f16, t.bf16)


def may_specialize(
    kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions
) -> bool:
    """Whether a kernel with a contraction may have a producer warp."""
    others = [n for n in kernel.nests if n is not nest]
    elementwise = not any(
        n.is_reduction or any(map(gathered_inputs, n.input_maps)) for n in others)
    own = all(isinstance(v, BlockArgument) and len(list(v.uses)) == 1 for v in nest.inputs)
    return elementwise and own and are_copied(nest, roles, options)


def are_copied(nest: NestOp, roles: Roles, options: TargetOptions) -> bool:
    """Whether TMA can copy tiles of both factors, and tensor cores multiply them in place."""
    if options.interpret or not machine_of(options.features).has_wgmma or roles.batch:
        return False
    if {len(x) for x in (roles.rows, roles.columns, roles.reduce)} != {1}:
        return False
    [summed] = roles.reduce
    extents = {a.name: a.extent for a in nest.axes}
    elements = {v.type.element for v in nest.inputs if isinstance(v.type, TensorType)}
    if extents[summed].constant is None or len(elements) != 1:
        return False
    [element] = elements
    return all(_is_matrix(read, summed, extents[summed], element in NATIVE_FLOATS)
               for read in reads_of(nest)) and element in (*_HALVES, *NATIVE_FLOATS)


def _is_matrix(read: Read, summed: Symbol, extent: Expr, along: bool) -> bool:
    """Whether two plain axes index a matrix, or one of a stack of them, its rows start at addresses
    that copies allow, and the whole of it is summed, since a copy would include what follows. What
    is behind its end is 0 in copies. `along`: whether the rows must run along the summed axis."""
    shape = shape_of(read.value)
    dims = [d for d, place in enumerate(read.map) if place.constant is None]
    axes = [read.map[d].as_symbol for d in dims]
    if len(axes) != 2 or len(set(axes)) != 2 or None in axes or dims[1] != len(shape) - 1 or (
            len(shape) > RANK):
        return False
    pitch, end = shape[-1].constant, dict(zip(axes, [shape[d] for d in dims], strict=True))[summed]
    return (pitch is not None and pitch * width_of(read.value) % PITCH == 0
            and (end == extent or (read.pad == 0 and _is_below(end, extent)))
            and (not along or axes[1] == summed))


def _is_below(size: Expr, extent: Expr) -> bool:
    return size.constant is not None and extent.constant is not None and (
        size.constant < extent.constant)
