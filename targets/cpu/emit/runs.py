"""Runs of operations that are emitted position by position, instead of one after the other.

    %a = load %x[%i]   %b = load %y[%a]   %c = map(%a, %b)        tiles of 8 positions, not in lanes
    ->  a0, b0, c0, a1, b1, c1, ...       instead of  a0, a1, ..., b0, b1, ..., c0, c1, ...

Loads at indices from data are long chains, one per position. In this order the intermediate values
of one chain at a time are in registers. In the other order there would be one for each position,
and LLVM, which keeps the order of loads, would spill them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from xdsl.ir import Operation, SSAValue

from dialects import block as bl
from dialects.strata.types import TileType


def runs_of(ops: Iterable[Operation]) -> Iterator[list[Operation]]:
    """The operations, in order, with those together that are emitted position by position."""
    run: list[Operation] = []
    for op in ops:
        if run and not _continues(op, run):
            yield from _checked(run)
            run = []
        if run or _shape(op) is not None:
            run.append(op)
        else:
            yield [op]
    yield from _checked(run)


def _checked(run: Sequence[Operation]) -> Iterator[list[Operation]]:
    """A run with a load at an index that the run or its loop computes; else each operation."""
    chained = len(run) > 1 and any(
        isinstance(op, bl.LoadOp) and any(isinstance(v.type, TileType) for v in op.indices)
        for op in run)
    yield from [list(run)] if chained else ([op] for op in run)


def _shape(op: Operation) -> Sequence[int] | None:
    """The shape of a load's or map's only result, if none of its dims is in lanes."""
    if not isinstance(op, bl.LoadOp | bl.MapOp) or len(op.results) != 1:
        return None
    type_ = op.results[0].type
    assert isinstance(type_, TileType)
    plain = type_.lanes is None and type_.group is None and not type_.matrix
    return type_.shape if plain and type_.rank else None


def _continues(op: Operation, run: Sequence[Operation]) -> bool:
    """Whether an operation reads what the run computes at its own position only."""
    if _shape(op) is None or _shape(op) != _shape(run[0]):
        return False
    own = {r for other in run for r in other.results}
    return all(dims == list(range(len(dims))) for value, dims in _uses(op) if value in own)


def _uses(op: Operation) -> Iterator[tuple[SSAValue, list[int]]]:
    """The tiles that an operation uses, and to which dims of its result their dims belong."""
    if isinstance(op, bl.MapOp):
        yield from zip(op.inputs, map(list, op.dim_lists), strict=True)
    elif isinstance(op, bl.LoadOp):
        yield from zip(op.indices, ([e.constant or 0 for e in sizes.data]
                                    for sizes in op.index_dims.data), strict=True)
