"""What the axes of a convolution are: rows, columns, sums, windows, and which run along memory.

    nest (n, i, j, o, reduce c, p, q) ins(%x[n, i + p, j + q, c], %w[o, c, p, q])
    rows n, i, j; columns o; summed c, p, q

In a gradient of a filter, most of what is summed are positions, and rows are channels and taps:

    nest (c, o, p, q, reduce n, i, j) ins(%x[n, i + p, j + q, c], %y[n, i, j, o])
    rows c, p, q; columns o; summed n, i, j
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod

import numpy as np

from dialects.loop import NestOp, extents_of
from dialects.strata.types import TensorType, byte_width, is_float
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import upper_bound
from dialects.symbolic.symbol import Symbol
from passes.loop_to_block.compute import is_dot, is_guarded_dot
from targets.cuda.scheduling.products.tiles import SIZES
from targets.cuda.scheduling.products.time import WORD
from targets.cuda.scheduling.roles import Roles
from targets.cuda.scheduling.tiles import width_of
from targets.options import TargetOptions

OPEN = 16
"""The value that stands for an unknown size."""
APART = 32
"""From how many channels on rows of words that are not whole are tiled apart for each tap."""


# ---------------------------------------------------------------------- which kernels
def is_convolution(nest: NestOp) -> bool:
    """Whether a nest is a convolution of floats, rather than a plain matrix product."""
    return convolution_roles(nest) is not None


def convolution_roles(nest: NestOp) -> Roles | None:
    """Rows are the axes of the data alone, columns those of the filter; None for other nests."""
    data = data_of(nest)
    if data is None:
        return None
    walked, filtered = (set[Symbol]().union(*(e.symbols for e in nest.input_maps[k]))
                        for k in (data, 1 - data))
    parallel = [a.name for a in nest.parallel_axes]
    roles = Roles(tuple(a for a in parallel if a in walked & filtered),
                  tuple(a for a in parallel if a not in filtered),
                  tuple(a for a in parallel if a not in walked),
                  tuple(a.name for a in nest.reduce_axes))
    return roles if roles.rows and roles.columns else None


def data_of(nest: NestOp) -> int | None:
    """The factor that has a dim indexed with a stride, or by its own and summed axes together."""
    result = nest.results[0].type
    assert isinstance(result, TensorType)
    if not (is_dot(nest) or is_guarded_dot(nest)) or not is_float(result.element) or (
            byte_width(result.element) > 4):
        return None
    walked = [set[Symbol]().union(*(e.symbols for e in m)) for m in nest.input_maps]
    summed, own = {a.name for a in nest.reduce_axes}, walked[0] ^ walked[1]
    found = [k for k, map_ in enumerate(nest.input_maps)
             if any(e.symbols & own and (e.symbols & summed or _is_strided(e)) for e in map_)]
    return found[0] if len(found) == 1 else None


def _is_strided(expr: Expr) -> bool:
    """Whether the expression is one axis times a stride of at least 2."""
    return len(expr.symbols) == 1 and any(abs(c) > 1 for monomial, c in expr.terms if monomial)


def is_narrow(nest: NestOp, options: TargetOptions) -> bool:
    """Whether tensor cores multiply."""
    return max(map(width_of, nest.inputs)) <= 2 or options.precision == "tf32"


def word_of(nest: NestOp, position: int) -> int:
    """How many elements of an input a lane loads at once."""
    return WORD // width_of(nest.inputs[position])


# ---------------------------------------------------------------------- windows and memory
def windowed(nest: NestOp) -> tuple[int, Roles]:
    """The data's position, and the roles, of a convolution."""
    roles, data = convolution_roles(nest), data_of(nest)
    assert roles is not None and data is not None
    return data, roles


def tiled_roles(nest: NestOp) -> Roles | None:
    """The roles as they are tiled: taps that are not fused with the rows count as a batch."""
    roles = convolution_roles(nest)
    if roles is None or len(roles.rows) == 1 or not rows_run(nest):
        return roles
    return apart(nest, roles)


def apart(nest: NestOp, roles: Roles) -> Roles:
    """The roles if each tap is a product of its own."""
    channels = innermost(nest)
    return replace(roles, batch=(*roles.batch, *(a for a in roles.rows if a not in channels)),
                   rows=tuple(a for a in roles.rows if a in channels))


def taps_apart(nest: NestOp, options: TargetOptions) -> bool:
    """Whether the rows of a gradient are tiled tap by tap: where channels do not fill words, lanes
    load words only if no tile holds several taps."""
    if not rows_run(nest) or not is_narrow(nest, options):
        return False
    data, roles = windowed(nest)
    channels = _extent(nest, data, roles, roles.rows)
    return channels >= APART and channels % word_of(nest, data) != 0


