"""Tiles of a matrix product on tensor cores, ordered by a model of the time that they take.

What enters are the extents of a product and the facts of a machine; what leaves are tiles that fit
it, the fastest first. The model knows three times, and takes the largest, and a part of the others:

- *throughput*: what the busiest multiprocessor multiplies and loads from the L2 cache, step by
  step; a small tile multiplies slower, since each element that it loads is used less often;
- *latency*: one program after another, each as many steps as its sum has, where a step waits for
  memory as long as the stages before it do not hide;
- *memory*: every factor and the result, once, at the bandwidth of the device.

Programs that a multiprocessor holds at a time hide each other's latency. Whole rounds of programs
matter: 133 of them take twice as long on 132 multiprocessors as 132.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log

from targets.cuda.machine import Machine

LINE = 128
"""The bytes of a cache line: what one step loads of a row of a factor, at least."""
LEAST = 32
"""The bytes of such a row that a step takes at least."""
SIZES = (16, 32, 64, 128, 256)
"""Rows and columns of tiles."""
STAGES = (3, 4, 5, 6, 8)
"""How many steps of loads are under way, the one that is multiplied among them."""
USUAL = 6
"""Of stages that the model takes for alike: so many bridge what it does not know of."""
MOST = 128 * 256
"""The most sums of a tile: two groups of four warps hold so many in registers."""
ASSUMED = 1024
"""How long an axis is taken to be while its extent is not known."""
LATENCY = 0.85e-6
"""Seconds until data of the device's memory are there."""
STEP = 0.02e-6
"""Seconds of a step of the sum beside its products and loads: it waits, and asks for more."""
SHORT = 0.06e-6
"""Seconds that 256 bytes of the sum take longer where tiles have fewer rows than instructions of
whole groups of warps: every warp then loads its operands into registers."""
ALIKE = 0.03
"""Times that differ by less than such a part are alike; then larger tiles are better."""
START = 2.0e-6
"""Seconds before the first step and behind the last: addresses, the epilogue, stores."""
HALF = 56
"""A tile of so many columns multiplies at half of the full rate: instructions read all rows of the
other factor again for each group of columns."""


@dataclass(frozen=True)
class Product:
    """`batch` times rows x depth by depth x columns. Bytes per element of the factors (`width`)
    and of the result (`stored`). `open`: whether any extent is not known, but assumed.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    width: int
    stored: int
    open: bool = False
    twice: bool = False
    """Whether sums are held twice, to be added to others after some steps."""


@dataclass(frozen=True)
class ProductTile:
    """What one program computes, `depth` of the sum in a step."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int

    def shared(self, width: int) -> int:
        """The bytes of shared memory that the stages of both factors take."""
        return (self.rows + self.columns) * self.depth * width * self.stages


def tiles(product: Product, machine: Machine) -> list[ProductTile]:
    """The tiles that fit product and machine, those first that take the least time."""
    fitting = [t for t in _tiles(product) if t.shared(product.width) <= machine.shared]
    return sorted(fitting, key=lambda t: (
        round(log(seconds(product, t, machine)) / ALIKE), -t.rows * t.columns, -t.columns,
        abs(t.stages - USUAL), -t.depth, t.warps))


def _tiles(product: Product) -> Iterator[ProductTile]:
    most = MOST // 2 if product.open or product.twice else MOST
    for rows in _sides(product.rows):
        for columns in _sides(product.columns):
            if rows * columns <= most:
                yield from _steps(product, rows, columns)


def _sides(extent: int) -> list[int]:
    """Sizes of tiles up to the one that holds the extent."""
    return [s for s in SIZES if s < 2 * extent or s == SIZES[0]]


def _steps(product: Product, rows: int, columns: int) -> Iterator[ProductTile]:
    """Depths, warps and stages that suit a tile: a smaller one takes more of the sum in a step."""
    line, most = LINE // product.width, max(_power(product.depth), _least(product))
    lines = 1 if rows * columns > 64 * 128 else 2 if rows * columns > 32 * 32 else 4
    for depth in dict.fromkeys(min(line * n, most) for n in (1, 2, 4) if n <= lines):
        for warps in _warps(rows, columns):
            for stages in [s for s in STAGES if s <= max(4, product.depth // depth)]:
                yield ProductTile(rows, columns, _dividing(product, depth), warps, stages)


def _dividing(product: Product, depth: int) -> int:
    """The depth, or half of it where the last step then needs no masks."""
    half = depth // 2
    return half if product.depth % depth == half >= _least(product) else depth


def _least(product: Product) -> int:
    """The least depth: of short factors, instructions take more at a time."""
    return max(LEAST // product.width, SIZES[0])


def _warps(rows: int, columns: int) -> tuple[int, ...]:
    """A group of four warps holds up to 128 x 128 sums, and takes 64 rows at a time."""
    if rows * columns > 128 * 128:
        return (8,)
    return (4, 8) if rows * columns == 128 * 128 else (4,)


def _power(extent: int) -> int:
    """The power of two that holds an extent."""
    return 1 << max(0, extent - 1).bit_length()


# ---------------------------------------------------------------------- the model
def seconds(product: Product, tile: ProductTile, machine: Machine) -> float:
    """About how long the product takes in such tiles."""
    width = product.width
    programs = (product.batch * -(-product.rows // tile.rows)
                * -(-product.columns // tile.columns))
    steps = -(-product.depth // tile.depth)
    each = -(-programs // machine.multiprocessors)
    resident = min(each, _resident(tile, width, machine))
    loaded = (tile.rows + tile.columns) * tile.depth * width
    multiplied = 2 * tile.rows * tile.columns * tile.depth
    busy = max(multiplied / (_rate(tile, machine, width) * 1e12),
               loaded / (machine.cache_rate * 1e9))
    short = machine.has_wgmma and tile.rows < 64
    step = max(busy, LATENCY / (tile.stages - 1)) + STEP + (
        SHORT * tile.depth * width / 256 if short else 0)
    turns = -(-each // resident)
    computed = max(each * steps * busy, turns * (steps * step + LATENCY))
    moved = _moved(product) / (machine.bandwidth * 1e9)
    return turns * START + max(computed, moved) + min(computed, moved) / 2


def _resident(tile: ProductTile, width: int, machine: Machine) -> int:
    """How many programs a multiprocessor holds at a time."""
    threads = 32 * tile.warps
    registers = threads * (tile.rows * tile.columns // threads + 64)
    return max(1, min(machine.shared // tile.shared(width), machine.registers // registers,
                      machine.threads // threads))


def _rate(tile: ProductTile, machine: Machine, width: int) -> float:
    """The TFLOP/s of a multiprocessor on such tiles, of which instructions have 64 rows."""
    full = machine.tensor_rate / machine.multiprocessors * 2 / width
    return full * min(tile.rows / 64, 1) * tile.columns / (tile.columns + HALF)


def _moved(product: Product) -> int:
    """The bytes of the factors and the result."""
    factors = product.rows * product.depth + product.depth * product.columns
    return product.batch * (factors * product.width
                            + product.rows * product.columns * product.stored)
