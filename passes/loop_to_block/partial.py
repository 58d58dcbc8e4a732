"""Levels of a schedule that are `partial`: sums that begin anew in each tile.

    for k in steps of 256 (total):               total is carried
      part = 0
      for k1 in k .. k + 256 (part):  part += x  what inner levels make of it
      total += part

A sum of n numbers in one register loses up to n roundings; a sum of n/256 sums of 256 numbers loses
n/256 + 256 of them (N. Higham, "The accuracy of floating point summation", 1993).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dialects.block import FullOp
from dialects.loop import NestOp, scalar_type
from dialects.strata.types import TileType, is_float
from passes.loop_to_block.compute import lies_in_matrices
from passes.loop_to_block.state import Tile
from passes.loop_to_block.tiles import Tiles


def begin_parts(tiles: Tiles, nests: Sequence[NestOp]) -> dict[NestOp, Tile]:
    """Let the sums under way begin at zero; returns what they are so far."""
    totals = {n: tiles.open[n] for n in nests if n in tiles.open and _is_parted(tiles, n)}
    for nest, total in totals.items():
        tiles.source = nest
        assert isinstance(total.value.type, TileType)
        zero = tiles.add(FullOp.of(0.0, total.value.type)).results[0]
        tiles.open[nest] = Tile(zero, total.axes)
    return totals


def add_parts(tiles: Tiles, totals: Mapping[NestOp, Tile]) -> None:
    """Add the parts to what the sums were before them."""
    for nest, total in totals.items():
        tiles.source = nest
        tiles.open[nest] = tiles.added(nest, tiles.open[nest], total)


def _is_parted(tiles: Tiles, nest: NestOp) -> bool:
    """Whether a nest sums floats, each of them once, in vector registers."""
    return sums_floats(nest) and nest not in tiles.online and (
        not lies_in_matrices(nest, tiles.schedule))


def sums_floats(nest: NestOp) -> bool:
    """Whether a nest adds floating-point numbers up, and needs only the whole sum."""
    return nest.is_reduction and not nest.is_scan and nest.combiner_names == ["add"] and (
        is_float(scalar_type(nest.results[0])))
