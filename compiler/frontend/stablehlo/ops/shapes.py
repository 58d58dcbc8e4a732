"""Operations that move elements."""

from __future__ import annotations

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.ops import hlo_op
from compiler.frontend.values import Value
from dialects.graph.scatter import ScatterNdOp
from dialects.graph.shape import PadOp, SliceOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr


@hlo_op("stablehlo.reshape")
def reshape(n: Node, x: Value) -> Value:
    return x.reshape(n.result.shape)


@hlo_op("stablehlo.dynamic_reshape")
def dynamic_reshape(n: Node, x: Value, shape: Value) -> Value:
    return x.reshape(n.sizes(shape, "shape"))


def _spread(x: Value, dims: list[int], sizes: list[Expr]) -> Value:
    """Dim k of x becomes dim dims[k] of the result; sizes of 1 are stretched."""
    own = dict(zip(dims, x.shape, strict=True))
    order = sorted(range(len(dims)), key=lambda k: dims[k])
    moved = x.transpose(order)
    return moved.reshape([own.get(k, Expr.of(1)) for k in range(len(sizes))]).broadcast(sizes)


@hlo_op("stablehlo.broadcast_in_dim")
def broadcast_in_dim(n: Node, x: Value) -> Value:
    dims = n.ints("broadcast_dimensions" if "broadcast_dimensions" in n.op.attributes else "dims")
    return _spread(x, dims, list(n.result.shape))


@hlo_op("stablehlo.dynamic_broadcast_in_dim")
def dynamic_broadcast_in_dim(n: Node, x: Value, shape: Value) -> Value:
    dims = n.ints("broadcast_dimensions" if "broadcast_dimensions" in n.op.attributes else "dims")
    return _spread(x, dims, n.sizes(shape, "shape"))


@hlo_op("stablehlo.broadcast")
def broadcast(n: Node, x: Value) -> Value:
    """New dims before those of x. The operation was dropped from StableHLO."""
    return x.broadcast([*n.ints("broadcast_sizes"), *x.shape])


@hlo_op("stablehlo.transpose")
def transpose(n: Node, x: Value) -> Value:
    return x.transpose(n.ints("permutation" if "permutation" in n.op.attributes else "dims"))


@hlo_op("stablehlo.concatenate")
def concatenate(n: Node, *parts: Value) -> Value:
    return f.concat(parts, axis=n.number("dimension" if "dimension" in n.op.attributes else "dim"))


@hlo_op("stablehlo.reverse")
def reverse(n: Node, x: Value) -> Value:
    axes = n.ints("dimensions" if "dimensions" in n.op.attributes else "dims")
    return turned(n, x, axes)


def turned(n: Node, x: Value, axes: list[int]) -> Value:
    if not axes:
        return x
    starts = [size - 1 if k in axes else Expr.of(0) for k, size in enumerate(x.shape)]
    return n(SliceOp, x, starts=starts, sizes=list(x.shape),
             steps=[-1 if k in axes else 1 for k in range(x.rank)])


