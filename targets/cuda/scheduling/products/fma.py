"""Schedule rules of the CUDA target for matrix products in single precision, on FMA units.

Few rows and long sums are common there (a convolution of one place, of one image): tiles are as
small as it takes to have programs for every multiprocessor.
"""

from __future__ import annotations

from dataclasses import replace

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Schedule
from dialects.strata.types import TensorType, f32
from dialects.symbolic.symbol import Symbol
from passes.loop_to_block.compute import is_dot
from targets.base import TargetOptions
from targets.cuda.machine import machine_of
from targets.cuda.scheduling.convolutions import factors_of, tiled_product
from targets.cuda.scheduling.products.parts import parts_of
from targets.cuda.scheduling.products.tiles import tiles
from targets.cuda.scheduling.roles import bytes_beside, roles_of

LEAST = 128
"""The least elements of a part of a sum."""
LONG, PART = 16384, 1024
"""A sum of more than LONG products is one of sums of PART products. Of 65,536 products one after
another, a register's error was 4.1 times cuBLAS's on an H100, and 0.14 times in parts, which take
18 percent longer; of 8,192 products it was the same as cuBLAS's."""


def schedule_fma_product(
    kernel: KernelOp, nest: NestOp, options: TargetOptions
) -> Schedule | None:
    """The schedule of a kernel that contracts, its axes fused; None if it is no such product."""
    roles = roles_of(nest)
    single = all(len(x) == 1 for x in (roles.rows, roles.columns, roles.reduce))
    if not single or not _on_fma_units(nest, options):
        return None
    product = replace(factors_of(nest, roles, narrow=False),
                      beside=bytes_beside(kernel, nest, roles))
    tile = tiles(product, machine_of(options.features))[0]
    schedule = tiled_product(kernel, roles, tile, options)
    length = kernel.axes[roles.reduce[0]].constant or 0
    if length <= LONG:
        return schedule
    return replace(schedule, options=(*schedule.options, ("promote", PART)))


def fma_parts(nest: NestOp, options: TargetOptions) -> tuple[Symbol, int] | None:
    """The summed axis, and into how many parts to cut it, where few programs would take long."""
    roles = roles_of(nest)
    open_ = any(a.extent.constant is None for a in nest.axes)
    if open_ or roles.batch or len(roles.reduce) != 1 or not (roles.rows and roles.columns):
        return None
    if not _on_fma_units(nest, options):
        return None
    product = factors_of(nest, roles, narrow=False)
    count = parts_of(product, machine_of(options.features), LEAST)
    return (roles.reduce[0], count) if count > 1 else None


def _on_fma_units(nest: NestOp, options: TargetOptions) -> bool:
    """Whether a nest sums products of f32 that nobody allows to be rounded."""
    types = [v.type for v in (*nest.inputs, *nest.results)]
    exact = all(isinstance(t, TensorType) and t.element == f32 for t in types)
    return exact and is_dot(nest) and options.precision != "tf32"

