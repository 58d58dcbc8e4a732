"""The programs of one launch, evaluated together: axes, values, and the mask of active ones.

Programs that are evaluated together form a box (see `dialects.block.indices`). A tile is an array
with one dim per axis of that box, then one per tile dim; a dim along which the values do not vary
has size 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from xdsl.ir import Operation, SSAValue

from dialects import block as ops
from dialects.block.contract import Contraction, find_contraction
from dialects.block.indices import Box, Index, Linear, unit
from dialects.block.memory import Access
from dialects.ranks.peers import Peers
from dialects.records import dataclass
from dialects.strata.types import Array, BufferType, SizesAttr, TileType, dtype_of, signless
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Kind, Symbol
from dialects.text.syntax import location_name


@dataclass
class Run:
    """The state that all programs of one launch share.

    `written`: the buffers whose memory the kernel writes, so that loads from them are copied.
    `widths` and `contractions` cache properties of operations in the body.
    """

    kernel: ops.KernelOp
    sizes: dict[Symbol, int]
    exact_order: bool
    like: Array | None = None
    """A buffer with an arithmetic of its own, which scratch memory has as well, or None."""
    peers: Peers | None = None
    """The other ranks; None in a process of its own."""
    written: set[SSAValue] = field(default_factory=set[SSAValue])
    widths: dict[Operation, int] = field(default_factory=dict[Operation, int])
    contractions: dict[Operation, Contraction | None] = field(
        default_factory=dict[Operation, Contraction | None])

    def size(self, expr: Expr) -> int:
        return int(expr.evaluate(self.sizes))

    def memory(self, argument: SSAValue, array: Array) -> Array:
        """A signless view of the array. Raises ValueError if it does not fit the argument."""
        type_ = argument.type
        assert isinstance(type_, BufferType)
        shape = tuple(self.size(s) for s in type_.shape)
        if array.shape != shape or array.dtype != type_.dtype or not array.flags.c_contiguous:
            raise ValueError(
                f"kernel @{self.kernel.sym_name.data} takes %{argument.name_hint} as a contiguous "
                f"{type_.short}, here {type_.element}{list(shape)}, not {array.dtype}"
                f"{list(array.shape)}")
        return array.view(dtype_of(signless(type_.element)))

    def find_written(self, memories: Mapping[SSAValue, Array]) -> None:
        """Find the buffers whose memory the kernel writes, including aliases."""
        stored = {op.buffer for op in self.kernel.walk() if isinstance(op, ops.StoreOp)}
        self.written = stored | {
            value for value, memory in memories.items()
            if any(np.may_share_memory(memory, memories[s]) for s in stored & memories.keys())}

    def width(self, op: Operation) -> int:
        """The number of elements of the largest tile or scratch buffer inside an operation."""
        if op not in self.widths:
            self.widths[op] = max(
                (self._elements(r) for o in op.walk() for r in o.results), default=1)
        return self.widths[op]

    def _elements(self, value: SSAValue) -> int:
        match value.type:
            case TileType():
                return prod(value.type.shape)
            case BufferType():
                return prod(map(self.size, value.type.shape))
            case _:
                return 1

    def contraction(self, loop: ops.ForOp) -> Contraction | None:
        """How to evaluate the loop at once; None to run it as written."""
        if loop not in self.contractions:
            self.contractions[loop] = None if self.exact_order else find_contraction(loop)
        return self.contractions[loop]


def _rank(value: SSAValue) -> int:
    return value.type.rank if isinstance(value.type, (TileType, BufferType)) else 0


@dataclass
class Programs:
    """Programs that are evaluated together: their axes, values, and mask of active ones.

    `values` holds tiles and memories as arrays, and index values as `Index`. A value from outside
    a parallel loop has fewer axes than the programs inside it.
    """

    run: Run
    values: dict[SSAValue, Any]
    extents: tuple[int, ...]
    active: Array | None

    @cached_property
    def box(self) -> Box:
        return Box(self.extents)

    def tile(self, value: SSAValue) -> Array:
        """A tile (or an index value, as a tile without dims) with a dim for every axis."""
        found = self.values[value]
        if isinstance(found, Linear):
            return self.box.array(found)
        own = found.ndim - _rank(value)
        missing = (1,) * (len(self.extents) - own)
        return found.reshape(found.shape[:own] + missing + found.shape[own:])

    def placed(self, value: SSAValue, dims: Sequence[int], rank: int) -> Array:
        """A tile whose dims become dims `dims` of a larger tile of `rank` dims."""
        array, axes = self.tile(value), len(self.extents)
        order = sorted(range(len(dims)), key=lambda k: dims[k])
        array = array.transpose(*range(axes), *(axes + k for k in order))
        sizes = dict(zip(sorted(dims), array.shape[axes:], strict=True))
        return array.reshape(array.shape[:axes] + tuple(sizes.get(d, 1) for d in range(rank)))

    def lookup(
        self, indices: Sequence[SSAValue], index_dims: Sequence[Sequence[int]], rank: int
    ) -> Callable[[Symbol], Index]:
        """The lookup of symbols in the index expressions of an operation on `rank` dims."""
        def value_of(symbol: Symbol) -> Index:
            if symbol.kind is Kind.PLACE:
                return unit(len(self.extents) + symbol.number)
            if symbol.kind is not Kind.OPERAND:
                return Linear(self.run.sizes[symbol])
            position = symbol.number
            value = indices[position]
            if not isinstance(value.type, TileType):
                return self.values[value]
            return self.placed(value, index_dims[position], rank).astype(np.int64)

        return value_of

    def index(self, expr: Expr, indices: Sequence[SSAValue]) -> Index:
        """The value of a loop bound; tiles in it have no dims."""
        return self.box.evaluate(expr, self.lookup(indices, [()] * len(indices), 0))

    def tile_index(
        self, expr: Expr, indices: Sequence[SSAValue], dims: Sequence[Sequence[int]],
        shape: Sequence[int],
    ) -> Array:
        """The values of an index expression at every position of a tile."""
        box = Box((*self.extents, *shape))
        return box.array(box.evaluate(expr, self.lookup(indices, dims, len(shape))))

    def access(self, op: ops.LoadOp | ops.StoreOp, shape: Sequence[int]) -> Access:
        memory = self.values[op.buffer]
        own = memory.ndim - _rank(op.buffer)  # a scratch buffer also has its programs' axes
        box = Box((*self.extents, *shape))
        lookup = self.lookup(op.indices, dim_lists(op.index_dims.data), len(shape))
        where = [*map(unit, range(own)), *(box.evaluate(e, lookup) for e in op.exprs)]
        name = location_name(op)
        what = (f"{op.name} of %{op.buffer.name_hint} in kernel @{self.run.kernel.sym_name.data}"
                + (f" (from {name})" if name else ""))
        checked = [own + dim for dim in op.checked_dims]
        return Access(memory, where, box, checked, self.active, what)

    def within(self, trips: int, active: Array | None) -> Programs:
        """The same programs, with the trips of a loop as one more axis."""
        return replace(self, extents=(*self.extents, trips), active=active)


def dim_lists(lists: Sequence[SizesAttr]) -> list[tuple[int, ...]]:
    return [tuple(e.constant or 0 for e in dims.data) for dims in lists]


def tile_type(value: SSAValue) -> TileType:
    assert isinstance(value.type, TileType)
    return value.type
