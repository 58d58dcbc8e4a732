"""A model of the time that convolutions take on a GPU, by the tiles that their programs compute.

What enters is the shape of a convolution as a product; what leaves is the fastest tile, or into how
many parts to cut the sums. The model's constants are fitted to measured times of 3x3 convolutions,
and hold for products on FMA units as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import inf

from dialects.expr import Expr
from targets.cuda.machine import Machine
from targets.cuda.products import DEPTH, MIN_DOT
from targets.cuda.tiles import power

WARPGROUP_ROWS = 64
"""Rows that a group of 4 warps multiplies at once, where there are such products."""
OTHER_REGISTERS = 64
"""What a thread needs beside its sums."""
GAIN, MOST_PARTS = 0.85, 32
"""Sums in parts must take so much less time; and how many parts there are at most."""
SMALL = 64 * 32
"""Sums of a small tile."""
FMA_SUMS, FMA_LOADS = 8, 2.3
"""The least sums of a thread on FMA units; and what loads of factors for n of them cost, times the
root of n."""


@dataclass(frozen=True)
class Shape:
    """What a convolution multiplies: batches of rows by columns, summed over `depth`.

    `channels`: the run of the summed axis inside one position of the window. `width`: the bytes
    of a factor's element.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    channels: int
    width: int
    narrow: bool
    """Whether tensor cores multiply the factors."""


@dataclass(frozen=True)
class Tile:
    """What one program computes, with how many warps, and how many steps ahead it loads."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


def fastest(shape: Shape, machine: Machine) -> tuple[Tile, float]:
    """The tile that takes the least time, and its cycles; of equally good ones the first."""
    times = {tile: _cycles(shape, tile, machine) for tile in _tiles(shape)}
    best = min(times, key=lambda tile: times[tile])
    return best, times[best]


def parts_of(shape: Shape, machine: Machine, least: int) -> int:
    """Into how many equal parts to cut the sums, of `least` channels or more; mostly 1.

    Parts are computed side by side, and added by another kernel: clearly faster, or not done.
    """
    times = {1: fastest(shape, machine)[1]}
    for parts in range(2, min(shape.channels // least, MOST_PARTS) + 1):
        if shape.channels % (parts * least) == 0 and shape.batch == 1:
            part = replace(shape, batch=parts, depth=shape.depth // parts,
                           channels=shape.channels // parts)
            times[parts] = fastest(part, machine)[1] + _adding(part, machine)
    best = min(times, key=lambda n: times[n])
    return best if times[best] < GAIN * times[1] else 1


def _adding(shape: Shape, machine: Machine) -> float:
    """The cycles of another kernel that adds the parts, which lie in the cache of level 2."""
    read = 4 * shape.batch * shape.rows * shape.columns
    return 2 * machine.start + read / (machine.near_bytes * machine.multiprocessors)


def _tiles(shape: Shape) -> Iterator[Tile]:
    """Tiles whose steps stay in one place of the window, if they can, and that registers hold."""
    most = power(Expr.of(shape.rows), 256, MIN_DOT), power(Expr.of(shape.columns), 256, MIN_DOT)
    for rows, columns in product((64, 128, 256, 32, 16), (64, 128, 256, 32, 16)):
        if rows <= most[0] and columns <= min(most[1], 2 * rows) and rows * columns <= 128 * 256:
            for warps in _warps(shape, rows, columns):
                for depth, stages in product(_depths(shape, rows * columns), (3, 4)):
                    yield Tile(rows, columns, depth, warps, stages)


def _warps(shape: Shape, rows: int, columns: int) -> tuple[int, ...]:
    """Numbers of warps; of FMA units fewer for small tiles, so that each has work at hand."""
    if rows == 256 or rows * columns > 128 * 128:
        return (8,)
    found = (4, 2, 1) if not shape.narrow and rows * columns <= SMALL else (4,)
    return tuple(w for w in found if shape.narrow or rows * columns >= 32 * w * FMA_SUMS)


def _depths(shape: Shape, sums: int) -> list[int]:
    """Lines of the cache, or parts of them; small tiles take two at a time, FMA units little."""
    line = DEPTH // shape.width
    if not shape.narrow:
        return [MIN_DOT]
    two = [2 * line] if sums <= SMALL else []
    found = [d for d in (line, *two, line // 2, MIN_DOT) if shape.channels % d == 0]
    return found or [line // 2]


def _cycles(shape: Shape, tile: Tile, machine: Machine) -> float:
    """About how long the machine takes.

    A program alone waits in each step for its data, products and others of its warps, one behind
    the other; programs together hide that, but share what multiplies and what brings data.
    """
    together = _together(shape, tile, machine)
    if not together:
        return inf
    programs = shape.batch * -(-shape.rows // tile.rows) * -(-shape.columns // tile.columns)
    steps = -(-shape.depth // tile.depth)
    alone, shared = (_tensor_step if shape.narrow else _fma_step)(shape, tile, machine)
    rounds, rest = divmod(-(-programs // machine.multiprocessors), together)
    counts = [*[together] * rounds, *([rest] if rest else [])]
    return sum(steps * max(n * shared, alone) + machine.start for n in counts)


def _tensor_step(shape: Shape, tile: Tile, machine: Machine) -> tuple[float, float]:
    """The cycles of a step of a program alone, and of one among others, on tensor cores."""
    products = tile.rows * tile.columns * tile.depth / machine.products
    arrive = tile.rows * tile.depth * shape.width / machine.near_bytes
    if machine.has_wgmma and tile.rows < WARPGROUP_ROWS:
        wait = machine.step + tile.depth * shape.width  # factors pass through registers
        return 4 * products + arrive + wait, 2 * products + arrive + wait / 4
    return 0.75 * products + arrive + machine.step, products + arrive + machine.step / 4


def _fma_step(shape: Shape, tile: Tile, machine: Machine) -> tuple[float, float]:
    """Likewise on FMA units, which factors reach through shared memory."""
    del shape
    sums = tile.rows * tile.columns
    loss = 1 + FMA_LOADS / (sums / (32 * tile.warps)) ** 0.5
    products = loss * sums * tile.depth / machine.fma_units
    wait = machine.step / 10 * tile.depth
    return products * max(1, 4 // tile.warps) + wait, products + wait / 4


def _together(shape: Shape, tile: Tile, machine: Machine) -> int:
    """How many programs a multiprocessor holds; 0 if it cannot hold one."""
    shared = (tile.rows + tile.columns) * tile.depth * shape.width * tile.stages
    threads = 32 * tile.warps
    registers = tile.rows * tile.columns // threads + OTHER_REGISTERS
    fits = min(machine.shared // shared, machine.registers // (registers * threads))
    return fits if registers < 256 else 0
