"""Where a sum has terms other than zero along one of its axes, for a tile of its results.

    inside([i2 + 6*i5 - 6, 7])     rows 7, taps 3: row i2 = 1 reads the image at tap i5 = 1 alone
      ->  ceildiv(6 - i2, 6) <= i5 < (12 - i2) floordiv 6 + 1

A convolution whose image was copied with its border multiplies zeros where a tap lies in the
border. Where a whole tile of results does, the tap can be left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from dialects.loop import NestOp
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol


def bounds_inside(
    nest: NestOp, axis: Symbol, tiles: Mapping[Symbol, tuple[Expr, int]]
) -> list[tuple[Expr, Expr]]:
    """By each expression of `inside`: the first position along an axis that counts, and the one
    after the last. `tiles`: the origin and the length of the tile of each axis that has its place.
    """
    found: list[tuple[Expr, Expr]] = []
    for expr, size in nest.insides:
        split = expr.linear({axis, *tiles, *(a.name for a in nest.axes)})
        step = None if split is None or axis not in split[0] else split[0][axis].constant
        ends = None if split is None or not step else _extremes(
            {a: f for a, f in split[0].items() if a != axis}, split[1], tiles)
        if not step or ends is None:
            continue
        least, most = ends
        if step > 0:  # 0 <= step*axis + rest < size for some rest of least .. most
            found.append(((-most).ceildiv(step), (size - 1 - least) // step + 1))
        else:
            found.append(((least - size + 1).ceildiv(-step), most // -step + 1))
    return found


def _extremes(
    factors: Mapping[Symbol, Expr], rest: Expr, tiles: Mapping[Symbol, tuple[Expr, int]]
) -> tuple[Expr, Expr] | None:
    """The least and the largest value of a linear expression in a tile; None if an axis has no
    place yet."""
    least = most = rest
    for name, factor in factors.items():
        step = factor.constant
        if name not in tiles or step is None:
            return None
        origin, length = tiles[name]
        reach = step * (length - 1)
        least = least + origin * step + min(reach, 0)
        most = most + origin * step + max(reach, 0)
    return least, most
