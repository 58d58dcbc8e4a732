"""Every access of a kernel to memory: which index, of which dim, over which ranges.

    block.kernel @k(%x: f32[n, 8]) grid(%p: n) sizes(n) {
      block.for %k = 0 to 8 step 4 {
        %v = block.load %x[%p, %k + t0] : tile<4xf32>

    -> dim 0: index %p0            of n, with 0 <= %p0 <= n - 1
       dim 1: index 4*%c1 + t0     of 8, with 0 <= %c1 <= 1, 0 <= t0 <= 3

What proves that accesses stay inside, and what compiles them with a check, both start from here.
Each index value of the kernel has one symbol, wherever it is used: `%p` of a program id, `%c` of
the trips of a loop, `%d` of values that come from data. A loop's counter is written as its lower
bound plus steps. The ranges stand in order, so that the bounds of one name only those before it;
the operation runs only where none of them is empty. Nothing is known here of values from data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.ir import Block, SSAValue

from dialects.block.kernel_ops import ForOp, KernelOp
from dialects.block.memory_ops import LoadOp, StoreOp
from dialects.block.tile_ops import ConvertOp, IndexOp
from dialects.strata.types import BufferType, TileType
from dialects.symbolic.expr import Expr, computed_once
from dialects.symbolic.inequalities import Span
from dialects.symbolic.symbol import Symbol

Ranges: TypeAlias = Mapping[Symbol, Span]
"""By symbol, the outermost first. None is without end."""


@dataclass
class Symbols:
    """The symbols of one kernel, and the values from data that some of them stand for."""

    data: dict[Symbol, SSAValue] = field(default_factory=dict[Symbol, SSAValue])
    known: dict[tuple[SSAValue, tuple[int, ...]], Expr] = field(
        default_factory=dict[tuple[SSAValue, tuple[int, ...]], Expr])
    """Index values as expressions, by value and by which dims of a tile theirs are."""
    spans: dict[Symbol, Span] = field(default_factory=dict[Symbol, Span])
    """The ranges of all programs and loops, outer ones first."""
    scopes: dict[Block, Scope] = field(default_factory=dict[Block, "Scope"])
    """The places of the kernel: its own body, and those of loops."""
    count: int = 0

    def fresh(self, kind: str) -> Symbol:
        """`p`, `c` or `d`, and a number that no other symbol has."""
        self.count += 1
        return Symbol.operand(f"{kind}{self.count - 1}")


@dataclass(frozen=True)
class Scope:
    """A place in a kernel: the ranges of the programs and of the loops around it."""

    symbols: Symbols
    ranges: Ranges

    @staticmethod
    def of(kernel: KernelOp) -> Scope:
        """The body of a kernel: the ranges of its programs."""
        symbols = Symbols()
        for program, extent in zip(kernel.program_ids, kernel.grid.data, strict=True):
            name = symbols.fresh("p")
            symbols.known[program, ()] = Expr.symbol(name)
            symbols.spans[name] = Span(Expr.of(0), extent - 1)
        scope = symbols.scopes[kernel.body.block] = Scope(symbols, dict(symbols.spans))
        return scope

    def value(self, value: SSAValue, dims: tuple[int, ...]) -> Expr:
        """An index value, or a tile of them whose dims are dims `dims` of the tile asked about."""
        key = value, dims
        if key not in self.symbols.known:
            self.symbols.known[key] = self._new_value(value, dims)
        return self.symbols.known[key]

    def _new_value(self, value: SSAValue, dims: tuple[int, ...]) -> Expr:
        owner = value.owner
        if isinstance(owner, ConvertOp):
            return self.value(owner.value, dims)
        if isinstance(owner, IndexOp):
            own = [tuple(e.constant or 0 for e in d.data) for d in owner.index_dims.data]
            expr = self.resolve(owner.expr.data, owner.indices, own)
            return expr.substitute({place(d): Expr.symbol(place(e)) for d, e in enumerate(dims)})
        name = self.symbols.fresh("d")
        self.symbols.data[name] = value
        return Expr.symbol(name)

    def resolve(
        self, expr: Expr, indices: Sequence[SSAValue], dims: Sequence[tuple[int, ...]] = (),
    ) -> Expr:
        """An expression of an operation over the kernel's symbols."""
        used = [(k, v) for k, v in enumerate(indices) if operand(k) in expr.symbols]
        if not used:
            return expr
        return expr.substitute({
            operand(k): self.value(v, dims[k] if dims else ()) for k, v in used})

    def inside(self, loop: ForOp) -> Scope:
        """The scope of a loop's body."""
        lower, upper = (self.resolve(e.data, loop.indices) for e in (loop.lower, loop.upper))
        step, trip = loop.step.data.constant or 1, self.symbols.fresh("c")
        last = (upper - lower - 1) // step
        self.symbols.known[loop.counter, ()] = lower + Expr.symbol(trip) * step
        span = self.symbols.spans[trip] = Span(Expr.of(0), last)
        scope = Scope(self.symbols, {**self.ranges, trip: span})
        self.symbols.scopes[loop.body.block] = scope
        return scope