def rows_run(nest: NestOp) -> bool:
    """Whether rows and columns, rather than summed axes, are contiguous in the two factors, or are
    to be: in a gradient, most of what is summed are positions, and rows are channels."""
    data, roles = windowed(nest)
    last = [nest.input_maps[k][-1].symbols for k in (data, 1 - data)]
    if all(found and found <= {*own} for found, own in zip(
            last, (roles.rows, roles.columns), strict=True)):
        return True
    rows, summed = (_extent(nest, data, roles, axes) for axes in (roles.rows, roles.reduce))
    places, taps = (_beside(nest, data, roles, axes) for axes in (roles.rows, roles.reduce))
    is_gradient = places < taps and rows >= min(summed, SIZES[0])
    return is_gradient and bool(last[0] & {*roles.rows}) and not _are_patches(nest, data, roles)


def _are_patches(nest: NestOp, data: int, roles: Roles) -> bool:
    """Whether the windows of rows do not overlap, as those of 16*i + p with p < 16: such rows are
    positions, though they may be fewer than the taps."""
    extents = extents_of(nest.axes)
    for expr in nest.input_maps[data]:
        terms = [(Expr((term,)), term[1]) for term in expr.terms if term[0]]
        steps = [factor for part, factor in terms if part.symbols & {*roles.rows}]
        window = sum((part for part, _ in terms if part.symbols <= {*roles.reduce}), Expr.of(0))
        last = upper_bound(window, extents)
        if window.symbols and last is not None and 0 < (last.constant or 0) < gcd(*steps):
            return True
    return False


def places_of(nest: NestOp) -> int:
    """How many rows there are for each index of the dims that only rows index."""
    data, roles = windowed(nest)
    return _beside(nest, data, roles, roles.rows)


def channels_of(nest: NestOp) -> int:
    """How many indices there are of the data's dims that only summed axes index."""
    data, roles = windowed(nest)
    return _extent(nest, data, roles, roles.reduce)


def _beside(nest: NestOp, data: int, roles: Roles, axes: Sequence[Symbol]) -> int:
    """How many indices the axes have for each index of the data's dims that only they index."""
    sizes = sizes_of(nest)
    return max(1, prod(sizes[a] for a in axes) // _extent(nest, data, roles, axes))


def _extent(nest: NestOp, data: int, roles: Roles, axes: Sequence[Symbol]) -> int:
    """How many indices there are of the data's dims that only these axes index."""
    extents = {a: Expr.of(n) for a, n in sizes_of(nest).items()}
    last = [upper_bound(nest.input_maps[data][d].substitute(dict.fromkeys(roles.batch, 0)), extents)
            for d in _dims(nest, data, roles, axes)]
    return prod(max(1, (e.constant or 0) + 1) for e in last if e is not None)


def innermost(nest: NestOp) -> set[Symbol]:
    """The rows or the summed axes that are to be contiguous in the data."""
    data, roles = windowed(nest)
    map_ = nest.input_maps[data]
    if rows_run(nest):
        return {s for d in dims_of(nest, data, roles.rows) for s in map_[d].symbols}
    return channel_axes(nest)


def channel_axes(nest: NestOp) -> set[Symbol]:
    """Summed axes in dims of the data that no row indexes."""
    data, roles = windowed(nest)
    return {s for e in nest.input_maps[data] if not e.symbols & {*roles.rows}
            for s in e.symbols & {*roles.reduce}}


def dims_of(nest: NestOp, position: int, axes: Sequence[Symbol]) -> list[int]:
    """The dims of an input that only these axes index, besides groups of channels, and besides the
    number of a part of a sum."""
    _, roles = windowed(nest)
    return _dims(nest, position, roles, axes)


def _dims(nest: NestOp, position: int, roles: Roles, axes: Sequence[Symbol]) -> list[int]:
    others = {*roles.batch} if {*axes} <= {*roles.reduce} else groups_of(nest, roles)
    own = [e.symbols - others for e in nest.input_maps[position]]
    return [d for d, symbols in enumerate(own) if symbols and symbols <= {*axes}]


def groups_of(nest: NestOp, roles: Roles) -> set[Symbol]:
    """The batch axes that are groups of channels: with columns, they index a dim of the result."""
    return {s for e in nest.output_maps[0] if e.symbols & {*roles.columns}
            for s in e.symbols & {*roles.batch}}


def size_of(nest: NestOp, position: int, dim: int) -> int:
    """The size of an input's dim."""
    type_ = nest.inputs[position].type
    assert isinstance(type_, TensorType)
    return type_.shape[dim].constant or OPEN


def sizes_of(nest: NestOp) -> dict[Symbol, int]:
    return {a.name: int(a.extent.evaluate(dict.fromkeys(a.extent.symbols, OPEN)))
            for a in nest.axes}


def run_of(nest: NestOp) -> int:
    """How far the summed axis runs through the channels of one position of the window."""
    data, roles = windowed(nest)
    sizes, map_ = sizes_of(nest), nest.input_maps[data]
    if rows_run(nest):
        return prod(sizes[a] for a in roles.reduce)
    if len(roles.reduce) != 1:
        return prod(sizes[a] for a in channel_axes(nest))
    summed = roles.reduce[0]
    last = map_[-1].substitute(dict.fromkeys(roles.batch, 0))
    if last.symbols != frozenset([summed]):
        return 1
    positions = np.arange(sizes[summed])
    beyond = np.flatnonzero(last.evaluate({summed: positions}) != positions)
    return max(1, int(beyond[0])) if len(beyond) else sizes[summed]
