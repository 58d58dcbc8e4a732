"""Cache hints: which loads of a kernel read data for the last time, so that caches may drop it.

    for k:  load x[i, k]                 is read again below, by the same program
    for k:  load x[i, k], load w[k]      the last load of x, but all programs read w

Without a hint, such data evicts data that is needed again, or that is still to be written back. The
schedule option `stream = 1` enables the hints.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation, SSAValue

from dialects.block import ForOp, KernelOp, LoadOp
from dialects.symbolic.symbol import Symbol


def last_loads(kernel: KernelOp) -> frozenset[LoadOp]:
    """The last load of each buffer, if all programs and all iterations read different places."""
    last = {load.buffer: load for load in kernel.walk() if isinstance(load, LoadOp)}
    programs = {identity for identity, extent in zip(
        kernel.program_ids, kernel.grid.data, strict=True) if extent.constant != 1}
    return frozenset(load for load in last.values()
                     if not any(load.index_dims.data[k].data for k in range(len(load.indices)))
                     and programs | set(_counters(load)) <= set(_used(load)))


def _counters(op: Operation) -> Iterator[SSAValue]:
    """The counters of the loops around an operation."""
    parent: Operation | None = op.parent_op()
    while parent is not None:
        if isinstance(parent, ForOp):
            yield parent.counter
        parent = parent.parent_op()


def _used(load: LoadOp) -> Iterator[SSAValue]:
    """The index values that occur in an address."""
    symbols = set[Symbol]().union(*(e.symbols for e in load.exprs))
    yield from (v for k, v in enumerate(load.indices) if Symbol.operand(k) in symbols)
