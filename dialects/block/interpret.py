"""The meaning of `block.kernel`, in NumPy: the reference against which targets are tested.

All programs run in lockstep, operation by operation (`dialects.block.programs` describes how
values are represented). A parallel loop adds its trips as an axis. A serial loop is a Python loop.
If its bounds differ between programs, those without a trip left are inactive: they compute, but
have no effect. The grid and parallel loops are split into pieces to limit the size of tiles.

A serial loop that only merges values is evaluated at once, as a matrix product if it sums products
(`dialects.block.contract`). This rounds differently; `exact_order=True` keeps the written order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from xdsl.ir import Operation, SSAValue

from dialects import block as ops
from dialects.block.contract import (
    Contraction,
    depth_dim,
    dot_depth,
    dot_factors,
)
from dialects.block.indices import Index, Linear, add, scale, unit
from dialects.block.programs import Programs, Run, dim_lists, tile_type
from dialects.ranks.peers import Peers, sole
from dialects.semantics.carriers import as_in, carrier_of
from dialects.semantics.numerics import widen
from dialects.semantics.products import sum_of_products
from dialects.semantics.scalar import evaluate_body
from dialects.semantics.sums import reduced
from dialects.strata.types import Array, BufferType, dtype_of, signless
from dialects.symbolic.symbol import Symbol

ROOM = 1 << 22
"""The approximate maximum number of elements of a tile in all programs together."""


def interpret_kernel(
    kernel: ops.KernelOp, buffers: Sequence[Array], sizes: Mapping[Symbol, int], *,
    exact_order: bool = False, peers: Peers | None = None,
) -> None:
    """Run a kernel on C-contiguous arrays, in place.

    `buffers`: one array per buffer argument, of its type. `sizes`: the kernel's size symbols.
    `peers`: the other ranks, which run the same kernel.
    Raises ValueError for an array that does not fit its argument, and IndexError for an unchecked
    access that is out of bounds; both name the kernel.
    """
    run = Run(kernel, dict(sizes), exact_order, carrier_of(buffers), peers)
    values: dict[SSAValue, Any] = {}
    for argument, array in zip(kernel.buffers, buffers, strict=True):
        values[argument] = run.memory(argument, array)
    run.find_written(values)
    extents = [run.size(e) for e in kernel.grid.data]
    for piece in _pieces(extents, ROOM // run.width(kernel)):
        _run_piece(kernel, Programs(run, values, tuple(map(len, piece)), None), piece)


def _run_piece(kernel: ops.KernelOp, programs: Programs, piece: Sequence[range]) -> None:
    for axis, (program_id, ids) in enumerate(zip(kernel.program_ids, piece, strict=True)):
        programs.values[program_id] = add(Linear(ids.start), unit(axis))
    _execute(programs, kernel.body.block.ops)


def _execute(programs: Programs, operations: Iterable[Operation]) -> None:
    for op in operations:
        _OPERATIONS[type(op)](programs, op)


def _pieces(extents: Sequence[int], most: int) -> Iterator[tuple[range, ...]]:
    """Split a grid into boxes of at most about `most` programs, the outer axes first."""
    if not extents:
        yield ()
        return
    step = max(1, most // max(1, prod(extents[1:])))
    for start in range(0, extents[0], step):
        outer = range(start, min(start + step, extents[0]))
        for inner in _pieces(extents[1:], max(1, most // len(outer))):
            yield outer, *inner


# ---------------------------------------------------------------------- tile operations
def _load(programs: Programs, op: ops.LoadOp) -> None:
    type_ = tile_type(op.result)
    access = programs.access(op, type_.shape)
    pad = np.asarray(op.pad_value).astype(access.memory.dtype)
    programs.values[op.result] = access.read(pad, copy=op.buffer in programs.run.written)


def _store(programs: Programs, op: ops.StoreOp) -> None:
    there = programs.access(op, tile_type(op.value).shape)
    (there.write if op.combiner is None else there.add)(programs.tile(op.value))


def _full(programs: Programs, op: ops.FullOp) -> None:
    type_ = tile_type(op.result)
    number = np.asarray(op.number).astype(dtype_of(type_.element))
    programs.values[op.result] = number.reshape((1,) * (len(programs.extents) + type_.rank))


def _map(programs: Programs, op: ops.MapOp) -> None:
    rank = op.result_type.rank
    operands = [programs.placed(value, dims, rank)
                for value, dims in zip(op.inputs, op.dim_lists, strict=True)]
    total = len(programs.extents) + rank
    found = evaluate_body(op.body.block, operands, like=programs.run.like)
    for result, array in zip(op.results, found, strict=True):
        programs.values[result] = array.reshape((1,) * (total - array.ndim) + array.shape)


_COMBINERS: dict[str, np.ufunc] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or,
}


def _reduce(programs: Programs, op: ops.ReduceOp) -> None:
    axis, wide = _along(programs, op)
    with np.errstate(all="ignore"):
        found = reduced(_COMBINERS[op.combiner.data], wide, axis, wide.dtype)
    programs.values[op.result] = found.astype(programs.tile(op.value).dtype)


def _scan(programs: Programs, op: ops.ScanOp) -> None:
    axis, wide = _along(programs, op)
    with np.errstate(all="ignore"):
        found = np.sort(wide, axis) if op.sorts else _COMBINERS[op.combiner.data].accumulate(
            wide, axis, wide.dtype)
    programs.values[op.result] = found.astype(programs.tile(op.value).dtype)


def _along(programs: Programs, op: ops.ReduceOp | ops.ScanOp) -> tuple[int, Array]:
    """The dim along which an operand is combined, and its values; f16 and bf16 widened to f32."""
    axis = len(programs.extents) + op.axis
    array = programs.tile(op.value)
    full = (*array.shape[:axis], tile_type(op.value).shape[op.axis], *array.shape[axis + 1:])
    return axis, widen(np.broadcast_to(array, full))


def _dot(programs: Programs, op: ops.DotOp) -> None:
    c, axis = programs.tile(op.c), len(programs.extents)
    depth = {axis + depth_dim(op): dot_depth(op)}
    left, right = dot_factors(op, programs.placed)
    with np.errstate(all="ignore"):
        product = sum_of_products(left, right, depth, left.dtype)
        programs.values[op.result] = (c + product).astype(c.dtype)


def _index(programs: Programs, op: ops.IndexOp) -> None:
    dims = dim_lists(op.index_dims.data)
    shape = tile_type(op.result).shape
    programs.values[op.result] = programs.tile_index(op.expr.data, op.indices, dims, shape)


def _valid(programs: Programs, op: ops.ValidOp) -> None:
    shape, dims = tile_type(op.result).shape, [()] * len(op.indices)
    number = programs.tile_index(op.expr.data, op.indices, dims, shape)
    programs.values[op.result] = number < programs.tile_index(
        op.bound.data, op.indices, dims, shape)


def _convert(programs: Programs, op: ops.ConvertOp) -> None:
    programs.values[op.result] = programs.tile(op.value)


def _scratch(programs: Programs, op: ops.ScratchOp) -> None:
    type_ = op.result.type
    assert isinstance(type_, BufferType)
    shape = tuple(map(programs.run.size, type_.shape))
    raw = np.full((*programs.extents, *shape, type_.dtype.itemsize), 0xFF, np.uint8)
    memory = raw.view(dtype_of(signless(type_.element)))[..., 0]
    like = programs.run.like
    programs.values[op.result] = memory if like is None else as_in(memory, like)


def _all_reduce(programs: Programs, op: ops.AllReduceOp) -> None:
    tile, peers = programs.tile(op.value), programs.run.peers
    programs.values[op.result] = sole([tile], op.collective) if peers is None else (
        peers.run(op.collective, tile))


# ---------------------------------------------------------------------- loops
def _for(programs: Programs, op: ops.ForOp) -> None:
    lower, trips = _bounds(programs, op)
    if op.is_parallel:
        _run_parallel(programs, op, lower, trips)
        return
    contraction = programs.run.contraction(op)
    if contraction is not None and isinstance(trips, int) and isinstance(lower, Linear):
        _run_contraction(programs, contraction, lower, trips)
    else:
        _run_serial(programs, op, lower, trips)


def _bounds(programs: Programs, op: ops.ForOp) -> tuple[Index, int | Array]:
    """The lower bound and the trip count of a loop."""
    lower = programs.index(op.lower.data, op.indices)
    upper = programs.index(op.upper.data, op.indices)
    return lower, _trips(programs, lower, upper, op.step.data.constant or 1)


def _trips(programs: Programs, lower: Index, upper: Index, step: int) -> int | Array:
    """The trip count of a loop: one number, or an array if it differs between programs."""
    box = programs.box
    if isinstance(lower, Linear) and isinstance(upper, Linear):
        length = add(upper, scale(lower, -1)).constant
        if length is not None:
            return max(0, -(-length // step))
    found = np.maximum(0, -(-(box.array(upper) - box.array(lower)) // step))
    if programs.active is not None:
        found = np.where(programs.active, found, 0)
    return int(found.min()) if found.min() == found.max() else found


def _run_serial(
    programs: Programs, op: ops.ForOp, lower: Index, trips: int | Array
) -> None:
    values, carried = programs.values, [programs.tile(v) for v in op.carried]
    arguments, step = op.body.block.args[1:], op.step.data.constant or 1
    for trip in range(trips if isinstance(trips, int) else int(trips.max())):
        inner = programs
        if not isinstance(trips, int):
            inner = replace(programs, active=_both(programs.active, trips > trip))
        if op.is_conditional:
            inner = replace(inner, active=_both(inner.active, _spread(programs, carried[0])))
            if not np.any(inner.active):
                break
        values[op.counter] = _advance(lower, trip * step)
        values.update(zip(arguments, carried, strict=True))
        _execute(inner, op.body.block.ops)
        after = [inner.tile(v) for v in op.yielded]
        carried = after if inner is programs else [
            _choose(inner.active, new, old) for new, old in zip(after, carried, strict=True)]
    values.update(zip(op.results, carried, strict=True))


def _spread(programs: Programs, flag: Array) -> Array:
    """A truth value of each program."""
    return np.broadcast_to(flag, programs.extents).astype(bool)


def _choose(active: Array | None, new: Array, old: Array) -> Array:
    assert active is not None
    return np.where(active.reshape(active.shape + (1,) * (new.ndim - active.ndim)), new, old)


def _run_parallel(
    programs: Programs, op: ops.ForOp, lower: Index, trips: int | Array
) -> None:
    most = trips if isinstance(trips, int) else int(trips.max())
    room = max(1, ROOM // (prod(programs.extents) * programs.run.width(op)))
    for start in range(0, most, room):
        inner = _enter(programs, op, lower, start, min(room, most - start), trips)
        _execute(inner, op.body.block.ops)


def _enter(
    programs: Programs, op: ops.ForOp, lower: Index, start: int, count: int,
    trips: int | Array,
) -> Programs:
    """The programs times the trips from start to start + count - 1, which become an axis."""
    step, axis = op.step.data.constant or 1, len(programs.extents)
    active = None if programs.active is None else programs.active[..., None]
    if not isinstance(trips, int):
        active = _both(active, trips[..., None] > np.arange(start, start + count))
    inner = programs.within(count, active)
    counts = Linear(start * step, scale(unit(axis), step).strides)
    inner.values[op.counter] = (
        add(lower, counts) if isinstance(lower, Linear)
        else inner.box.array(lower) + inner.box.array(counts))
    return inner


def _advance(index: Index, distance: int) -> Index:
    return add(index, Linear(distance)) if isinstance(index, Linear) else index + distance


def _both(x: Array | None, y: Array) -> Array:
    return y if x is None else x & y


def _run_contraction(
    programs: Programs, contraction: Contraction, lower: Linear, trips: int
) -> None:
    """Compute and merge the values of many trips at once, in pieces of limited size."""
    (loop, *inner), axis = contraction.loops, len(programs.extents)
    inside = [_bounds(programs, other) for other in inner]
    counts = [count for _, count in inside if isinstance(count, int)]
    widest = max((programs.run.width(o) for p in contraction.preparations for o in p), default=1)
    room = ROOM // max(1, prod(programs.extents) * widest * prod(counts))
    if inner and not room:
        _run_serial(programs, loop, lower, trips)
        return
    total, start, room = programs.tile(loop.carried[0]), 0, max(1, room)
    # an operand of the body that is not used
    programs.values[contraction.loops[-1].body.block.args[1]] = total
    while start < trips and 0 not in counts:
        count = min(room, trips - start)
        within = _enter(programs, loop, lower, start, count, trips)
        _execute(within, contraction.preparations[0])
        for other, (first, n), made in zip(
            inner, inside, contraction.preparations[1:], strict=True
        ):
            within = _enter(within, other, first, 0, n if isinstance(n, int) else 0, n)
            _execute(within, made)
        values = contraction.values(within.placed, programs.run.like)
        room = max(1, ROOM * count // max(v.size for v in values))  # now that it is known
        if start or min(room, trips) <= count:
            with np.errstate(all="ignore"):
                total = contraction.merge(total, contraction.merged(values, axis, (count, *counts)))
            start += count
    programs.values[loop.results[0]] = total


_OPERATIONS: dict[type[Operation], Callable[[Programs, Any], None]] = {
    ops.LoadOp: _load,
    ops.StoreOp: _store,
    ops.FullOp: _full,
    ops.MapOp: _map,
    ops.ReduceOp: _reduce,
    ops.ScanOp: _scan,
    ops.DotOp: _dot,
    ops.IndexOp: _index,
    ops.ValidOp: _valid,
    ops.ConvertOp: _convert,
    ops.AllReduceOp: _all_reduce,
    ops.ScratchOp: _scratch,
    ops.ForOp: _for,
    ops.PrefetchOp: lambda programs, op: None,
    ops.BarrierOp: lambda programs, op: None,
    ops.YieldOp: lambda programs, op: None,
}
