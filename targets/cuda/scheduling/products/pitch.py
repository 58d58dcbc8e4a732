"""Which factors of a product are copied, so that their rows begin at multiples of a cache line, or
of a word.

Rows of an odd number of 16-bit floats are loaded one element at a time, and none of these loads can
be asynchronous: 1952x448 @ 448x1313 took 2.3 times as long as with a padded factor. The copy
costs a pass over the factor and a launch, so that programs must read it several times, or wait for
memory several times: without asynchronous loads, no tile is on its way while another is multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from xdsl.ir import SSAValue

from dialects.loop import KernelOp, NestOp
from dialects.strata.types import TensorType
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.contract import Border, Panel
from passes.rewrites.loop.nests import data_inputs
from targets.cuda.scheduling.products.time import Skew
from targets.cuda.scheduling.roles import Roles, symbols_of
from targets.cuda.scheduling.tiles import power, width_of

WORD, LEAST = 16, 4
"""The bytes of the widest load, and of the narrowest asynchronous one."""
AGAIN = 1024
"""How many rows of the other factor there are at least."""
LONG, SOME = 1024, 256
"""... or the least terms of a sum, over which a program waits for longer than a copy takes, and the
least rows of the other factor then."""
MOST_ADDED = 8
"""Rows of a copy are cache lines where that makes them at most one part in so many longer."""
WIDEST = 128
"""The most columns of a panel of a factor whose elements lie apart."""
PLACES = 4096
"""The fewest such elements: fewer are loaded in less time than the launch of a copy takes."""


def odd_factors(kernel: KernelOp, nest: NestOp, roles: Roles) -> Mapping[int, Border] | None:
    """How to copy the factors of a `tl.dot` of rows by columns whose rows lie so; None: not."""
    if sum(map(is_contraction, kernel.nests)) > 1:
        return None
    found = {k: Border(_matrix(nest, k), padded=False, multiple=_multiple(v))
             for k, v in enumerate(nest.inputs) if v in kernel.body.block.args
             and _is_copied(nest, k, roles)}
    return found or None


def _multiple(value: SSAValue) -> int:
    """Of how many elements the rows of a copy are a multiple: of those of a cache line, unless that
    adds more than a part in MOST_ADDED to them."""
    type_, width = value.type, width_of(value)
    assert isinstance(type_, TensorType)
    size = type_.shape[-1].constant or 0
    return next((n for n in (Skew.LINES // width, Skew.SECTORS // width)
                 if MOST_ADDED * (-size % n) <= size), WORD // width)


def scattered_factors(kernel: KernelOp, nest: NestOp, roles: Roles) -> Mapping[int, Panel]:
    """How to copy factors of which no two elements that are read lie side by side, such as one tap
    of a filter, where many rows or columns read them."""
    [summed], own = roles.reduce, {*roles.rows, *roles.columns}
    if sum(map(is_contraction, kernel.nests)) > 1:
        return {}
    found: dict[int, Panel] = {}
    for k, value in enumerate(nest.inputs):
        axes = symbols_of(nest.input_maps[k])
        if (value in kernel.body.block.args and len(axes) == 2 and summed in axes and axes & own
                and _is_scattered(nest, k) and _is_read_again(nest, k, roles)):
            [axis] = axes & own
            found[k] = Panel(axis, power(kernel.axes[axis], WIDEST), (summed,))
    return found


def _is_scattered(nest: NestOp, position: int) -> bool:
    """Whether an input ends in a dim of which only one place is read, and many such places are."""
    type_ = nest.inputs[position].type
    assert isinstance(type_, TensorType)
    read = [a.extent.constant or 0 for a in nest.axes
            if a.name in symbols_of(nest.input_maps[position])]
    sizes = [(e, s.constant) for e, s in zip(nest.input_maps[position], type_.shape, strict=True)
             if s.constant != 1]
    return bool(sizes) and sizes[-1][0].constant is not None and prod(read) >= PLACES


def lone_factors(nest: NestOp, roles: Roles) -> tuple[bool, bool]:
    """Whether the rows' and the columns' factor are loaded element by element: their rows begin at
    addresses that no asynchronous load allows, and they are not copied."""
    def is_lone(axes: Sequence[Symbol]) -> bool:
        own = [k for k in data_inputs(nest) if symbols_of(nest.input_maps[k]) & {*axes}]
        return len(own) == 1 and _is_apart(nest, own[0], roles) and not _is_copied(
            nest, own[0], roles)

    return is_lone(roles.rows), is_lone(roles.columns)


def skew_of(nest: NestOp, roles: Roles) -> tuple[Skew, Skew, Skew]:
    """Where the rows of the rows' factor, of the columns' factor, and of the result begin."""
    def factor(axes: Sequence[Symbol]) -> SSAValue | None:
        return next((nest.inputs[k] for k in data_inputs(nest)
                     if symbols_of(nest.input_maps[k]) & {*axes}), None)

    return (_skew(factor(roles.rows)), _skew(factor(roles.columns)), _skew(nest.results[0]))


def _skew(value: SSAValue | None) -> Skew:
    """Of a matrix in memory; lines, where its pitch is not known."""
    if value is None or not isinstance(value.type, TensorType) or value.type.rank < 2:
        return Skew.LINES
    pitch = value.type.shape[-1].constant
    return Skew.LINES if pitch is None else Skew.of(pitch * width_of(value))


def _is_apart(nest: NestOp, position: int, roles: Roles) -> bool:
    """Whether what lies side by side in memory, of one role, has a known length that is no multiple
    of the least load."""
    type_ = nest.inputs[position].type
    assert isinstance(type_, TensorType)
    sizes = [(e.symbols, s.constant) for e, s in zip(
        nest.input_maps[position], type_.shape, strict=True) if s.constant != 1]
    side = next((names for names in (roles.rows, roles.columns, roles.reduce)
                 if sizes and sizes[-1][0] & {*names}), ())
    length = 1
    while sizes and sizes[-1][0] <= {*side, *roles.batch} and sizes[-1][1] is not None:
        length *= sizes.pop()[1] or 1
    return length > 1 and bool(sizes) and bool(length * width_of(nest.inputs[position]) % LEAST)


def _is_copied(nest: NestOp, position: int, roles: Roles) -> bool:
    """Whether a matrix, or one of a stack of them, has rows of a known length that is no multiple
    of the least load, and enough rows of the other factor are multiplied with it."""
    type_ = nest.inputs[position].type
    assert isinstance(type_, TensorType)
    count, size = ([type_.shape[d].constant for d in _matrix(nest, position)] + [None] * 2)[:2]
    known = count is not None and not nest.pad_values[position]
    width = width_of(nest.inputs[position])
    return known and width == 2 and size is not None and size > 1 and bool(
        size * width % LEAST) and _is_read_again(nest, position, roles)


def _matrix(nest: NestOp, position: int) -> tuple[int, ...]:
    """The last two dims of a factor of which all others are read at one place; else none."""
    place = nest.input_maps[position]
    dims = range(len(place))
    return tuple(dims[-2:]) if len(dims) >= 2 and all(
        place[d].constant is not None for d in dims[:-2]) else ()


def _is_read_again(nest: NestOp, position: int, roles: Roles) -> bool:
    own = symbols_of(nest.input_maps[position])
    others = [a for a in (*roles.rows, *roles.columns) if a not in own]
    other, terms = _size(nest, others), _terms(nest, position, roles)
    return other >= AGAIN or (other >= SOME and terms >= LONG)


def _terms(nest: NestOp, position: int, roles: Roles) -> int:
    """The terms of a sum, of all its parts if it is split; 0 where they are open."""
    type_ = nest.inputs[position].type
    assert isinstance(type_, TensorType)
    return next((size.constant or 0 for at, size in zip(
        nest.input_maps[position], type_.shape, strict=True) if at.symbols & {*roles.reduce}), 0)


def _size(nest: NestOp, names: Sequence[Symbol]) -> int:
    """The elements of one axis; 0 for several, or where they are open."""
    extents = {a.name: a.extent.constant for a in nest.axes}
    return (extents[names[0]] or 0) if len(names) == 1 else 0
