"""All memory accesses of a kernel: the index of each dim and the ranges of its symbols.

    block.kernel @k(%x: f32[n, 8]) grid(%p: n) sizes(n) {
      block.for %k = 0 to 8 step 4 {
        %v = block.load %x[%p, %k + t0] : tile<4xf32>

    -> dim 0: index %p0            of n, with 0 <= %p0 <= n - 1
       dim 1: index 4*%c1 + t0     of 8, with 0 <= %c1 <= 1, 0 <= t0 <= 3

Both the proof that accesses are in bounds and the insertion of checks start from this description.
Each index value of the kernel has one symbol wherever it is used: `%p` for a program id, `%c` for
the trip number of a loop, `%d` for values loaded from data. A loop counter is written as its lower
bound plus a number of steps. The ranges are ordered, so that the bounds of a range only mention
symbols of earlier ones. An operation only executes where none of its ranges is empty. Values from
data have no ranges here, and the counter of a loop whose bounds they decide is a symbol of its own,
between what the bounds are for any data: of max(%d, 0) to min(%d, n), it is 0 <= %c <= n - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, TypeAlias

from xdsl.ir import Block, SSAValue

from dialects.block.kernel_ops import ForOp, KernelOp
from dialects.block.memory_ops import LoadOp, StoreOp
from dialects.block.tile_ops import ConvertOp, IndexOp
from dialects.records import dataclass
from dialects.strata.types import BufferType, TileType
from dialects.symbolic.expr import Atom, Expr, apply_call
from dialects.symbolic.inequalities import Span
from dialects.symbolic.remembered import computed_once
from dialects.symbolic.symbol import Symbol
from dialects.walking import listed

Ranges: TypeAlias = Mapping[Symbol, Span]
"""The range of each symbol, the outermost first. A bound of None means unbounded."""


@dataclass
class Symbols:
    """The symbols of one kernel, and the data-dependent values that some of them denote."""

    data: dict[Symbol, SSAValue] = field(default_factory=dict[Symbol, SSAValue])
    known: dict[tuple[SSAValue, tuple[int, ...]], Expr] = field(
        default_factory=dict[tuple[SSAValue, tuple[int, ...]], Expr])
    """Index values as expressions, keyed by the value and the tile dims to which its dims map."""
    spans: dict[Symbol, Span] = field(default_factory=dict[Symbol, Span])
    """The ranges of all programs and loops, outer ones first."""
    scopes: dict[Block, Scope] = field(default_factory=dict[Block, "Scope"])
    """The scopes of the kernel: its body and the bodies of its loops."""
    count: int = 0

    def fresh(self, kind: str) -> Symbol:
        """A fresh symbol: `p`, `c` or `d`, followed by a unique number."""
        self.count += 1
        return Symbol.operand(f"{kind}{self.count - 1}")


class Scope(NamedTuple):
    """A block in a kernel, with the ranges of the programs and of the enclosing loops."""

    symbols: Symbols
    ranges: Ranges

    @staticmethod
    def of(kernel: KernelOp) -> Scope:
        """The scope of a kernel's body, with the ranges of its programs."""
        symbols = Symbols()
        for program, extent in zip(kernel.program_ids, kernel.grid.data, strict=True):
            name = symbols.fresh("p")
            symbols.known[program, ()] = Expr.symbol(name)
            symbols.spans[name] = Span(Expr.of(0), extent - 1)
        scope = symbols.scopes[kernel.body.block] = Scope(symbols, dict(symbols.spans))
        return scope

    def value(self, value: SSAValue, dims: tuple[int, ...]) -> Expr:
        """An index value as an expression. The dims of a tile of indices map to `dims`."""
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
        """An operation's expression, rewritten over the kernel's symbols."""
        used = [(k, v) for k, v in enumerate(indices) if operand(k) in expr.symbols]
        if not used:
            return expr
        return expr.substitute({
            operand(k): self.value(v, dims[k] if dims else ()) for k, v in used})

    def inside(self, loop: ForOp) -> Scope:
        """The scope of a loop's body."""
        lower, upper = (self.resolve(e.data, loop.indices) for e in (loop.lower, loop.upper))
        step, trip = loop.step.data.constant or 1, self.symbols.fresh("c")
        if self.symbols.data.keys().isdisjoint(lower.symbols | upper.symbols):
            last = (upper - lower - 1) // step
            self.symbols.known[loop.counter, ()] = lower + Expr.symbol(trip) * step
            span = Span(Expr.of(0), last)
        else:
            first, end = (bound_without(e, self.symbols.data, upper=is_end)
                          for e, is_end in ((lower, False), (upper, True)))
            self.symbols.known[loop.counter, ()] = Expr.symbol(trip)
            span = Span(first, None if end is None else end - 1)
        self.symbols.spans[trip] = span
        scope = Scope(self.symbols, {**self.ranges, trip: span})
        self.symbols.scopes[loop.body.block] = scope
        return scope


