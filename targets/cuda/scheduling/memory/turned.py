"""Schedule rules of the CUDA target for copies whose source and result run along different axes.

    nest (i: 67, j: 27, k: 465, l: 7) ins(%x[l, k, j, i]) outs(%y[i, j, k, l])
    ->  nest (i: 1809, k: 3255) ins(%x[k mod 7, k floordiv 7, i floordiv 67, i mod 67])
            outs(%y[i mod 67, i floordiv 67, k floordiv 7, k mod 7])

A program reads rows of a tile along the one and stores columns of it along the other. Axes that are
shorter than a tile's side would leave most of it empty, so that each side is an axis fused of those
that lie one after another in memory. An axis whose digits the source walks in another order, as
that of a packed filter (`%x[o, i mod 160, i floordiv 160]`), is first divided into them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from dialects.loop import Axis, KernelOp, NestOp, extents_of
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import shape_of
from dialects.symbolic.digits import recomposed
from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.rewrites.loop.axis_fusion import can_fuse, fuse_axes
from passes.rewrites.loop.nests import gathered_inputs, has_calls, replace_nest, substitute_axes
from targets.cuda.machine import machine_of
from targets.cuda.scheduling.tiles import even_power, finish, power, width_of
from targets.options import TargetOptions

SHORT, BIG, BIG_WARPS = 32, 4096, 8
"""The shortest side of a tile; from how many elements on a tile has more than four warps."""


def prepare_turned(kernel: KernelOp, options: TargetOptions) -> bool:
    """Fuse the axes of both sides; False, and no change, if tiles of single axes are as full."""
    nest = _copy(kernel)
    if nest is None:
        return False
    walked = _in_digits(nest)
    side = machine_of(options.features).fitted.rows.side // width_of(nest.inputs[0])
    sides = _sides(walked, side)
    if sides is None:
        if walked is not nest:
            walked.erase()
        return False
    if walked is not nest:
        replace_nest(nest, walked)
    for names in sides:
        if can_fuse(kernel, names):
            fuse_axes(kernel, names)
    return True


def _copy(kernel: KernelOp) -> NestOp | None:
    """The nest of a kernel that moves the elements of one tensor of known sizes."""
    nest = kernel.nests[0]
    moves = len(kernel.nests) == 1 and nest.is_elementwise and len(nest.inputs) == 1 and (
        len(nest.results) == 1 and not nest.into and not nest.unordered)
    known = all(a.extent.constant for a in nest.axes)
    return nest if moves and known and not gathered_inputs(nest.input_maps[0]) else None


# ---------------------------------------------------------------------- digits of an axis
def _in_digits(nest: NestOp) -> NestOp:
    """The nest with an axis for each digit that its maps read off one; the same if there are none.
    """
    axes, values = list[Axis](), dict[Symbol, Expr | int]()
    for axis in nest.axes:
        worth = _worth(nest, axis)
        if len(worth) <= 1:
            axes.append(axis)
            continue
        ends = [*worth[1:], axis.extent.constant or 1]
        names = [axis.name.followed_by(f"d{k}") for k in range(len(worth))]
        axes += [Axis(name, Expr.of(end // low)) for name, low, end in zip(
            names, worth, ends, strict=True)][::-1]
        values[axis.name] = sum((Expr.symbol(n) * low for n, low in zip(names, worth, strict=True)),
                                Expr.of(0))
    return substitute_axes(nest, axes, values) if values else nest


def _worth(nest: NestOp, axis: Axis) -> list[int]:
    """What each digit of an axis is worth, the smallest first; only 1 where there are no digits."""
    own, found = Expr.symbol(axis.name), {1}
    for expr in (*nest.input_maps[0], *nest.output_maps[0]):
        for atom in (a for monomial, _ in expr.terms for a in monomial if isinstance(a, Call)):
            if axis.name in atom.symbols:
                places = _places(atom, own)
                if places is None:
                    return [1]
                found |= places
    worth = sorted(found - {axis.extent.constant})
    chain = [*worth, axis.extent.constant or 1]
    exact = all(b % a == 0 for a, b in pairwise(chain))
    return worth if exact else [1]


def _places(atom: Call, own: Expr) -> set[int] | None:
    """Where `own floordiv n`, `own mod n` and `(own floordiv n) mod m` begin and end a digit."""
    left, right = atom.args[0], atom.args[1].constant or 0
    if right <= 0 or atom.op not in ("floordiv", "mod"):
        return None
    if left == own:
        return {right}
    match left.terms:
        case ((((Call("floordiv", (inner, low)),), 1),)) if inner == own and low.constant:
            return {low.constant, low.constant * right}
        case _:
            return None


# ---------------------------------------------------------------------- both sides of a tile
def _sides(nest: NestOp, side: int) -> tuple[list[Symbol], list[Symbol]] | None:
    """The axes of the rows of a tile and those of its columns, the innermost last; None if it has
    no two sides, or if single axes fill them."""
    extents = {a: e.constant or 1 for a, e in extents_of(nest.axes).items()}
    read = _run(nest.input_maps[0], [s.constant for s in shape_of(nest.inputs[0])], extents)
    stored = _run(nest.output_maps[0], [s.constant for s in shape_of(nest.results[0])], extents)
    if not read or not stored or read[0] == stored[0]:
        return None
    rows = _grown(read, stored[:1], extents, side)
    columns = _grown(stored, rows, extents, side)
    uneven = any(len(x) > 1 and extents[x[0]] & (extents[x[0]] - 1) for x in (rows, columns))
    return (rows[::-1], columns[::-1]) if uneven else None


def _run(
    map_: Sequence[Expr], shape: Sequence[int | None], extents: dict[Symbol, int]
) -> list[Symbol]:
    """The axes that run through memory one after another, the fastest first."""
    found = list[Symbol]()
    for expr, size in zip(map_[::-1], shape[::-1], strict=True):
        axis = expr.as_symbol
        if size == 1:
            continue
        if axis is None or axis not in extents:
            break
        found.append(axis)
        if extents[axis] != size:
            break
    return found


def _grown(
    run: Sequence[Symbol], others: Sequence[Symbol], extents: dict[Symbol, int], side: int
) -> list[Symbol]:
    """The first axes of a run, until they fill a side."""
    taken = [run[0]]
    for axis in run[1:]:
        if axis in others or prod(extents[a] for a in taken) >= side:
            break
        taken.append(axis)
    return taken


# ---------------------------------------------------------------------- the schedule
def schedule_turned(kernel: KernelOp, options: TargetOptions) -> Schedule | None:
    """Square tiles, the largest that leave two programs for each multiprocessor; None for kernels
    that `prepare_turned` has left as they were."""
    nest = _copy(kernel)
    if nest is None or not (has_calls(nest.input_maps[0]) or has_calls(nest.output_maps[0])):
        return None
    machine = machine_of(options.features)
    along = [_fastest(map_, shape_of(v)) for map_, v in (
        (nest.input_maps[0], nest.inputs[0]), (nest.output_maps[0], nest.results[0]))]
    if None in along or along[0] == along[1]:
        return None
    extents = kernel.axes
    count = product(extents.values()).constant or 1
    side = machine.fitted.rows.side // max(width_of(nest.inputs[0]), width_of(nest.results[0]))
    while side > SHORT and count < 2 * machine.multiprocessors * side * side:
        side //= 2
    tiles = {a: even_power(extents[a], side) if (extents[a].constant or 1) > side else power(
        extents[a], side) for a in along if a is not None}
    longer = max(tiles, key=lambda a: extents[a].constant or 1)
    while 4 * prod(tiles.values()) <= side * side and tiles[longer] < (
            extents[longer].constant or 1):
        tiles[longer] *= 2
    levels = [Level("grid", a, tiles.get(a, 1)) for a in extents]
    warps = BIG_WARPS if prod(tiles.values()) >= BIG else 4
    return finish(kernel, levels, tails="mask", warps=warps)


def _fastest(map_: Sequence[Expr], shape: Sequence[Expr]) -> Symbol | None:
    """The axis of which neighbouring indices are neighbours in memory."""
    steps = [product(shape[d + 1:]) for d in range(len(shape))]
    address = recomposed(sum((e * s for e, s in zip(map_, steps, strict=True)), Expr.of(0)))
    return next((monomial[0] for monomial, factor in address.terms if factor == 1
                 and len(monomial) == 1 and isinstance(monomial[0], Symbol)), None)
