"""Tiles of warp-specialized products, and a model of their time.

As in `products/time.py`, a step multiplies while later ones are loaded, and memory bandwidth is a
lower bound. But loads never wait until sums are stored. The tiles of a persistent program follow
each other with no pause except their epilogues, and the start-up cost of a program is paid once.

The constants are fitted to 188 measured times of 15 shapes on an H200 (Triton 3.6), between events
and from cold caches: 5% off, by the root of the mean square. Of these tiles, the ones that it takes
for the fastest take 1% longer than the fastest, on the geometric mean.
"""

from __future__ import annotations

from collections.abc import Iterator

from targets.cuda.emit.specialized.kernel import PART
from targets.cuda.machine import Machine
from targets.cuda.scheduling.products.time import (
    BESIDE_MEMORY,
    MEMORY,
    Product,
    ProductTile,
    together,
)

START = 6.1e-6
"""Seconds before the first step and behind the last: the launch, the first loads."""
EFFICIENCY, HALF = 0.93, 22
"""Of the rate of tensor cores, and the columns that multiply at half of that."""
LOADS = 1.26
"""How much faster tiles are loaded at once than by threads."""
LATENCY = 0.85e-6
"""Seconds after which a stage that is free again is full."""
STORED = 700e9
"""Bytes per second that a multiprocessor reads and writes behind the sums."""
HIDING, WAITING = 8, 5
"""How well multiplying and loading hide each other, and both the latency; as in `products/time.py`.
"""
CAUTION = 1.08
"""How much longer other tiles must take by the models, which err. Of 22 further products, those
that are so chosen took 0 to 25% less than in other tiles."""
ROWS, COLUMNS, GROUPS = (64, 128), (64, 128, 256), (1, 2)
"""The rows and columns of a group's tile, and how many groups a program has."""
MOST = 128 * 128
"""The most sums of a group."""
LINE = 128
"""The bytes of a row of a factor in one step; small tiles also try twice as many. Sums of this few
narrow floats need no promotion before they are added to another sum."""
SMALL = 64 * 128
STAGES = (8, 6, 5, 4, 3)
BARRIERS = 1 << 10
"""An upper bound on the bytes of all barriers."""


def specialized_tiles(product: Product, machine: Machine) -> Iterator[ProductTile]:
    """The tiles that fit the machine, with as many stages as its memory allows."""
    if not product.copied:
        return
    for groups in GROUPS:
        for rows in ROWS:
            for columns in COLUMNS:
                sums = rows * columns * (2 if product.twice else 1)
                reaches = (groups - 1) * rows < product.rows and columns < 2 * product.columns
                if sums <= MOST and reaches:
                    yield from _in_stages(product, machine, rows, columns, groups)


def _in_stages(
    product: Product, machine: Machine, rows: int, columns: int, groups: int
) -> Iterator[ProductTile]:
    """Tiles with at most as many stages as the sum has steps and shared memory allows. A single
    step would be no loop."""
    results = groups * rows * PART + BARRIERS
    is_small = groups * rows * columns <= SMALL and not product.twice
    for lines in (1, 2) if is_small else (1,):
        depth = LINE // product.width * lines
        stage = (groups * rows + columns) * depth * product.width
        steps = -(-product.depth // depth)
        stages = next((n for n in STAGES if n <= max(steps, 4)
                       and n * stage + results <= machine.shared), None)
        if steps > 1 and stages is not None:
            yield ProductTile(rows, columns, depth, 4 * groups, stages, groups)


def specialized_seconds(product: Product, tile: ProductTile, machine: Machine) -> float:
    """The modelled seconds of the product in these tiles, which must fit the machine."""
    rows = tile.groups * tile.rows
    programs = -(-product.rows // rows) * -(-product.columns // tile.columns)
    each = -(-programs // machine.multiprocessors)
    full = machine.tensor_rate * 1e12 / machine.multiprocessors * 2 / product.width
    rate = EFFICIENCY * full * tile.columns / (tile.columns + HALF)
    multiplied = 2 * rows * tile.columns * tile.depth / rate
    loaded = (rows + tile.columns) * tile.depth * product.width / (
        LOADS * machine.cache_rate * 1e9)
    step = together(together(multiplied, loaded, HIDING), LATENCY / (tile.stages - 1), WAITING)
    steps = -(-product.depth // tile.depth)
    end = rows * tile.columns * product.beside / STORED
    computed = START + each * (steps * step + end)
    moved = product.bytes / (MEMORY * machine.bandwidth * 1e9)
    return max(computed, moved) + BESIDE_MEMORY * min(computed, moved)
