"""Schedule rules of the CUDA target for matrix products in single precision, on FMA units.

Few rows and long sums are common there, as in a 1x1 convolution of one small image. Tiles are made
small enough that every multiprocessor has programs.
"""

from __future__ import annotations

from dataclasses import replace

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Schedule
from dialects.strata.types import TensorType, f32
from passes.contract import Parts
from passes.loop_to_block.compute import is_dot
from targets.cuda.machine import machine_of
from targets.cuda.scheduling.convolutions import factors_of, tiled_product
from targets.cuda.scheduling.products.parts import parts_of
from targets.cuda.scheduling.products.tiles import tiles
from targets.cuda.scheduling.products.time import Product, ProductTile
from targets.cuda.scheduling.roles import Roles, epilogue_bytes, roles_of
from targets.options import TargetOptions

LEAST = 128
"""The fewest elements of one part of a split sum."""
LONG, PART = 16384, 1024
"""A sum of more than LONG products is computed as a sum of partial sums of PART products, because
the error of one accumulator grows with the number of products. Chosen on an H100."""


def schedule_fma_product(
    kernel: KernelOp, nest: NestOp, options: TargetOptions
) -> Schedule | None:
    """The schedule of a kernel whose contraction has fused axes; None for any other kernel."""
    product, roles = fma_form(kernel, nest, options), roles_of(nest)
    if product is None:
        return None
    return in_fma_tile(kernel, roles, tiles(product, machine_of(options.features))[0], options)


def fma_form(kernel: KernelOp, nest: NestOp, options: TargetOptions) -> Product | None:
    """All on which the choice of the tiles of such a kernel depends."""
    roles = roles_of(nest)
    single = all(len(x) == 1 for x in (roles.rows, roles.columns, roles.reduce))
    if not single or not _on_fma_units(nest, options):
        return None
    return replace(factors_of(nest, roles, narrow=False),
                   epilogue_bytes=epilogue_bytes(kernel, nest, roles))


def in_fma_tile(
    kernel: KernelOp, roles: Roles, tile: ProductTile, options: TargetOptions
) -> Schedule:
    """The schedule of such a kernel with a tile."""
    schedule = tiled_product(kernel, roles, tile, options)
    length = kernel.axes[roles.reduce[0]].constant or 0
    if length <= LONG:
        return schedule
    return replace(schedule, options=(*schedule.options, ("promote", PART)))


def fma_parts(nest: NestOp, options: TargetOptions) -> Parts | None:
    """The summed axis and into how many parts to split it, if the grid would be too small."""
    roles = roles_of(nest)
    open_ = any(a.extent.constant is None for a in nest.axes)
    if open_ or roles.batch or len(roles.reduce) != 1 or not (roles.rows and roles.columns):
        return None
    if not _on_fma_units(nest, options):
        return None
    product = factors_of(nest, roles, narrow=False)
    count = parts_of(product, machine_of(options.features), LEAST)
    return Parts(roles.reduce[0], count) if count > 1 else None


def _on_fma_units(nest: NestOp, options: TargetOptions) -> bool:
    """Whether a nest sums f32 products that the options do not allow to be rounded."""
    types = [v.type for v in (*nest.inputs, *nest.results)]
    exact = all(isinstance(t, TensorType) and t.element == f32 for t in types)
    return exact and is_dot(nest) and options.precision != "tf32"

