"""`block-prefetch-operands`: software prefetch of what the next trip reads while this one computes.

    grid(%p: 96) {                                     a program reads a panel of 768 x 32 elements
      block.for %i = 0 to 117 step 13 parallel {       over and over
        block.for %k = 0 to 768 step 1 (...) {
          block.prefetch %w[%p + 1, 0, 3072*(%i floordiv 13) + 4*%k]             <- added
          %b = block.load %w[%p, %k, t0] : tile<[32]xf32>
          ... a sum of products

A model's weights are in slow memory when their kernel starts, and a panel that is only used a few
times spends much of that time in transit. So the loops around a sum prefetch the next panel, an
equal share in each step. The same applies to the rows that the next trip of a loop reads, if the
whole operand is larger than a cache: hardware prefetchers follow one stream of addresses, not
twelve. Where panels lie side by side in the rows of a matrix, and each batch has a matrix, all
panels of a batch prefetch that of the next one.

Enters: kernels whose loops and addresses are final. Only dense memory is prefetched, and only from
buffers that the kernel does not write. No numbers change, because nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from dialects.block import DotOp, ForOp, KernelOp, LoadOp, PrefetchOp, StoreOp
from dialects.block.contract import find_contraction
from dialects.records import dataclass
from dialects.strata.types import BufferType, TileType, byte_width
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Kind, Symbol
from dialects.text.syntax import set_location
from dialects.walking import walked
from passes.base import StrataContext, StrataPass
from passes.contract import Caches

MANY_TRIPS = 64
"""Data that is read more often than this is in the cache most of the time."""
OPEN_TRIPS = 16
"""The number of trips that is assumed if it is only known at run time."""
PARTS = 2
"""Data larger than 1/PARTS of a cache hardly stays there next to everything else."""


class BlockPrefetchOperands(StrataPass):
    """Add prefetches to sums of products."""

    name = "block-prefetch-operands"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        caches = context.facts.prefetches
        if caches is None:
            return
        for kernel in [op for op in module.body.block.ops if isinstance(op, KernelOp)]:
            if not any(type(op) is PrefetchOp for op in walked(kernel)):
                _prefetch(kernel, caches)


def _prefetch(kernel: KernelOp, caches: Caches) -> None:
    """Add at most one stream per buffer, at the loop that repeats a read most often."""
    written = {op.buffer for op in walked(kernel) if type(op) is StoreOp}
    best: dict[SSAValue, _Stream] = {}
    for load, axes in _reads(kernel.body.block, _grid(kernel)):
        if load.buffer in written or load.buffer not in kernel.buffers:
            continue
        stream = _stream(load, axes)
        before = best.get(load.buffer)
        if stream and stream.pays(caches) and (before is None or stream.trips > before.trips):
            best[load.buffer] = stream
    for stream in best.values():
        stream.add(caches.line)


# ---------------------------------------------------------------------- loops and reads
@dataclass(frozen=True)
class _Axis:
    """A grid axis or a loop, with the index values lower, lower + step, ..."""

    symbol: Symbol
    """Named by its depth."""
    index: SSAValue
    lower: Expr
    """In terms of the symbols of the enclosing axes."""
    step: int
    trips: int | None
    sums: bool
    upper: Expr
    parted: bool = False
    """Whether the loop inside it walks each of its steps in smaller ones, and stands for both."""

    @property
    def number(self) -> Expr:
        """The number of the trip."""
        return (Expr.symbol(self.symbol) - self.lower) // self.step


def _grid(kernel: KernelOp) -> tuple[_Axis, ...]:
    pairs = zip(kernel.program_ids, kernel.grid.data, strict=True)
    return tuple(_Axis(Symbol.counter(f"@{depth}"), value, Expr.of(0), 1, extent.constant, False,
                       extent)
                 for depth, (value, extent) in enumerate(pairs))


def _reads(block: Block, axes: tuple[_Axis, ...]) -> Iterator[tuple[LoadOp, tuple[_Axis, ...]]]:
    """The loads of sums of products, each with its enclosing axes, outermost first.

    Loops whose bounds come from data are left out: what their next trip reads is not known.
    """
    known = {a.index for a in axes}
    for op in block.ops:
        if not isinstance(op, ForOp) or not known.issuperset(op.indices):
            continue
        inner = _with_loop(op, axes)
        if _sums_products(op):
            yield from ((x, inner) for x in op.body.block.ops if isinstance(x, LoadOp))
        else:
            yield from _reads(op.body.block, inner)


def _with_loop(op: ForOp, axes: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
    """The axes around what a loop holds.

    A sum of short sums is two loops: over parts, and from the start of a part to its end. The inner
    one stands for both.
    """
    lower, upper = (_named(e.data, op.indices, axes) for e in (op.lower, op.upper))
    step, symbol = op.step.data.constant or 1, Symbol.counter(f"@{len(axes)}")
    outer = axes[-1] if axes else None
    if outer is not None and outer.sums and op.carried and lower.as_symbol == outer.symbol:
        lower, upper = outer.lower, outer.upper
        axes = (*axes[:-1], replace(outer, parted=True))
    span = (upper - lower).constant
    trips = None if span is None else max(0, -(-span // step))
    return (*axes, _Axis(symbol, op.counter, lower, step, trips, bool(op.carried), upper))


def _sums_products(op: ForOp) -> bool:
    """Whether an innermost loop sums products of two tiles."""
    found = find_contraction(op)
    return found is not None and len(found.loops) == 1 and (
        len(found.terms) == 2 or isinstance(found.update, DotOp))


def _named(expr: Expr, indices: Sequence[SSAValue], axes: Sequence[_Axis]) -> Expr:
    """An operation's expression in terms of the symbols of the enclosing axes."""
    symbols = {a.index: Expr.symbol(a.symbol) for a in axes}
    return expr.substitute({Symbol.operand(k): symbols[v] for k, v in enumerate(indices)})


