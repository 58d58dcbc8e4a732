"""Which attention kernels may use warp specialization (`emit/specialized/attention.py`).

The input is a kernel with an online softmax as the schedule rules see it. Its factors must be
16-bit floats in a layout whose tiles the hardware can copy (TMA), and the kernel must read nothing
else. Only Hopper GPUs have both such copies and products of copied tiles.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.ir import SSAValue

from dialects.loop import KernelOp, NestOp
from dialects.strata import types as t
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from targets.cuda.emit.specialized.copied import PITCH, RANK
from targets.cuda.machine import machine_of
from targets.cuda.scheduling.products.rules import MIN_DOT
from targets.cuda.scheduling.tiles import width_of
from targets.options import TargetOptions


def may_specialize(
    kernel: KernelOp, products: Sequence[NestOp], rows: Symbol, walked: Symbol,
    held: Collection[Symbol], options: TargetOptions,
) -> bool:
    """Whether a kernel's products can read their factors from shared memory. `rows`: the axis of
    its blocks; `walked`: the axis of the keys; `held`: the axes that a program holds whole."""
    if options.interpret or not machine_of(options.features).has_wgmma:
        return False
    read = [(v, map_) for n in products for v, map_ in zip(n.inputs, n.input_maps, strict=True)
            if v in kernel.body.block.args]
    alone = len(read) == len(kernel.body.block.args) == 3 and all(
        len(list(v.uses)) == 1 for v, _ in read)
    elements = {v.type.element for v, _ in read if isinstance(v.type, TensorType)}
    whole = all(_is_whole(kernel.axes[a].constant) for a in held)
    return alone and whole and elements in ({t.f16}, {t.bf16}) and all(
        _is_copied(v, map_, {rows, walked} & _axes(map_), held, kernel) for v, map_ in read)


def _is_whole(size: int | None) -> bool:
    """Whether a tile covers an axis exactly, without another head's numbers after it."""
    return size is not None and size >= MIN_DOT and size & (size - 1) == 0


def _axes(map_: Sequence[Expr]) -> set[Symbol]:
    return {s for e in map_ for s in e.symbols}


def _is_copied(
    value: SSAValue, map_: Sequence[Expr], along: set[Symbol], held: Collection[Symbol],
    kernel: KernelOp,
) -> bool:
    """Whether one dim of a value is the axis of the tile's rows, and its last dim runs along a held
    axis."""
    assert isinstance(value.type, TensorType)
    kept = _axes(map_) & set(held)
    pitch = value.type.shape[-1].constant
    if len(along) != 1 or len(kept) != 1 or len(map_) > RANK or pitch is None or (
            pitch * width_of(value) % PITCH):
        return False
    [axis], [last] = along, kept
    tiled = {axis, last}
    inside = not (map_[-1] - Expr.symbol(last)).symbols & tiled
    dims = [k for k, e in enumerate(map_[:-1]) if e.symbols & tiled]
    return inside and len(dims) == 1 and map_[dims[0]] == Expr.symbol(axis) and (
        value.type.shape[dims[0]] == kernel.axes[axis])
