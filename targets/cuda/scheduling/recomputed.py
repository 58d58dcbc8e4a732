"""Schedule rules of the CUDA target for products with the products of their factors: the backward
pass of attention.

A program computes a block of rows, and loops over the axis that its last products sum over. Each
step computes tiles of the inner products by `tl.dot` in registers, and with them adds to all sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import TensorType, bf16, f16, f32
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.online import sources_of
from passes.analyses.loop.private import reuses
from passes.loop_to_block.compute import is_dot
from targets.cuda.machine import Machine, machine_of
from targets.cuda.scheduling.products.rules import MIN_DOT
from targets.cuda.scheduling.tiles import finish, power, tails_of, width_of
from targets.options import TargetOptions

MAX_WIDTH, SPLIT_WIDTH = 128, 64
"""The most columns of a factor that a program holds, and the most of a split f32 factor."""
MIN_PRODUCTS = 3
"""With fewer, nothing is computed again; what these write costs less than smaller tiles."""


def is_recomputed(kernel: KernelOp) -> bool:
    """Whether a product reads what other products of the kernel compute."""
    products = _products(kernel)
    made = {r for n in products for r in n.results}
    return len(products) > 1 and bool(made & sources_of(products[-1]))


def joins(kernel: KernelOp, options: TargetOptions) -> bool:
    """Whether the products, each along one axis, run on tensor cores and their factors fit, with a
    program for each multiprocessor."""
    products, rows = _products(kernel), block_axis(kernel)
    if len(products) < MIN_PRODUCTS or not all(map(is_dot, products)) or rows is None or any(
            len(n.reduce_axes) != 1 for n in products):
        return False
    held = [kernel.axes[a].constant for a in held_axes(kernel)]
    elements = {v.type.element for n in products for v in n.inputs
                if isinstance(v.type, TensorType)}
    most = MAX_WIDTH if elements in ({f16}, {bf16}) or options.precision != "f32" else (
        SPLIT_WIDTH if elements == {f32} and machine_of(options.features).has_wgmma else 0)
    return all(size is not None and size <= most for size in held)


def _products(kernel: KernelOp) -> list[NestOp]:
    return [n for n in kernel.nests if is_contraction(n)]


def common_axes(kernel: KernelOp) -> list[Symbol]:
    """Axes over which every product is parallel."""
    common = set(kernel.axes).intersection(*(
        {a.name for a in n.parallel_axes} for n in _products(kernel)))
    return [a for a in kernel.axes if a in common]


def block_axis(kernel: KernelOp) -> Symbol | None:
    """The axis along which a program computes a block: each product reuses a factor along it."""
    found = [a for a in common_axes(kernel) if all(reuses(n, a) for n in _products(kernel))]
    extents = kernel.axes
    return max(found, key=lambda a: extents[a].constant or 1 << 60, default=None)


def walked_axis(kernel: KernelOp) -> Symbol:
    """The axis along which all programs loop."""
    [axis] = _products(kernel)[-1].reduce_axes
    return axis.name


def held_axes(kernel: KernelOp) -> list[Symbol]:
    """The axes of the factors besides rows and the walked one; a program holds them whole."""
    rows = common_axes(kernel)
    return [a for a in kernel.axes if a not in rows and a != walked_axis(kernel)]


@dataclass(frozen=True)
class Tiles:
    """Rows of a program, columns of a step, warps, and stages in flight."""

    rows: int
    step: int
    warps: int
    stages: int

    def fits(self, kernel: KernelOp, held: int, machine: Machine) -> bool:
        """Whether factors fit into shared memory, and sums and inner products into registers."""
        sums, inner = count_sums(kernel), len(_products(kernel)) - count_sums(kernel)
        shared = 2 * held * _width(kernel) * (self.rows + self.step * self.stages)
        registers = self.rows * (sums * held + inner * self.step) // (32 * self.warps)
        return shared <= machine.shared and registers <= MAX_REGISTERS


MAX_REGISTERS = 192
"""The most registers of a thread for sums and inner products."""
_LINE = 128
_NARROW = (Tiles(64, 64, 4, 3), Tiles(64, 64, 4, 2), Tiles(64, 32, 4, 2))
"""For factors no wider than a cache line."""
_WIDE_ALONE = (Tiles(128, 32, 8, 3), Tiles(64, 64, 4, 2), Tiles(64, 32, 4, 2))
"""For wider factors and one sum, such as the gradient of queries."""
_WIDE = _WIDE_ALONE[1:]
"""For wider factors and several sums. All were the fastest of nine that were measured."""


def count_sums(kernel: KernelOp) -> int:
    """The number of products that sum along the walked axis."""
    walked = walked_axis(kernel)
    return sum(walked in {a.name for a in n.reduce_axes} for n in _products(kernel))


def _width(kernel: KernelOp) -> int:
    """Bytes of an element of a factor."""
    return max(width_of(v) for n in _products(kernel) for v in n.inputs)


def schedule_recomputed(kernel: KernelOp, options: TargetOptions) -> Schedule:
    """Blocks of rows in the grid, the factors' axes whole, and the walked axis in steps."""
    return candidates(kernel, options)[0]


def candidates(kernel: KernelOp, options: TargetOptions) -> list[Schedule]:
    """The preferred schedule, then others that may be as good."""
    return [_schedule(kernel, tiles, options) for tiles in _fitting(kernel, options)]


def _fitting(kernel: KernelOp, options: TargetOptions) -> Sequence[Tiles]:
    """Tiles that fit, first those that use every multiprocessor."""
    machine, row = machine_of(options.features), block_axis(kernel)
    assert row is not None
    held = max(power(kernel.axes[a], MAX_WIDTH, MIN_DOT) for a in held_axes(kernel))
    choices = _NARROW if held * _width(kernel) <= _LINE else (
        _WIDE if count_sums(kernel) > 1 else _WIDE_ALONE)
    most = power(kernel.axes[row], choices[0].rows, choices[-1].rows)
    fitting = [t for t in choices if t.rows <= most and t.fits(kernel, held, machine)]
    others = product(kernel.axes[a] for a in common_axes(kernel) if a != row)

    def leaves_some_idle(tiles: Tiles) -> bool:
        programs = (others * kernel.axes[row].ceildiv(tiles.rows)).constant
        return programs is not None and programs < machine.multiprocessors

    return sorted(fitting or choices[-1:], key=leaves_some_idle)


def _schedule(kernel: KernelOp, tiles: Tiles, options: TargetOptions) -> Schedule:
    row, walked, extents = block_axis(kernel), walked_axis(kernel), kernel.axes
    assert row is not None
    levels = [*(Level("grid", a) for a in common_axes(kernel) if a != row),
              Level("grid", row, power(extents[row], tiles.rows, MIN_DOT)),
              *(Level("whole", a, power(extents[a], MAX_WIDTH, MIN_DOT))
                for a in held_axes(kernel)),
              Level("loop", walked, power(extents[walked], tiles.step, MIN_DOT))]
    single = any(isinstance(v.type, TensorType) and v.type.element == f32
                 for n in _products(kernel) for v in n.inputs)
    split = single and options.precision == "f32"
    return finish(kernel, levels, dot=1, tails=tails_of(extents[walked], tiles.step), pointers=1,
                  warps=tiles.warps, stages=tiles.stages,
                  precision="tf32x3" if split else options.precision)