# ---------------------------------------------------------------------- prefetches
class _Stream(NamedTuple):
    """The data that the next trip of an axis reads, and the steps over which to spread it."""

    load: LoadOp
    axes: tuple[_Axis, ...]
    start: tuple[Expr, ...]
    """The index in the buffer at which the next trip starts to read."""
    size: int
    """The number of elements that it reads."""
    again: tuple[_Axis, ...]
    """The loops between that axis and the sum, which read the same data in each trip."""
    walked: tuple[_Axis, ...]
    """The loops of the sum."""

    @property
    def trips(self) -> int:
        """The number of times that the same data is read."""
        return prod(OPEN_TRIPS if a.trips is None else a.trips for a in self.again)

    @property
    def buffer(self) -> BufferType:
        assert isinstance(self.load.buffer.type, BufferType)
        return self.load.buffer.type

    def pays(self, caches: Caches) -> bool:
        width = byte_width(self.buffer.element)
        if self.size * width * PARTS > caches.capacity:
            return False  # it would evict what is in use
        if self.trips > 1:
            return self.trips <= MANY_TRIPS
        count = product(self.buffer.shape).constant
        return self.load.result.type.lanes is None and count is not None and (
            count * width * PARTS > caches.capacity)

    def add(self, line: int) -> None:
        """Prefetch a share in each step; the shares are contiguous in memory."""
        width = byte_width(self.buffer.element)
        steps = prod(a.trips or 1 for a in self.walked)
        share = _power_of_two(-(-self.size * width // (steps * self.trips)))
        place = self._step(steps) * max(1, share // width)
        block = self.load.parent_block()
        assert block is not None
        for k in range(max(1, share // line)):
            where = [*self.start[:-1], self.start[-1] + place + k * line // width]
            op = self._operation(where)
            set_location(op, self.load)
            block.insert_op_before(op, self.load)

    def _step(self, steps: int) -> Expr:
        """The number of the step among all that read the same data."""
        total, count = Expr.of(0), 1
        for axis in reversed(self.walked):
            total, count = total + axis.number * count, count * (axis.trips or 1)
        number, known = Expr.of(0), 1
        for axis in reversed(self.again):
            number = number + axis.number * known
            known *= axis.trips or OPEN_TRIPS
        if any(a.trips is None for a in self.again):
            number = number % self.trips
        return total + number * steps

    def _operation(self, where: Sequence[Expr]) -> PrefetchOp:
        used = {s for e in where for s in e.symbols}
        axes = [a for a in self.axes if a.symbol in used]
        names = {a.symbol: Expr.operand(k) for k, a in enumerate(axes)}
        return PrefetchOp.of(self.load.buffer, [e.substitute(names) for e in where],
                             [a.index for a in axes])


def _power_of_two(number: int) -> int:
    """The smallest power of two that is not less, so that shares divide lines or lines shares."""
    return 1 << max(0, number - 1).bit_length()


def _stream(load: LoadOp, axes: tuple[_Axis, ...]) -> _Stream | None:
    """The stream of the next trip; None unless that reads one dense piece of memory."""
    if any(v not in [a.index for a in axes] for v in load.indices):
        return None  # gathered
    where = tuple(_named(e, load.indices, axes) for e in load.exprs)
    used = {s for e in where for s in e.symbols}
    first = next(k for k in range(len(axes), -1, -1) if k == 0 or not axes[k - 1].sums)
    walked, outer = tuple(a for a in axes[first:] if not a.parted), axes[:first]
    size = None if load.checked_dims else _dense_size(load, where, walked)
    place = _last_used(outer, used)
    if size is None and place is not None:  # what all panels of a batch read, side by side
        walked = (outer[place], *walked)
        size, place = _dense_size(load, where, walked, True), _last_used(outer[:place], used)
    if place is None or size is None:
        return None
    following = outer[place]
    lows = {s: Expr.of(0) for s in used if s.kind is Kind.PLACE}
    lows[following.symbol] = Expr.symbol(following.symbol) + following.step
    start = tuple(_with_counters(e, walked, lambda _: Expr.of(0)).substitute(lows) for e in where)
    again = tuple(a for a in outer[place + 1:] if a not in walked)
    return _Stream(load, axes, start, size, again, walked)


def _last_used(axes: Sequence[_Axis], used: Collection[Symbol]) -> int | None:
    """The innermost axis of which the place of a read depends."""
    return next((k for k in range(len(axes) - 1, -1, -1) if axes[k].symbol in used), None)


def _with_counters(expr: Expr, loops: Sequence[_Axis], distance: Callable[[_Axis], Expr]) -> Expr:
    """The expression with each loop at a distance from its start.

    Innermost first, because the start of a loop may depend on the loops around it.
    """
    for loop in reversed(loops):
        expr = expr.substitute({loop.symbol: loop.lower + distance(loop)})
    return expr


def _dense_size(
    load: LoadOp, where: Sequence[Expr], walked: Sequence[_Axis], overlaps: bool = False
) -> int | None:
    """The number of elements that the loops of a sum read, if these are contiguous; else None.

    `overlaps`: a part may begin before the part before it ends, as rows do that end inside a tile.
    """
    buffer, tile = load.buffer.type, load.result.type
    assert isinstance(buffer, BufferType) and isinstance(tile, TileType)
    flat = sum((e * product(buffer.shape[d + 1:]) for d, e in enumerate(where)), Expr.of(0))
    flat = _with_counters(flat, walked, lambda loop: Expr.symbol(loop.symbol))
    counts = {Symbol.place(d): (1, n) for d, n in enumerate(tile.shape)}
    counts |= {a.symbol: (a.step, a.trips or 0) for a in walked}
    split = flat.linear(counts)
    if split is None or any(c.constant is None for c in split[0].values()):
        return None
    size = 1
    distances = {s: (split[0].get(s, Expr.of(0)).constant or 0) * counts[s][0] for s in counts}
    for name in sorted(counts, key=lambda s: distances[s]):
        count = counts[name][1]
        if count != 1 and distances[name] != size and not (overlaps and 0 < distances[name] < size):
            return None
        size += distances[name] * (count - 1)
    return size
