"""Operators that reshape or move elements, and operators that return shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.choices import choose, equal, unequal
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.run_sizes import copied, expand_at_run, range_at_run, reshape_at_run
from compiler.frontend.slices import at_least_zero
from compiler.frontend.stretching import expanded
from compiler.frontend.values import Value
from dialects.graph.inference import certain_sign
from dialects.graph.logic import GreaterEqualOp, LessEqualOp
from dialects.strata import types as t
from dialects.strata.types import format_sizes
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product

MAX_NUMBERS = 2**24
"""The maximum number of elements of a float range that becomes a constant."""


# ---------------------------------------------------------------------- reshape
@onnx_op("Reshape", since=5)
def reshape(n: Node, x: Value, shape: Value) -> Value:
    shape = n.of_chosen_length(shape, x.rank)
    if shape.expressions is None:
        return x.reshape(reshape_at_run(n, x, shape))
    wanted = n.known_sizes(shape, "new sizes")
    return x.reshape(_complete(x, copied(n, x, wanted)))


def _complete(x: Value, wanted: Sequence[Expr]) -> list[Expr]:
    """The sizes, with -1 replaced by what remains of the number of elements."""
    open_ = [k for k, s in enumerate(wanted) if s.constant == -1]
    if not open_:
        return list(wanted)
    known = product(s for k, s in enumerate(wanted) if k != open_[0])
    if len(open_) > 1 or known.constant == 0:
        raise Fault(f"the new sizes {format_sizes(wanted)} do not determine the size -1: there "
                    "may be only one, and no other size may be 0")
    rest, remainder = x.type.count // known, x.type.count % known
    if remainder.constant:
        raise Fault(f"the new sizes {format_sizes(wanted)} do not divide the {x.type.count} "
                    "elements of the input")
    return [rest if k == open_[0] else s for k, s in enumerate(wanted)]


@onnx_op("Flatten")
def flatten(n: Node, x: Value) -> Value:
    axis = n.integer("axis", 1)
    cut = axis if axis == x.rank else n.axis(axis, x.rank) if x.rank else 0
    return x.reshape([product(x.shape[:cut]), product(x.shape[cut:])])


@onnx_op("Squeeze")
def squeeze(n: Node, x: Value, axes: Value | None = None) -> Value:
    given = n.axes(axes)
    if given is None:
        gone = {k for k, s in enumerate(x.shape) if _is_one(n, s)}
    else:
        gone = {n.axis(a, x.rank) for a in given}
    for k in sorted(gone):
        if x.shape[k].constant not in (1, None):
            raise Fault(f"dim {k} has the size {x.shape[k]}; only a dim of size 1 can be removed")
    return x.reshape([s for k, s in enumerate(x.shape) if k not in gone])


def _is_one(n: Node, size: Expr) -> bool:
    """Whether a size is 1; for open sizes, this is a choice."""
    if certain_sign(size - 1) is not None:
        return size.constant == 1
    chosen = choose(n.build, [unequal(size, 1), equal(size, 1)])
    if not chosen:
        raise Fault(f"the size {size} is 1 at one time and not at another in a single run, and the "
                    "number of dims would change with it")
    return chosen == "equal"


@onnx_op("Unsqueeze")
def unsqueeze(n: Node, x: Value, axes: Value | None = None) -> Value:
    given = n.axes(axes) or []
    rank = x.rank + len(given)
    new = {n.axis(a, rank) for a in given}
    if len(new) < len(given):
        raise Fault(f"axes {given} name an axis twice")
    old = iter(x.shape)
    return x.reshape([1 if k in new else next(old) for k in range(rank)])


@onnx_op("Transpose")
def transpose(n: Node, x: Value) -> Value:
    return x.transpose(n.ints("perm", range(x.rank)[::-1]))


@onnx_op("DepthToSpace")
def depth_to_space(n: Node, x: Value) -> Value:
    """Mode DCR splits the depth into (block, block, c), mode CRD into (c, block, block)."""
    block, (batch, depth, height, width) = _block(n, x)
    inner = depth // (block * block)
    if _is_channels_first(n):
        split, perm = [inner, block, block], [0, 1, 4, 2, 5, 3]
    else:
        split, perm = [block, block, inner], [0, 3, 4, 1, 5, 2]
    parts = x.reshape([batch, *split, height, width])
    return parts.transpose(perm).reshape([batch, inner, height * block, width * block])


@onnx_op("SpaceToDepth")
def space_to_depth(n: Node, x: Value) -> Value:
    """The reverse of DepthToSpace, in the same two orders of depth."""
    block, (batch, depth, height, width) = _block(n, x)
    down, across = height // block, width // block
    parts = x.reshape([batch, depth, down, block, across, block])
    moved = parts.transpose([0, 1, 3, 5, 2, 4] if _is_channels_first(n) else [0, 3, 5, 1, 2, 4])
    return moved.reshape([batch, depth * block * block, down, across])


def _is_channels_first(n: Node) -> bool:
    """Whether the mode is CRD, not DCR. Raises Fault for another one."""
    mode = n.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise Fault(f"its mode is '{mode}', neither DCR nor CRD")
    return mode == "CRD"


def _block(n: Node, x: Value) -> tuple[int, tuple[Expr, ...]]:
    """The block size, and the four dims that the input must have."""
    block = n.integer("blocksize")
    if block < 1 or x.rank != 4:
        raise Fault(f"blocksize is {block} and the input {x.type.short}; blocksize must be "
                    "positive, and the input must have 4 dims")
    return block, x.shape


# ---------------------------------------------------------------------- repeat and join
@onnx_op("Concat")
def concat(n: Node, x: Value, *others: Value) -> Value:
    axis = n.axis(n.integer("axis", 1), x.rank)
    return f.concat([x, *others], axis=axis) if others else x


@onnx_op("Expand")
def expand(n: Node, x: Value, shape: Value) -> Value:
    """Bidirectional broadcasting: where the shape is 1, the size of the input is kept."""
    shape = n.of_chosen_length(shape, x.rank)
    if shape.expressions is None:
        return expand_at_run(n, x, shape)
    return expanded(n.build, x, n.known_sizes(shape, "sizes"))


@onnx_op("Tile", since=6)
def tile(n: Node, x: Value, repeats: Value) -> Value:
    """[a, b] repeated (r, s) times: [1, a, 1, b] -> [r, a, s, b] -> [r*a, s*b]."""
    times = n.known_sizes(repeats, "repeats", x.rank)
    if len(times) != x.rank:
        raise Fault(f"{len(times)} repeats are given for {x.rank} dims")
    if all(r.constant == 1 for r in times):
        return x
    pairs = x.reshape([s for size in x.shape for s in (1, size)])
    wide = [s for pair in zip(times, x.shape, strict=True) for s in pair]
    sizes = [r * s for r, s in zip(times, x.shape, strict=True)]
    return pairs.broadcast(wide).reshape(sizes)


@onnx_op("ConstantOfShape")
def constant_of_shape(n: Node, shape: Value) -> Value:
    value = n.tensor("value")
    if value is not None and value.size != 1:
        raise Fault(f"its value has {value.size} elements instead of one")
    zero = np.array(0, np.float32)
    filled = n.constant(zero if value is None else value.reshape(()))
    return filled.broadcast(n.known_sizes(n.of_chosen_length(shape, 1), "sizes"))


# ---------------------------------------------------------------------- shapes as values
@onnx_op("Shape")
def shape_of(n: Node, x: Value) -> Value:
    start, end = n.integer("start", 0), n.integer("end", x.rank)
    return n.of_sizes(x.shape[start:end])


@onnx_op("Size")
def size_of(n: Node, x: Value) -> Value:
    return n.of_size(x.type.count)


@onnx_op("Range")
def range_(n: Node, start: Value, limit: Value, delta: Value) -> Value:
    if any(v.type.count.constant != 1 for v in (start, limit, delta)):
        raise Fault("start, limit and delta must be single numbers")
    if delta.array is not None and not delta.array.all():
        raise Fault("its delta is 0")
    if delta.array is None or not all(
            v.array is not None or v.expressions is not None for v in (start, limit)):
        return range_at_run(n, start, limit, delta)
    if t.is_float(start.element):
        return _float_range(n, start, *(
            float(n.known_numbers(v, "limits").reshape(())) for v in (start, limit, delta)))
    first, end = (n.known_sizes(v, "limits")[0] for v in (start, limit))
    step = n.known_ints(delta, "delta")[0]
    count = (end - first).ceildiv(step) if step > 0 else (first - end).ceildiv(-step)
    return n.range(at_least_zero(count), start.element, start=first, step=step)


def _float_range(n: Node, like: Value, first: float, end: float, step: float) -> Value:
    count = (end - first) / step
    if not -np.inf < count <= MAX_NUMBERS:
        raise Fault(f"a range from {first} to {end} in steps of {step} is too long, or not a range",
                    f"it may have at most {MAX_NUMBERS} numbers")
    steps = np.arange(max(int(np.ceil(count)), 0))
    return n.constant((first + steps * step).astype(like.type.dtype))


@onnx_op("Trilu")
def trilu(n: Node, x: Value, k: Value | None = None) -> Value:
    """The elements on one side of the diagonal k, zeros elsewhere."""
    if x.rank < 2:
        raise Fault(f"{x.type.short} is not a matrix")
    rows, columns = (n.range(s) for s in x.shape[-2:])
    diagonal = rows.reshape([x.shape[-2], 1])
    if k is not None:
        diagonal = diagonal + k.reshape(())
    keeps = GreaterEqualOp if n.flag("upper", True) else LessEqualOp
    return f.where(n(keeps, columns, diagonal), x, 0)
