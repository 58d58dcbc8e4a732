"""Chains of launches: each reads what the one before it writes, and programs need only their own.

    host.launch @a(%x, %v)    grid(%t: 225, ..)    store %v[.., %t, ..]
    host.launch @b(%v, %y)    grid(%r: 900, ..)    load %v[.., %r floordiv 4, ..]

Programs of both kernels can take turns here: those of @b with 4*t <= r < 4*t + 4 read what those of
@a with this t have written, and nothing else. Such axes of the grids are joint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from dialects.block import KernelOp, LoadOp, StoreOp
from dialects.host import LaunchOp
from dialects.records import dataclass
from dialects.strata.types import BufferType
from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Kind
from dialects.walking import walked

Dims = tuple[int, ...]


class Joint(NamedTuple):
    """Places that the grids of all kernels of a chain divide alike.

    A kernel may number them along several axes: those of @a as (n, t), those of @b as 225*n + t.
    """

    axes: tuple[Dims, ...]
    """The numbers of the axes in each kernel's grid, outermost first."""
    factors: Dims
    """How many places of each kernel's last axis belong to one place of the first kernel's; its end
    may have fewer."""
    extent: Expr
    """The number of places of the first kernel."""


class Shared(NamedTuple):
    """Dims of a linking buffer at whose places programs write and read by their ids."""

    writer: Dims
    """The axes of the writer's grid."""
    reader: Dims
    factor: int
    """How many places of the reader's last axis read one place of the buffer."""


class Part(NamedTuple):
    """Neighbouring dims of a linking buffer, which the writer and the reader may see as different
    dims of one size."""

    written: Dims
    read: Dims
    size: Expr
    shared: Shared | None


@dataclass(frozen=True)
class Link:
    """A buffer that one launch writes and the next one reads."""

    written: int
    """The number of the writer's argument."""
    read: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Chain:
    """Launches of kernels, the buffers between neighbours, and the axes that all grids have."""

    launches: tuple[LaunchOp, ...]
    kernels: tuple[KernelOp, ...]
    links: tuple[Link, ...] = ()
    joints: tuple[Joint, ...] = ()

    def with_next(
        self, launch: LaunchOp, kernel: KernelOp, written: int, read: int
    ) -> Chain | None:
        """The chain with one more launch, linked by these arguments; None if programs need more
        than their own, or share fewer axes than before."""
        parts = parts_between(self.kernels[-1], written, kernel, read)
        shared = [p.shared for p in parts if p.shared]
        joints = self.joints if self.links else tuple(
            Joint((s.writer,), (1,), product(self.kernels[-1].grid.data[a] for a in s.writer))
            for s in shared)
        longer = [_longer(j, s) for j in joints for s in shared if s.writer == j.axes[-1]]
        if not longer or len(longer) < len(joints):
            return None
        return replace(self, launches=(*self.launches, launch), kernels=(*self.kernels, kernel),
                       links=(*self.links, Link(written, read, parts)), joints=tuple(longer))

    def is_link(self, number: int, argument: int) -> bool:
        """Whether an argument of a kernel is a buffer between two of them."""
        return (number < len(self.links) and self.links[number].written == argument) or (
            number > 0 and self.links[number - 1].read == argument)


def _longer(joint: Joint, shared: Shared) -> Joint:
    return joint._replace(axes=(*joint.axes, shared.reader),
                          factors=(*joint.factors, joint.factors[-1] * shared.factor))