@dataclass(frozen=True)
class Access:
    """One dim of the buffer that a load or store names."""

    op: LoadOp | StoreOp
    dim: int
    scope: Scope
    expr: Expr
    """The index as the operation says it."""
    size: Expr
    """The size of the dim, over the kernel's sizes."""
    shape: tuple[int, ...]
    """The dims of the tile."""
    indices: tuple[SSAValue, ...]
    """What the operation's own symbols for operands stand for."""

    @staticmethod
    def all_of(op: LoadOp | StoreOp, scope: Scope) -> Iterator[Access]:
        """One for each dim of the buffer."""
        buffer, indices = op.buffer.type, tuple(op.indices)
        tile = (op.result if isinstance(op, LoadOp) else op.value).type
        assert isinstance(tile, TileType) and isinstance(buffer, BufferType)
        for dim, (expr, size) in enumerate(zip(op.exprs, buffer.shape, strict=True)):
            yield Access(op, dim, scope, expr, size, tile.shape, indices)

    @property
    def is_checked(self) -> bool:
        """Whether the index may lie outside: then the pad is read, or nothing written."""
        return self.dim in self.op.checked_dims

    @computed_once
    def index(self) -> Expr:
        """The index, over symbols of `ranges`, of `data`, and sizes."""
        dims = [tuple(e.constant or 0 for e in d.data) for d in self.op.index_dims.data]
        return self.scope.resolve(self.expr, self.indices, dims)

    @property
    def ranges(self) -> Ranges:
        """Of the programs, the loops around, and the positions inside the tile, in this order."""
        places = {place(d): Span(Expr.of(0), Expr.of(n - 1)) for d, n in enumerate(self.shape)}
        return {**self.scope.ranges, **places}

    @property
    def data(self) -> Mapping[Symbol, SSAValue]:
        """The tiles of values that symbols stand for, which are no index values by themselves."""
        return self.scope.symbols.data


def accesses_of(kernel: KernelOp, scope: Scope | None = None) -> Iterator[Access]:
    """Every dim of every load and store of a kernel, in program order.

    `scope`: the kernel's, if the caller has it already.
    """
    yield from _accesses(kernel.body.block, scope or Scope.of(kernel))


def _accesses(block: Block, scope: Scope) -> Iterator[Access]:
    for op in block.ops:
        if isinstance(op, LoadOp | StoreOp):
            yield from Access.all_of(op, scope)
        elif isinstance(op, ForOp):
            yield from _accesses(op.body.block, scope.inside(op))


# ---------------------------------------------------------------------- the symbols of operations
def operand(number: int) -> Symbol:
    """The symbol of an index operand in an operation's own expressions."""
    return Symbol.operand(number)


def place(dim: int) -> Symbol:
    """The symbol of the position along a tile's dim."""
    return Symbol.place(dim)
