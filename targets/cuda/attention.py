"""Schedule rules of the CUDA target for products whose sums are online: attention.

A program computes a block of rows. It holds their factor, and walks the columns of the scores: in
each step a tile of scores by `tl.dot`, its powers, and their product with the values by another.
"""

from __future__ import annotations

from dataclasses import dataclass

from dialects.expr import product
from dialects.loop import KernelOp, NestOp
from dialects.schedule import Level, Schedule
from dialects.types import TensorType, bf16, f16
from passes.loop.common_factors import take_factor_out
from passes.loop.limits import limit_of
from passes.loop.online import running_maximum
from passes.loop.outline import is_contraction
from passes.loop.private import block_axis
from passes.loop.runs import common_rows
from passes.loop_to_block.compute import is_dot
from targets.base import TargetOptions
from targets.cuda.machine import Machine, machine_of
from targets.cuda.products import MIN_DOT
from targets.cuda.tiles import finish, power, width_of

MAX_REGISTERS = 255
MAX_WIDTH = 256
"""The most columns of a factor that a program holds."""


def is_attention(kernel: KernelOp) -> bool:
    """Whether a contraction of a kernel follows a running maximum."""
    return any(is_contraction(n) and running_maximum(n) for n in kernel.nests)


def joins(kernel: KernelOp, options: TargetOptions) -> bool:
    """Whether both products run on tensor cores, and their factors fit."""
    products = _products(kernel)
    inner = [kernel.axes[a].constant for a in _held(kernel)]
    return (len(products) == 2 and all(map(is_dot, products))
            and all(_is_narrow(n) or options.precision != "f32" for n in products)
            and block_axis(kernel) is not None
            and all(size is not None and size <= MAX_WIDTH for size in inner))


def _products(kernel: KernelOp) -> list[NestOp]:
    return [n for n in kernel.nests if is_contraction(n)]


def _is_narrow(nest: NestOp) -> bool:
    """Whether both factors are halves."""
    return all(isinstance(v.type, TensorType) and v.type.element in (f16, bf16)
               for v in nest.inputs)


def _walked(kernel: KernelOp) -> str:
    """The axis that all sums are online along."""
    [axis] = _products(kernel)[-1].reduce_axes
    return axis.name


def _held(kernel: KernelOp) -> list[str]:
    """The axes of which a program holds all: those of the factors, beside rows and columns."""
    rows = common_rows(kernel)
    return [a for a in kernel.axes if a not in rows and a != _walked(kernel)]


@dataclass(frozen=True)
class Tiles:
    """Rows of a program, columns of a step, how many warps and steps in flight, and registers of
    a thread, where a limit lets another program share the multiprocessor."""

    rows: int
    step: int
    warps: int
    stages: int
    registers: int = 0

    def fits(self, held: int, width: int, machine: Machine) -> bool:
        """Whether factors of so many columns fit into shared memory, and sums into registers."""
        shared = held * width * (self.rows + 2 * self.step * self.stages)
        sums = self.rows * (held + self.step) // (32 * self.warps)
        return shared <= machine.shared and sums <= (self.registers or MAX_REGISTERS) * 3 // 4


_NARROW = (Tiles(64, 64, 4, 3), Tiles(64, 32, 4, 2))
"""For factors of one line of the cache: several programs share a multiprocessor."""
_WIDE = (Tiles(128, 64, 8, 2, 128), Tiles(64, 64, 4, 3), Tiles(64, 64, 4, 2), Tiles(64, 32, 4, 2))
"""For wider ones: more rows, so that factors are loaded less often."""
_LINE = 128


def prepare_attention(kernel: KernelOp) -> None:
    """Let what masks scores stand before what scales them."""
    for nest in [n for n in kernel.nests if n.is_elementwise]:
        take_factor_out(nest)


def schedule_attention(kernel: KernelOp, options: TargetOptions) -> Schedule:
    """Blocks of rows; the axes of the factors whole; the columns in steps."""
    extents, row, walked = kernel.axes, block_axis(kernel), _walked(kernel)
    assert row is not None
    held = {a: power(extents[a], MAX_WIDTH, MIN_DOT) for a in _held(kernel)}
    width = max(width_of(v) for n in _products(kernel) for v in n.inputs)
    tiles = _tiles(kernel, row, max(held.values()), width, machine_of(options.features))
    levels = [*(Level("grid", a) for a in common_rows(kernel) if a != row),
              Level("grid", row, power(extents[row], tiles.rows, MIN_DOT)),
              *(Level("whole", a, size) for a, size in held.items()),
              Level("loop", walked, power(extents[walked], tiles.step, MIN_DOT))]
    limit = {"registers": tiles.registers} if tiles.registers else {}
    if limit_of(kernel, walked) is not None:
        limit["branch"] = 1
    return finish(kernel, levels, online=1, dot=1, tails="peel", pointers=1, warps=tiles.warps,
                  stages=tiles.stages, precision=options.precision, **limit)


def _tiles(kernel: KernelOp, row: str, held: int, width: int, machine: Machine) -> Tiles:
    """The first tiles that fit and leave no multiprocessor idle, else those of the fewest rows."""
    choices = _NARROW if held * width <= _LINE else _WIDE
    fitting = [t for t in choices if t.fits(held, width, machine)] or [choices[-1]]
    others = product(kernel.axes[a] for a in common_rows(kernel) if a != row)
    programs = [(others * kernel.axes[row].ceildiv(t.rows)).constant for t in fitting]
    return next((t for t, n in zip(fitting, programs, strict=True)
                 if n is None or n >= machine.multiprocessors),
                min(fitting, key=lambda t: t.rows))
