"""Which loads of a kernel read what no load reads again: caches need not keep it.

    for k:  load x[i, k]                 is read again below, by the same program
    for k:  load x[i, k], load w[k]      x is at its end, w is what all programs read

What has been read for the last time otherwise pushes out what is needed again, or has yet to be
written to memory. A schedule says where caches are told so: `stream = 1`.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation, SSAValue

from dialects.block import ForOp, KernelOp, LoadOp
from dialects.symbolic.symbol import Symbol


def last_loads(kernel: KernelOp) -> frozenset[LoadOp]:
    """Of each buffer the last load, where every program and every trip reads other places."""
    last = {load.buffer: load for load in kernel.walk() if isinstance(load, LoadOp)}
    programs = {identity for identity, extent in zip(
        kernel.program_ids, kernel.grid.data, strict=True) if extent.constant != 1}
    return frozenset(load for load in last.values()
                     if not any(load.index_dims.data[k].data for k in range(len(load.indices)))
                     and programs | set(_counters(load)) <= set(_used(load)))


def _counters(op: Operation) -> Iterator[SSAValue]:
    """Those of the loops around an operation."""
    parent: Operation | None = op.parent_op()
    while parent is not None:
        if isinstance(parent, ForOp):
            yield parent.counter
        parent = parent.parent_op()


def _used(load: LoadOp) -> Iterator[SSAValue]:
    """The index values that an address names."""
    symbols = set[Symbol]().union(*(e.symbols for e in load.exprs))
    yield from (v for k, v in enumerate(load.indices) if Symbol.operand(k) in symbols)
