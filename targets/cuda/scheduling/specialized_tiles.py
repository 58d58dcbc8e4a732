"""Tiles of warp-specialized products, and a model of their time.

As in `products/time.py`, a step multiplies while later ones are loaded, and memory bandwidth is a
lower bound. But loads never wait until sums are stored. The tiles of a persistent program follow
each other with no pause except their epilogues, and the start-up cost of a program is paid once.

What the model needs of a device it takes from the device's facts (`targets/cuda/facts`). A device
without such facts has no such tiles.
"""

from __future__ import annotations

from collections.abc import Iterator

from targets.cuda.emit.specialized.kernel import PART
from targets.cuda.machine import Machine
from targets.cuda.scheduling.products.time import Product, ProductTile, Skew, together

ROWS = (64, 128)
"""The rows of a group's tile."""
COLUMNS = {1: (64, 128, 256), 2: (64, 128, 256), 3: (128,)}
"""Its columns, by how many groups a program has."""
MOST = {1: 128 * 128, 2: 128 * 128, 3: 64 * 128}
"""The most sums of a group, likewise: more groups share the registers."""
LINE = 128
"""The bytes of a row of a factor in one step; small tiles also try twice as many. Sums of this few
narrow floats need no promotion before they are added to another sum."""
SMALL = 64 * 128
PAIRED = 256 * 128
"""The most sums of a program: two groups with the most of one."""
STAGES = (8, 6, 5, 4, 3)
BARRIERS = 1 << 10
"""An upper bound on the bytes of all barriers."""


def specialized_tiles(product: Product, machine: Machine) -> Iterator[ProductTile]:
    """The tiles that fit the machine, with as many stages as its memory allows."""
    if not product.copied or machine.fitted.copied is None:
        return
    for groups, most in MOST.items():
        for rows in ROWS:
            for columns in COLUMNS[groups]:
                sums = rows * columns * (2 if product.twice else 1)
                reaches = (groups - 1) * rows < product.rows and columns < 2 * product.columns
                if sums <= most and reaches:
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
    times, memory = machine.fitted.copied, machine.fitted.products
    assert times is not None, "only a machine with such facts has such tiles"
    rows = tile.groups * tile.rows
    programs = -(-product.rows // rows) * -(-product.columns // tile.columns)
    each = -(-programs // machine.multiprocessors)
    full = machine.tensor_rate * 1e12 / machine.multiprocessors * 2 / product.width
    rate = times.efficiency * full * tile.columns / (tile.columns + times.half_columns)
    rate *= times.full if tile.groups * tile.sums == PAIRED else 1
    multiplied = 2 * rows * tile.columns * tile.depth / rate
    across, down = (s.longer(times.skewed) for s in product.skew[:2])
    loaded = (rows * across + tile.columns * down) * tile.depth * product.width / (
        times.loads * machine.cache_rate * 1e9)
    loaded += _empty_rows(product, tile) * tile.depth * product.width / LINE * times.empty
    step = together(together(multiplied, loaded, times.hiding), times.latency / (tile.stages - 1),
                    times.waiting)
    steps = -(-product.depth // tile.depth)
    apart = times.stored_apart if product.skew[2] is Skew.LESS else 1
    end = rows * tile.columns * product.epilogue_bytes * apart / times.stored
    computed = times.start + each * (steps * step + end)
    moved = product.bytes / (memory.memory * machine.bandwidth * 1e9)
    return max(computed, moved) + memory.beside_memory * min(computed, moved)


def _empty_rows(product: Product, tile: ProductTile) -> float:
    """How many rows behind the ends of both factors a step copies on average, as zeros."""
    return sum(-extent % size / -(-extent // size) for extent, size in (
        (product.rows, tile.groups * tile.rows), (product.columns, tile.columns)))
