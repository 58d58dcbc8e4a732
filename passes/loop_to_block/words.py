"""Rows that start at unaligned addresses: a prologue runs up to the first aligned vector load.

    for i1 = 0 to 50257 step 4096                          a row of 50257 begins at 50257*i0
    ->  i1 from 0, below h = 8*((i0 + 7) floordiv 8) - i0  up to 7 elements
        for k = 0 to 49152 step 4096: i1 = h + k           whole tiles that start at aligned words
        i1 from h + 49152                                  the rest

A schedule gives the word size in elements (`words`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dialects.loop import NestOp
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.loop_to_block.state import AxisState
from passes.rewrites.loop.nests import Read, gathered_inputs, reads_of


class Parts(NamedTuple):
    """An axis in three parts. The first one ends at `head`. Then come `whole` elements in whole
    tiles, and the rest is in a tile of length `rest`."""

    head: Expr
    whole: int
    rest: int


def parts(
    nests: Sequence[NestOp], axis: Symbol, states: Mapping[Symbol, AxisState], tile: int, word: int
) -> Parts | None:
    """How nests walk an axis in tiles; None where they can just as well start at its first element.
    """
    state = states[axis]
    length = state.upper.constant
    if state.lower != Expr.of(0) or length is None or length < word + tile:
        return None
    rows = [r for nest in nests for r in reads_of(nest) if _runs_along(r, axis, states)]
    if not rows:
        return None
    begin = _begin(max(rows, key=lambda r: len(_symbols(r.map))), states)
    head = begin.ceildiv(word) * word - begin
    if not head.terms:
        return None
    whole = (length - (word - 1)) // tile * tile
    return Parts(head, whole, 1 << (length - whole - 1).bit_length())


def _runs_along(read: Read, axis: Symbol, states: Mapping[Symbol, AxisState]) -> bool:
    """Whether a read walks contiguous rows of a tensor along an axis, one row at a time."""
    assert isinstance(read.value.type, TensorType)
    if not read.map or read.pad is not None or gathered_inputs(read.map):
        return False
    *outer, last = read.map
    placed = all(states[s].origin is not None and states[s].tile == 1
                 for s in _symbols(outer) if s in states)
    known = all(e.constant is not None for e in read.value.type.shape)
    return last.as_symbol == axis and axis not in _symbols(outer) and placed and known


def _symbols(map_: Iterable[Expr]) -> set[Symbol]:
    return {s for e in map_ for s in e.symbols}


def _begin(read: Read, states: Mapping[Symbol, AxisState]) -> Expr:
    """The offset in elements at which a row starts in its tensor."""
    assert isinstance(read.value.type, TensorType)
    origins = {a: s.origin for a, s in states.items() if s.origin is not None}
    begin = Expr.of(0)
    for dim, expr in enumerate(read.map[:-1]):
        begin = begin + expr.substitute(origins) * product(read.value.type.shape[dim + 1:])
    return begin