@hlo_op("stablehlo.slice")
def sliced(n: Node, x: Value) -> Value:
    starts, limits = n.ints("start_indices"), n.ints("limit_indices")
    strides = n.ints("strides", [1] * x.rank)
    sizes = [max(0, -((start - limit) // step))
             for start, limit, step in zip(starts, limits, strides, strict=True)]
    return n(SliceOp, x, starts=starts, sizes=sizes, steps=strides) if x.rank else x


@hlo_op("stablehlo.pad")
def pad(n: Node, x: Value, value: Value) -> Value:
    """Interior pads spread elements apart; negative ones cut elements off."""
    low, high, between = (n.ints(long if long in n.op.attributes else short) for long, short in (
        ("edge_padding_low", "low"), ("edge_padding_high", "high"),
        ("interior_padding", "interior")))
    return _padded(n, x, value, low, high, between)


@hlo_op("stablehlo.dynamic_pad")
def dynamic_pad(n: Node, x: Value, value: Value, low: Value, high: Value, between: Value
                ) -> Value:
    """Pads that only a run knows are not negative."""
    first, last, gaps = (n.sizes(v, "pads") for v in (low, high, between))
    known = [[size.constant for size in sizes] for sizes in (first, last, gaps)]
    if any(gap is None for gap in known[2]):
        raise Fault("pads between elements must be constant")
    for axis in range(x.rank):
        if known[0][axis] is None or known[1][axis] is None:
            x = _open(n, x, value, axis, (first[axis], last[axis]), known[2][axis] or 0)
            known[0][axis] = known[1][axis] = known[2][axis] = 0
    return _padded(n, x, value, *([k or 0 for k in sizes] for sizes in known))


def _open(n: Node, x: Value, value: Value, axis: int, pads: tuple[Expr, Expr], gap: int) -> Value:
    x = spread_apart(x, value, axis, gap) if gap else x
    for pad in pads:
        n.build.assume(0, "<=", pad)
    sides = [value.broadcast([pad if k == axis else s for k, s in enumerate(x.shape)])
             for pad in pads]
    return f.concat([sides[0], x, sides[1]], axis=axis)


def _padded(
    n: Node, x: Value, value: Value, low: list[int], high: list[int], between: list[int]
) -> Value:
    for axis, gap in enumerate(between):
        x = spread_apart(x, value, axis, gap) if gap else x
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        cut = [max(-before, 0), max(-after, 0)]
        x = x.part(axis, cut[0], x.shape[axis] - cut[0] - cut[1])
        border = [[max(before, 0) if k == axis else 0 for k in range(x.rank)],
                  [max(after, 0) if k == axis else 0 for k in range(x.rank)]]
        if before > 0 or after > 0:
            x = _bordered(n, x, value, axis, border)
    return x


def _bordered(n: Node, x: Value, value: Value, axis: int, border: list[list[int]]) -> Value:
    if value.array is not None:
        return n(PadOp, x, low=border[0], high=border[1], mode="constant",
                 value=value.array.reshape(-1)[0].item())
    parts = [value.broadcast([side[axis] if k == axis else s for k, s in enumerate(x.shape)])
             for side in border]
    return f.concat([parts[0], x, parts[1]], axis=axis)


def spread_apart(x: Value, value: Value, axis: int, gap: int) -> Value:
    size = x.shape[axis]
    columns = x.reshape([*x.shape[:axis + 1], 1, *x.shape[axis + 1:]])
    fill = value.broadcast([*x.shape[:axis + 1], gap, *x.shape[axis + 1:]])
    joined = f.concat([columns, fill], axis=axis + 1)
    flat = joined.reshape([*x.shape[:axis], size * (gap + 1), *x.shape[axis + 1:]])
    return flat.part(axis, 0, (size - 1) * (gap + 1) + 1)


@hlo_op("stablehlo.iota")
def iota(n: Node) -> Value:
    axis = n.number("iota_dimension" if "iota_dimension" in n.op.attributes else "dim")
    return _counted(n, list(n.result.shape), axis)


@hlo_op("stablehlo.dynamic_iota")
def dynamic_iota(n: Node, shape: Value) -> Value:
    axis = n.number("iota_dimension" if "iota_dimension" in n.op.attributes else "dim")
    return _counted(n, n.sizes(shape, "shape"), axis)


def _counted(n: Node, shape: list[Expr], axis: int) -> Value:
    steps = n.range(shape[axis], n.result.element)
    return steps.reshape([shape[axis], *[1] * (len(shape) - axis - 1)]).broadcast(shape)


@hlo_op("stablehlo.get_dimension_size")
def dimension_size(n: Node, x: Value) -> Value:
    axis = n.number("dimension" if "dimension" in n.op.attributes else "dim")
    return n.of_size(x.shape[axis]).cast(t.i32)


# ---------------------------------------------------------------------- at places of a run
@hlo_op("stablehlo.dynamic_slice")
def dynamic_slice(n: Node, x: Value, *starts: Value) -> Value:
    """Starts are moved so far that the slice is inside x."""
    sizes = n.ints("slice_sizes" if "slice_sizes" in n.op.attributes else "sizes")
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if x.shape[axis].constant == size:
            continue
        first = _certain(n, start, x.shape[axis] - size)
        x = x.part(axis, first, size) if first is not None else f.gather(
            x, _clamped(n, start, x.shape[axis] - size) + n.range(size), axis=axis)
    return x


def _clamped(n: Node, start: Value, most: Expr) -> Value:
    wide = start.cast(t.i64)
    return f.minimum(f.maximum(wide, 0), n.of_size(most))


def _certain(n: Node, start: Value, most: Expr) -> Expr | None:
    """A start that is known to be from 0 to `most`, as it is where a loop counts it."""
    known = start.expressions
    if known is None:
        return None
    first = Expr.of(known.reshape(-1)[0])
    inside = n.build.frame.at_most(Expr.of(0), first) and n.build.frame.at_most(first, most)
    return first if inside else None


@hlo_op("stablehlo.dynamic_update_slice")
def dynamic_update_slice(n: Node, x: Value, update: Value, *starts: Value) -> Value:
    """x with a block replaced. Where the place of the block is certain, only the block is written.
    """
    if any(size.constant == 0 for size in update.shape):
        return x
    parts = [k for k in range(x.rank) if update.shape[k] != x.shape[k]]
    if not parts:
        return update
    firsts = {k: first for k in parts
              if (first := _certain(n, starts[k], x.shape[k] - update.shape[k])) is not None}
    if len(firsts) == len(parts):
        return _written(n, x, update, firsts)
    inside: Value | None = None
    found = update
    for axis in parts:
        size = update.shape[axis]
        first = _clamped(n, starts[axis], x.shape[axis] - size)
        place = n.range(x.shape[axis]) - first
        within = (place >= 0) & (place < n.of_size(size))
        found = f.gather(found, f.minimum(f.maximum(place, 0), n.of_size(size - 1)), axis=axis)
        spread = within.reshape([x.shape[axis], *[1] * (x.rank - axis - 1)])
        inside = spread if inside is None else inside & spread
    return found if inside is None else f.where(inside, found, x)


def _written(n: Node, x: Value, update: Value, firsts: dict[int, Expr]) -> Value:
    """The block as updates of x at the places along the axes up to the last one that it divides."""
    depth = max(firsts) + 1
    shape = [*update.shape[:depth]]
    places = [n.range(shape[axis], start=firsts.get(axis, Expr.of(0))).reshape(
        [shape[axis] if k == axis else 1 for k in range(depth)]).broadcast(shape).reshape(
        [*shape, 1]) for axis in range(depth)]
    at = f.concat(places, axis=depth) if len(places) > 1 else places[0]
    return n(ScatterNdOp, x, at, update, combiner="none")


@hlo_op("stablehlo.real_dynamic_slice")
def real_dynamic_slice(n: Node, x: Value, starts: Value, limits: Value, strides: Value) -> Value:
    first, last, steps = (n.sizes(v, w) for v, w in (
        (starts, "starts"), (limits, "limits"), (strides, "strides")))
    by = [step.constant for step in steps]
    if None in by:
        raise Fault("its strides must be constant")
    sizes = [(b - a).ceildiv(c or 1) for a, b, c in zip(first, last, by, strict=True)]
    return n(SliceOp, x, starts=first, sizes=sizes, steps=by)
