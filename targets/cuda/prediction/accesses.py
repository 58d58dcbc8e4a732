"""What a load or store of a tile touches in memory, at one program and one trip of its loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from xdsl.ir import SSAValue

from dialects.block import LoadOp, StoreOp
from dialects.block.programs import dim_lists, tile_type
from dialects.strata.types import Array, BufferType, TileType, byte_width
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Kind, Symbol

SECTOR = 32
"""The bytes that memory moves at least (CUDA C++ Programming Guide, "Device Memory Accesses")."""
WORD = 16
"""The most bytes of a thread's load."""
SCATTER = 40503
"""A multiplier that spreads indices which only data know."""


@dataclass(frozen=True)
class Access:
    """`elements` inside the buffer, the `sectors` in which they lie, and the bytes of the `width`
    of a thread's words."""

    elements: int
    sectors: int
    width: int

    @property
    def bytes(self) -> int:
        return self.sectors * SECTOR


Values = Mapping[SSAValue, int]
"""Index values at one point: program ids and loop counters."""


def access_of(op: LoadOp | StoreOp, values: Values, sizes: Mapping[Symbol, int]) -> Access:
    """What the operation touches where index values are these."""
    tile = tile_type(op.result if isinstance(op, LoadOp) else op.value)
    type_ = op.buffer.type
    assert isinstance(type_, BufferType)
    shape = [int(size.evaluate(sizes)) for size in type_.shape]
    where = indices_of(op, tile, values, sizes, shape)
    address, inside = np.zeros(tile.shape, np.int64), np.ones(tile.shape, bool)
    for index, size, step in zip(where, shape, _steps(shape), strict=True):
        address += index * step
        inside &= (index >= 0) & (index < size)
    width = byte_width(type_.element)
    touched = address[inside] * width
    return Access(int(inside.sum()), len(np.unique(touched // SECTOR)), _width(
        address * width, inside, width))


def indices_of(
    op: LoadOp | StoreOp, tile: TileType, values: Values, sizes: Mapping[Symbol, int],
    shape: Sequence[int],
) -> list[Array]:
    """The index of each dim at every position of the tile."""
    known: dict[Symbol, int | Array] = {**sizes}
    for dim, size in enumerate(tile.shape):
        known[Symbol.place(dim)] = _along(np.arange(size), dim, tile.rank)
    places = dim_lists(op.index_dims.data)
    found: list[Array] = []
    for expr, size in zip(op.exprs, shape, strict=True):
        for symbol in expr.symbols:
            if symbol.kind is Kind.OPERAND:
                value = op.indices[symbol.number]
                known[symbol] = values[value] if value in values else (
                    _spread(places[symbol.number], tile, size))
        found.append(np.broadcast_to(expr.evaluate(known), tile.shape))
    return found


def _along(array: Array, dim: int, rank: int) -> Array:
    return array.reshape([-1 if d == dim else 1 for d in range(rank)])


def _spread(dims: Sequence[int], tile: TileType, size: int) -> Array:
    """Indices from data: anywhere in a dim of this size, the same in every prediction."""
    shape = [tile.shape[d] if d in dims else 1 for d in range(tile.rank)]
    return (np.arange(prod(shape)).reshape(shape) * SCATTER + 7) % max(size, 1)


def _steps(shape: Sequence[int]) -> list[int]:
    return [prod(shape[d + 1:]) for d in range(len(shape))]


def _width(address: Array, inside: Array, width: int) -> int:
    """The bytes of the widest aligned words that lie side by side along some dim."""
    best = width
    for dim in range(address.ndim):
        words = WORD
        while words > best and not _are_words(address, inside, dim, words, width):
            words //= 2
        best = max(best, words)
    return best


def _are_words(address: Array, inside: Array, dim: int, words: int, width: int) -> bool:
    each = words // width
    length = address.shape[dim]
    if length % each:
        return False
    split = (*address.shape[:dim], length // each, each, *address.shape[dim + 1:])
    parts, kept = address.reshape(split), inside.reshape(split)
    first = parts.take([0], dim + 1)
    side_by_side = parts - first == _along(np.arange(each), dim + 1, parts.ndim) * width
    whole = kept == kept.take([0], dim + 1)
    return bool((side_by_side & (first % words == 0) & whole | ~kept).all())


def evaluate(expr: Expr, indices: Sequence[SSAValue], values: Values,
             sizes: Mapping[Symbol, int], data: int | None = None) -> int | None:
    """A loop bound. `data`: what stands for numbers that depend on data; None: such a bound is
    None."""
    known: dict[Symbol, int] = {**sizes}
    for symbol in expr.symbols:
        if symbol.kind is Kind.OPERAND:
            value = values.get(indices[symbol.number], data)
            if value is None:
                return None
            known[symbol] = value
    return int(expr.evaluate(known))