@dataclass(eq=False)
class Access:
    """The access of a load or store along one dim of its buffer."""

    op: LoadOp | StoreOp
    dim: int
    scope: Scope
    expr: Expr
    """The index expression as written in the operation."""
    size: Expr
    """The size of the dim, over the kernel's sizes."""
    shape: tuple[int, ...]
    """The dims of the tile."""
    indices: tuple[SSAValue, ...]
    """The operands that the operation's own symbols denote."""
    index_dims: tuple[tuple[int, ...], ...]
    """For each operand, the dims of the tile to which its own dims map."""

    @staticmethod
    def all_of(op: LoadOp | StoreOp, scope: Scope) -> list[Access]:
        """One access for each dim of the buffer."""
        buffer, indices = op.buffer.type, tuple(op.indices)
        tile = (op.result if isinstance(op, LoadOp) else op.value).type
        assert isinstance(tile, TileType) and isinstance(buffer, BufferType)
        dims = tuple(tuple(e.constant or 0 for e in d.data) for d in op.index_dims.data)
        return [Access(op, dim, scope, expr, size, tile.shape, indices, dims)
                for dim, (expr, size) in enumerate(zip(op.exprs, buffer.shape, strict=True))]

    @property
    def is_checked(self) -> bool:
        """Whether the index is checked: outside, a load reads the pad and a store writes nothing.
        """
        return self.dim in self.op.checked_dims

    @computed_once
    def index(self) -> Expr:
        """The index, over the symbols in `ranges` and `data` and the sizes."""
        return self.scope.resolve(self.expr, self.indices, self.index_dims)

    @property
    def ranges(self) -> Ranges:
        """The ranges of the programs, the enclosing loops, and the positions in the tile, in
        order.
        """
        places = {place(d): Span(Expr.of(0), Expr.of(n - 1)) for d, n in enumerate(self.shape)}
        return {**self.scope.ranges, **places}

    @property
    def data(self) -> Mapping[Symbol, SSAValue]:
        """The values loaded from data that symbols denote."""
        return self.scope.symbols.data


def accesses_of(kernel: KernelOp, scope: Scope | None = None) -> list[Access]:
    """Every dim of every load and store of a kernel, in program order.

    `scope`: the kernel's scope, if the caller has already computed it.
    """
    found: list[Access] = []
    _add_accesses(kernel.body.block, scope or Scope.of(kernel), found)
    return found


def _add_accesses(block: Block, scope: Scope, found: list[Access]) -> None:
    for op in listed(block):
        if isinstance(op, LoadOp | StoreOp):
            found += Access.all_of(op, scope)
        elif isinstance(op, ForOp):
            _add_accesses(op.body.block, scope.inside(op), found)


# ---------------------------------------------------------------------- bounds from data
def bound_without(expr: Expr, data: Collection[Symbol], *, upper: bool) -> Expr | None:
    """What an expression is at most, or at least, for all values of some symbols; None if unknown.
    """
    total = Expr.of(0)
    for monomial, factor in expr.terms:
        if not any(not a.symbols.isdisjoint(data) for a in monomial):
            total = total + Expr(((monomial, factor),))
            continue
        bound = _atom_without(monomial[0], data, upper == (factor > 0))
        if len(monomial) > 1 or bound is None:
            return None
        total = total + bound * factor
    return total


def _atom_without(atom: Atom, data: Collection[Symbol], upper: bool) -> Expr | None:
    """The same for a symbol or a call."""
    if isinstance(atom, Symbol) or atom.op not in ("min", "max"):
        return None
    bounds = [b for a in atom.args if (b := bound_without(a, data, upper=upper)) is not None]
    if len(bounds) == 2:
        return apply_call(atom.op, bounds)
    return bounds[0] if bounds and upper == (atom.op == "min") else None


# ---------------------------------------------------------------------- the symbols of operations
operand: Callable[[int], Symbol] = Symbol.operand
"""The symbol of an index operand, by its number, in an operation's own expressions."""

place: Callable[[int], Symbol] = Symbol.place
"""The symbol of the position along a tile's dim."""
