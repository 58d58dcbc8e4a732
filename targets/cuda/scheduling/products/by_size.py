"""Schedules of products with an open size, each for a range of that size.

The input is a kernel with a product whose rows, columns or matrices are counted by an open size.
The cost model (`time.py`) tells the fastest tile at sizes far apart. Neighbouring sizes share a
tile as long as it is about as fast as the best at each of them. The result is a schedule per range,
with an expression that is 1 in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, groupby, pairwise
from typing import NamedTuple

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Schedule
from dialects.symbolic.expr import Expr, maximum, minimum
from dialects.symbolic.size_products import product as product_of_sizes
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from targets.cuda.machine import Machine, machine_of
from targets.cuda.scheduling.attention import is_attention
from targets.cuda.scheduling.convolution_roles import tiled_roles
from targets.cuda.scheduling.convolutions import convolved_form, is_plain, tiled_product
from targets.cuda.scheduling.products.fma import fma_form, in_fma_tile
from targets.cuda.scheduling.products.rules import in_tile, is_tiled, tiled_form
from targets.cuda.scheduling.products.tiles import tile_seconds, tiles
from targets.cuda.scheduling.products.time import Product, ProductTile
from targets.cuda.scheduling.recomputed import is_recomputed
from targets.cuda.scheduling.roles import Roles, roles_of, stored_by
from targets.cuda.scheduling.strips import strips_nest
from targets.cuda.scheduling.windows import windowed_nest
from targets.options import TargetOptions

SAMPLES = tuple(1 << k for k in range(4, 17))
"""The sizes for which tiles are compared: 16, 32, 64 ... 65536."""
SLACK = 6
"""How many percent longer than the least time a tile may take at each size of its range."""
MOST = 6
"""The most ranges of a kernel, since each is code to compile."""


class Ranged(NamedTuple):
    """A product with an open size: the size, the product at a value of it, and the schedule with a
    tile for about such a value."""

    size: Expr
    at: Callable[[int], Product]
    schedule: Callable[[ProductTile, int], Schedule]


@dataclass(frozen=True)
class Range:
    """Neighbouring samples, and the tile that serves them. `slower`: how many times the least time
    it takes at the worst of them."""

    samples: tuple[int, ...]
    tile: ProductTile
    slower: float


def schedules_by_size(
    kernel: KernelOp, options: TargetOptions
) -> Sequence[tuple[Expr, Schedule]]:
    """The schedules of a product for ranges of its open size; empty for other kernels, and where
    one tile is as fast as any at all sizes."""
    ranged = _ranged(kernel, options)
    if ranged is None:
        return ()
    machine = machine_of(options.features)
    found = _ranges(ranged, machine)
    limits = [_limit(a, b, ranged, machine) for a, b in pairwise(found)]
    return [(_between(ranged.size, low, high), ranged.schedule(r.tile, r.samples[-1]))
            for r, low, high in zip(found, (0, *limits), (*limits, None), strict=True)
            ] if limits else ()


def _ranged(kernel: KernelOp, options: TargetOptions) -> Ranged | None:
    """The kernel as a product with one open size; None for any other."""
    nest = next((n for n in kernel.nests if is_contraction(n)), None)
    if nest is None or is_attention(kernel) or is_recomputed(kernel) or strips_nest(kernel) or (
            windowed_nest(kernel)):
        return None
    tiled = _tiled(kernel, nest, options)
    if tiled is None or _size(kernel, tiled.roles.reduce).constant is None:
        return None
    opened = [(role, size) for role in ("batch", "rows", "columns")
              if (size := _size(kernel, getattr(tiled.roles, role))).constant is None]
    if len(opened) != 1:
        return None
    [(role, size)] = opened

    def at(value: int) -> Product:
        return replace(tiled.form, **{role: value})

    def schedule(tile: ProductTile, value: int) -> Schedule:
        return tiled.schedule(tile, at(value))

    return Ranged(size, at, schedule)


class Tiled(NamedTuple):
    """A product whose tiles the cost model chooses: its roles, what the model knows of it, and the
    schedule with a tile."""

    roles: Roles
    form: Product
    schedule: Callable[[ProductTile, Product], Schedule]


def _tiled(kernel: KernelOp, nest: NestOp, options: TargetOptions) -> Tiled | None:
    """In the order of the schedule rules (`rules.py`)."""
    convolved = tiled_roles(nest)
    roles = convolved or roles_of(nest)
    form = fma_form(kernel, nest, options)
    if convolved is not None:
        form = convolved_form(kernel, nest, roles, options) if is_plain(roles) else None
    elif form is None:
        return _on_tensor_cores(kernel, nest, options)
    if form is None:
        return None

    def schedule(tile: ProductTile, at: Product) -> Schedule:
        return (in_fma_tile if convolved is None else tiled_product)(kernel, roles, tile, options)

    return Tiled(roles, form, schedule)


def _on_tensor_cores(kernel: KernelOp, nest: NestOp, options: TargetOptions) -> Tiled | None:
    roles = roles_of(nest, stored_by(kernel, nest))
    if not is_tiled(nest, roles, options):
        return None

    def schedule(tile: ProductTile, at: Product) -> Schedule:
        return in_tile(kernel, nest, roles, tile, at.rows, options)

    return Tiled(roles, tiled_form(kernel, nest, roles, options), schedule)


def _size(kernel: KernelOp, axes: Sequence[Symbol]) -> Expr:
    return product_of_sizes(kernel.axes[a] for a in axes)


# ---------------------------------------------------------------------- ranges
def _ranges(ranged: Ranged, machine: Machine) -> Sequence[Range]:
    """The fewest ranges whose tiles are about as fast as the best ones; else the best of MOST."""
    best = {n: tiles(ranged.at(n), machine)[0] for n in SAMPLES}
    slower = {(t, n): tile_seconds(ranged.at(n), t, machine) / tile_seconds(
        ranged.at(n), best[n], machine) for t in {*best.values()} for n in SAMPLES}

    @cache
    def range_of(low: int, high: int) -> Range:
        own = SAMPLES[low:high]
        tile = min(dict.fromkeys(best[n] for n in own), key=lambda t: _worst(slower, t, own))
        return Range(own, tile, _worst(slower, tile, own))

    found = [range_of(0, len(SAMPLES))]
    for count in range(1, MOST + 1):
        ways = [[range_of(a, b) for a, b in pairwise((0, *cuts, len(SAMPLES)))]
                for cuts in combinations(range(1, len(SAMPLES)), count - 1)]
        found = min(ways, key=lambda ranges: max(r.slower for r in ranges))
        if 100 * max(r.slower for r in found) <= 100 + SLACK:
            break
    return [*_merged(found)]


def _worst(
    slower: Mapping[tuple[ProductTile, int], float], tile: ProductTile, samples: Sequence[int]
) -> float:
    return max(slower[tile, n] for n in samples)


def _merged(ranges: Sequence[Range]) -> Iterator[Range]:
    """Neighbouring ranges with equal tiles as one."""
    for tile, alike in groupby(ranges, key=lambda r: r.tile):
        own = [*alike]
        yield Range(tuple(n for r in own for n in r.samples), tile, max(r.slower for r in own))


def _limit(small: Range, large: Range, ranged: Ranged, machine: Machine) -> int:
    """The size from which the tile of the larger range is faster."""
    low, high = small.samples[-1], large.samples[0]
    for n in range(low + low // 2, high, low // 2):
        product = ranged.at(n)
        if tile_seconds(product, large.tile, machine) <= tile_seconds(product, small.tile, machine):
            return n
    return high


def _between(size: Expr, low: int, high: int | None) -> Expr:
    """1 if low <= size < high, else 0."""
    from_low = Expr.of(1) if low == 0 else _reaches(size, low)
    return from_low if high is None else from_low - _reaches(size, high)


def _reaches(size: Expr, least: int) -> Expr:
    """1 if size >= least, else 0."""
    return minimum(1, maximum(0, size - (least - 1)))
