"""Tiles of a product in the order of their modelled time (`time.py`).

The input is a product's extents and a machine's facts; the result is the tiles that fit the
machine. Matrix products, convolutions as products, and products on FMA units are ranked alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import log

from targets.cuda.machine import Machine
from targets.cuda.scheduling.products.time import Product, ProductTile, programs_at_a_time, seconds
from targets.cuda.scheduling.specialized_tiles import specialized_seconds, specialized_tiles

LINE = 128
"""The bytes of a cache line: the fewest that one step loads of a row of a factor."""
LEAST = 32
"""The fewest bytes of such a row in one step."""
SIZES = (16, 32, 64, 128, 256)
"""Sizes of tiles, in rows and in columns."""
STAGES = (3, 4, 5, 6, 8)
"""Numbers of pipeline stages, including the one that is multiplied."""
USUAL = 4
"""The preferred number of stages among those that the model rates equal."""
MOST = 128 * 256
"""The most sums of a tile: what two groups of four warps can hold in registers."""
FMA_SUMS, FMA_WARPS = (8, 32), (4, 8, 2, 1)
"""The least and the most sums of a thread on FMA units; and warps, fewer where tiles are small."""
ASSUMED = 1024
"""The assumed length of an axis of unknown extent."""
MOST_OF_GROUP = 128
"""The most rows of a group in one tile: on average, half a tile of each group is empty."""


@cache
def tiles(product: Product, machine: Machine) -> tuple[ProductTile, ...]:
    """The tiles that fit the product and the machine, fastest first."""
    alike = machine.fitted.products.alike
    found = [t for t in _tiles(product) if programs_at_a_time(product, t, machine)]
    times = {t: tile_seconds(product, t, machine)
             for t in (*found, *specialized_tiles(product, machine))}
    return tuple(sorted(times, key=lambda t: (
        round(log(times[t]) / alike), -t.sums * max(t.groups, 1), t.rows + t.columns, -t.columns,
        abs(t.stages - USUAL), -t.depth, t.warps)))


def tile_seconds(product: Product, tile: ProductTile, machine: Machine) -> float:
    """The modelled seconds of a product in tiles that fit the machine."""
    return (specialized_seconds if tile.groups else seconds)(product, tile, machine)


def _tiles(product: Product) -> Iterator[ProductTile]:
    most = MOST // 2 if product.open or product.twice else MOST
    for rows in _sides(product.rows):
        for columns in _sides(product.columns):
            if rows * columns <= most:
                yield from _steps(product, rows, columns)


def _sides(extent: int) -> list[int]:
    """Tile sizes up to the first that covers the extent."""
    return [s for s in SIZES if s < 2 * extent or s == SIZES[0]]


def _steps(product: Product, rows: int, columns: int) -> Iterator[ProductTile]:
    """Depths, warps and stages that suit a tile."""
    for depth in _depths(product, rows * columns):
        for warps in _warps(product, rows * columns):
            for stages in [s for s in STAGES if s <= max(4, product.depth // depth)]:
                yield ProductTile(rows, columns, depth, warps, stages)


def _depths(product: Product, sums: int) -> list[int]:
    """Step sizes along the sum: larger for smaller tiles, and always short on FMA units.

    A step stays at one position of a window where possible.
    """
    if not product.narrow:
        return [SIZES[0]]
    line, most = LINE // product.width, max(_power(product.depth), _least(product))
    lines = 1 if sums > 64 * 128 else 2 if sums > 32 * 32 else 4
    depths = [line * n for n in (1, 2, 4) if n <= lines]
    if product.run == product.depth:
        return [*dict.fromkeys(_dividing(product, min(d, most)) for d in depths)]
    inside = [d for d in (*depths, line // 2, SIZES[0]) if product.run % d == 0]
    return [d for d in inside if d >= line // 2] or inside or [line // 2]


def _dividing(product: Product, depth: int) -> int:
    """The depth, or half of it if the last step then needs no masks."""
    half = depth // 2
    return half if product.depth % depth == half >= _least(product) else depth


def _least(product: Product) -> int:
    """The least depth: instructions take more elements of narrower types at a time."""
    return max(LEAST // product.width, SIZES[0])


def _warps(product: Product, sums: int) -> tuple[int, ...]:
    """A group of four warps holds up to 128 x 128 sums, and multiplies 64 rows at a time."""
    if not product.narrow:
        least, most = FMA_SUMS
        return tuple(w for w in FMA_WARPS if least <= sums / (32 * w) <= most)
    if sums > 128 * 128:
        return (8,)
    return (4, 8) if sums == 128 * 128 else (4,)


def _power(extent: int) -> int:
    """The smallest power of two that is at least the extent."""
    return 1 << max(0, extent - 1).bit_length()


def group_rows(rows: int | None, groups: int | None) -> int:
    """How many rows of a group a tile has: about twice the average, so that most groups of similar
    size load their matrix once."""
    each = min(2 * ((rows or ASSUMED) // (groups or 1)), MOST_OF_GROUP)
    return next(s for s in SIZES if s >= each)