# ---------------------------------------------------------------------- dims of a buffer
def parts_between(
    writer: KernelOp, written: int, reader: KernelOp, read: int
) -> tuple[Part, ...]:
    """The dims of a buffer as two kernels see them; none if they cannot be compared."""
    a, b = writer.buffers[written], reader.buffers[read]
    stores = [op for op in walked(writer) if isinstance(op, StoreOp) and op.buffer is a]
    loads = [op for op in walked(reader) if isinstance(op, LoadOp) and op.buffer is b]
    used = {*(u.operation for u in a.uses if isinstance(u.operation, LoadOp)),
            *(u.operation for u in b.uses if isinstance(u.operation, StoreOp))}
    if used or not stores or not loads or any(s.combiner is not None for s in stores):
        return ()
    assert isinstance(a.type, BufferType) and isinstance(b.type, BufferType)
    found: list[Part] = []
    for ours, theirs in _common(a.type.shape, b.type.shape):
        if any(_is_merged(op, ours) for op in stores) or any(
                _is_merged(op, theirs) for op in loads):
            return ()
        found.append(Part(ours, theirs, product(a.type.shape[d] for d in ours),
                          _shared(writer, stores, ours, reader, loads, theirs, (
                              [a.type.shape[d] for d in ours],
                              [b.type.shape[d] for d in theirs]))))
    return tuple(found)


def _is_merged(op: LoadOp | StoreOp, dims: Dims) -> bool:
    """Whether dims that become one have checks, each against its own size."""
    return len(dims) > 1 and not {*dims}.isdisjoint(op.checked_dims)


def _common(a: Sequence[Expr], b: Sequence[Expr]) -> list[tuple[Dims, Dims]]:
    """Runs of dims of both shapes with equal products, as short as possible; none if the shapes
    differ in their number of elements, or in sizes whose products cannot be compared. Dims of one
    element belong to none."""
    found: list[tuple[Dims, Dims]] = []
    left, right = ([d for d, n in enumerate(shape) if n.constant != 1] for shape in (a, b))
    while left and right:
        ours, theirs = [left.pop(0)], [right.pop(0)]
        while (mine := product(a[d] for d in ours)) != (other := product(b[d] for d in theirs)):
            is_less = (other % mine).constant == 0  # or neither divides the other: no run ends
            if not (left if is_less else right):
                return []
            (ours if is_less else theirs).append((left if is_less else right).pop(0))
        found.append((tuple(ours), tuple(theirs)))
    return found if not left and not right else []


def _shared(
    writer: KernelOp, stores: Iterable[StoreOp], ours: Dims,
    reader: KernelOp, loads: Iterable[LoadOp], theirs: Dims,
    sizes: tuple[Sequence[Expr], Sequence[Expr]],
) -> Shared | None:
    """How both kernels' programs share neighbouring dims of these sizes, if they do."""
    written = {tuple(_program(writer, op, d) for d in ours) for op in stores}
    read = {tuple(_program(reader, op, d) for d in theirs) for op in loads}
    if len(written) > 1 or len(read) > 1:
        return None
    writing, reading = [*filter(None, written.pop())], [*filter(None, read.pop())]
    if len(writing) < len(ours) or len(reading) < len(theirs):
        return None
    factors = [*(f for _, f in writing), *(f for _, f in reading)]
    if any(f > 1 for f in factors[:-1]):
        return None
    shared = Shared(tuple(a for a, _ in writing), tuple(a for a, _ in reading), factors[-1])
    alike = all(writer.grid.data[a] == n for a, n in zip(shared.writer, sizes[0], strict=True))
    *counts, last = [reader.grid.data[a] for a in shared.reader]
    return shared if alike and [*counts, last.ceildiv(shared.factor)] == [*sizes[1]] else None


def _program(kernel: KernelOp, op: LoadOp | StoreOp, dim: int) -> tuple[int, int] | None:
    """The axis of the grid whose id, divided by a number, is an index; None if it is another."""
    if dim in op.checked_dims:
        return None
    expr, divisor = op.exprs[dim], 1
    match expr.terms:
        case (((Call("floordiv", (inner, by)),), 1),) if by.constant is not None:
            expr, divisor = inner, by.constant
        case _:
            pass
    symbol = expr.as_symbol
    if symbol is None or symbol.kind is not Kind.OPERAND:
        return None
    return next(((k, divisor) for k, value in enumerate(kernel.program_ids)
                 if value is op.indices[symbol.number]), None)
