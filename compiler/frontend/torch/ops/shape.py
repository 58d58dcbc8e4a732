"""Views and copies: reshaping, permuting, repeating, joining, slicing, replacing and padding."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.node import fixed
from compiler.frontend.slices import FARTHEST, is_certain, slice_bounds
from compiler.frontend.torch.conversion import as_element
from compiler.frontend.torch.drawing.operators import kept_by_dropout
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import Operand, aten_op
from compiler.frontend.torch.ops.elementwise import arithmetic, operand
from compiler.frontend.torch.ops.scatter import put
from compiler.frontend.values import Value
from dialects.graph.bits import BitcastOp
from dialects.graph.elementwise import SubOp
from dialects.graph.logic import XorOp
from dialects.graph.shape import FramesOp, PadOp, SliceOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, Size


@aten_op("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default",
         "aten.unsqueeze.default", "aten.flatten.using_ints", "aten.unflatten.int",
         "aten._reshape_copy.default", "aten.view_copy.default", "aten.unsqueeze_copy.default",
         "aten.view_as.default", ignored=("start_dim", "end_dim"))
def reshape(n: Node, x: Value) -> Value:
    """The result has the shape that PyTorch gives it."""
    return x.reshape(n.shape)


@aten_op("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims",
         "aten.squeeze_copy.default", "aten.squeeze_copy.dim", "aten.squeeze_copy.dims")
def squeeze(n: Node, x: Value, dims: int | Sequence[int] | None = None) -> Value:
    """A dim that stays must not be 1 in a run, since PyTorch would remove it; one that PyTorch has
    removed must be 1."""
    wanted = range(x.rank) if dims is None else [dims] if isinstance(dims, int) else dims
    sizes = [x.shape[d] for d in wanted if x.rank]
    unknown = [size for size in sizes if size.constant is None]
    removed = x.rank - len(n.shape) - sum(size == Expr.of(1) for size in sizes)
    gone = unknown if removed == len(unknown) else [s for s in unknown if s not in n.shape]
    if len(gone) != removed:
        raise Fault("which of its dims are 1 depends on sizes")
    for size in unknown:
        if size in gone:
            n.build.assume(size, "==", 1)
        else:
            n.build.assume(1, "<=", (size - 1) * (size - 1))
    return x.reshape(n.shape)


@aten_op("aten.clone.default", "aten.alias.default", "aten.detach.default",
         "aten.contiguous.default", "aten.lift_fresh_copy.default", "aten.lift_fresh.default",
         "aten.alias_copy.default", "aten.detach_copy.default",
         "aten.detach_.default", "aten.lift.default")
def same(n: Node, x: Value) -> Value:
    return x


@aten_op("aten.dropout.default")
def dropout(n: Node, x: Value, probability: float, training: bool) -> Value:
    return kept_by_dropout(n, x, probability) if training and probability else x


@aten_op("aten._to_copy.default", "aten.to.dtype", "aten.to.device", "aten.to.dtype_layout",
         "aten.type_as.default")
def converted(n: Node, x: Operand) -> Value:
    """A number where a mapped graph has a scalar, or a tensor."""
    return operand(n, x, n.element)


@aten_op("prims.convert_element_type.default")
def convert_element_type(n: Node, x: Value, to: Attribute) -> Value:
    return as_element(x, to)


@aten_op("aten.copy.default")
def copy(n: Node, target: Value, source: Value) -> Value:
    """The source, cast and broadcast to the type of the target."""
    return as_element(source, n.element).broadcast(n.shape)


# ---------------------------------------------------------------------- order
@aten_op("aten.permute.default", "aten.permute_copy.default")
def permute(n: Node, x: Value, dims: Sequence[int]) -> Value:
    return x.transpose([n.axis(d, x.rank) for d in dims])


@aten_op("aten.transpose.int", "aten.transpose_copy.int")
def transpose(n: Node, x: Value, first: int, second: int) -> Value:
    return n.swap(x, n.axis(first, x.rank), n.axis(second, x.rank)) if x.rank else x


@aten_op("aten.t.default", "aten.numpy_T.default", "aten.t_copy.default")
def matrix_transpose(n: Node, x: Value) -> Value:
    return x.transpose(range(x.rank)[::-1])


@aten_op("aten.flip.default")
def flip(n: Node, x: Value, dims: Sequence[int]) -> Value:
    turned = set(n.axes(list(dims), x.rank)) if dims else set[int]()
    starts = [s - 1 if k in turned else Expr.of(0) for k, s in enumerate(x.shape)]
    steps = [-1 if k in turned else 1 for k in range(x.rank)]
    return n(SliceOp, x, starts=starts, sizes=list(x.shape), steps=steps) if turned else x


@aten_op("aten.roll.default")
def roll(n: Node, x: Value, shifts: Sequence[Size], dims: Sequence[int]) -> Value:
    """Rotate axes: elements that are shifted beyond the end continue at the start."""
    if not dims:
        return _rolled(x.reshape([x.type.count]), shifts[0], 0).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(x, shift, n.axis(dim, x.rank))
    return x


def _rolled(x: Value, shift: Size, axis: int) -> Value:
    size = x.shape[axis]
    if size.constant == 0:
        return x
    last = Expr.of(shift) % size
    if last.constant == 0:
        return x
    return f.concat([x.part(axis, size - last, last), x.part(axis, 0, size - last)], axis=axis)


@aten_op("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(n: Node, x: Value, offset: int, first: int, second: int) -> Value:
    """The elements whose indices along two dims differ by the offset, as a new last dim."""
    first, second = n.axis(first, x.rank), n.axis(second, x.rank)
    others = [k for k in range(x.rank) if k not in (first, second)]
    width, rows = x.shape[second], [x.shape[k] for k in others]
    flat = x.transpose([*others, first, second]).reshape([*rows, x.shape[first] * width])
    start = Expr.of(offset) if offset >= 0 else width * -offset
    if width.constant is None:
        places = n.range(n.shape[-1]) * n.of_size(width + 1) + n.of_size(start)
        return f.gather(flat, places, axis=len(others))
    return flat.part(len(others), start, n.shape[-1], width.constant + 1)


@aten_op("aten.view.dtype", "aten.view_copy.dtype")
def view_as_type(n: Node, x: Value) -> Value:
    """The same bits as elements of another type of the same width."""
    if t.byte_width(x.element) != t.byte_width(n.element):
        raise Fault(f"elements of {x.element} do not have the width of {n.element}")
    return n(BitcastOp, x, to=n.element)


# ---------------------------------------------------------------------- repetition
@aten_op("aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default",
         "aten.expand_copy.default", ignored=("implicit",))
def expand(n: Node, x: Value) -> Value:
    return x.broadcast(n.shape)


@aten_op("aten.repeat.default")
def repeat(n: Node, x: Value, repeats: Sequence[Size]) -> Value:
    """[a, b] repeated (r, s) times: [1, a, 1, b] -> [r, a, s, b] -> [r*a, s*b]."""
    shape = [Expr.of(1)] * (len(repeats) - x.rank) + list(x.shape)
    pairs = x.reshape([s for size in shape for s in (1, size)])
    wide = [s for pair in zip(repeats, shape, strict=True) for s in pair]
    return pairs.broadcast(wide).reshape(n.shape)


@aten_op("aten.repeat_interleave.self_int", ignored=("output_size",))
def repeat_interleave(n: Node, x: Value, repeats: Size, axis: int | None) -> Value:
    """Every entry of the axis `repeats` times in a row."""
    if axis is None:
        x, axis = x.reshape([x.type.count]), 0
    axis = n.axis(axis, x.rank)
    before, after = x.shape[:axis + 1], x.shape[axis + 1:]
    pairs = x.reshape([*before, 1, *after])
    return pairs.broadcast([*before, repeats, *after]).reshape(n.shape)


# ---------------------------------------------------------------------- joining
@aten_op("aten.diff.default")
def diff(
    n: Node, x: Value, times: int, axis: int, before: Value | None, after: Value | None
) -> Value:
    """The differences of neighbours along an axis; for truth values, whether they differ.

    What is to be put before and after x does not matter if differences are taken zero times.
    """
    axis = n.axis(axis, x.rank)
    if not times:
        return x
    parts = [v.cast(x.element) for v in (before, x, after) if v is not None]
    found = f.concat(parts, axis=axis) if len(parts) > 1 else x
    for _ in range(times):
        sizes = list(found.shape)
        sizes[axis] = sizes[axis] - (sizes[axis].constant != 0)
        left, right = (n(SliceOp, found, starts=[int(k == axis) * at for k in range(x.rank)],
                         sizes=sizes, steps=[1] * x.rank) for at in (0, 1))
        found = arithmetic(n, XorOp if x.element == t.i1 else SubOp, right, left)
    return found


@aten_op("aten.cat.default")
def cat(n: Node, xs: Sequence[Value], axis: int) -> Value:
    """Join tensors along an axis. As in PyTorch, tensors of shape [0] are ignored."""
    parts = [x.cast(n.element) for x in xs
             if not (x.rank == 1 and x.shape[0].constant == 0 and len(n.shape) != 1)]
    axis = n.axis(axis, parts[0].rank)
    return f.concat(parts, axis=axis) if len(parts) > 1 else parts[0]


@aten_op("aten.stack.default")
def stack(n: Node, xs: Sequence[Value], axis: int) -> Value:
    axis = n.axis(axis, len(n.shape))
    parts = [x.cast(n.element) for x in xs]
    shape = [*parts[0].shape[:axis], 1, *parts[0].shape[axis:]]
    parts = [x.reshape(shape) for x in parts]
    return f.concat(parts, axis=axis) if len(parts) > 1 else parts[0]


# ---------------------------------------------------------------------- parts
@aten_op("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(
    n: Node, x: Value, axis: int, start: Size | None, end: Size | None, step: Size
) -> Value:
    axis, stride = n.axis(axis, x.rank), min(fixed(step, "step"), FARTHEST - 1)
    size = x.shape[axis]
    first, count = _bounds(size, start, end, stride)
    return x.part(axis, first, count, stride)


def _bounds(
    size: Expr, start: Size | None, end: Size | None, step: int
) -> tuple[Expr, Expr]:
    """The first element and the number of elements of start:end:step."""
    last = size if end is None or end == size else Expr.of(end)
    return slice_bounds(size, Expr.of(0 if start is None else start), last, step)


@aten_op("aten.select.int", "aten.select_copy.int")
def select(n: Node, x: Value, axis: int, index: Size) -> Value:
    axis = n.axis(axis, x.rank)
    return x.part(axis, _position(index, x.shape[axis]), 1).reshape(n.shape)


def _position(index: Size, size: Expr) -> Expr:
    """An index counted from the front."""
    index = Expr.of(index)
    if is_certain(index):
        return index
    return index + size if is_certain(-1 - index) else index % size


@aten_op("aten.split.Tensor", "aten.split_copy.Tensor")
def split(n: Node, x: Value, size: Size, axis: int) -> list[Value]:
    axis = n.axis(axis, x.rank)
    return _cut(x, axis, [t.shape[axis] for t in n.results if t is not None])


@aten_op("aten.split_with_sizes.default", "aten.split.sizes",
         "aten.split_with_sizes_copy.default")
def split_with_sizes(n: Node, x: Value, sizes: Sequence[Size], axis: int) -> list[Value]:
    return _cut(x, n.axis(axis, x.rank), sizes)


@aten_op("aten.chunk.default")
def chunk(n: Node, x: Value, count: int, axis: int) -> list[Value]:
    return split(n, x, 0, axis)


def _cut(x: Value, axis: int, sizes: Sequence[Size]) -> list[Value]:
    start, parts = Expr.of(0), list[Value]()
    for size in sizes:
        parts.append(x.part(axis, start, size))
        start = start + size
    return parts


@aten_op("aten.unbind.int", "aten.unbind_copy.int")
def unbind(n: Node, x: Value, axis: int) -> list[Value]:
    axis = n.axis(axis, x.rank)
    shape = [s for k, s in enumerate(x.shape) if k != axis]
    return [x.part(axis, k, 1).reshape(shape) for k in range(len(n.results))]


@aten_op("aten.unfold.default", "aten.unfold_copy.default")
def unfold(n: Node, x: Value, axis: int, size: Size, step: Size) -> Value:
    """Windows of an axis. Their elements become a new last dim."""
    if not x.rank:
        return x.reshape([1]).part(0, 0, n.shape[0])
    axis = n.axis(axis, x.rank)
    frames = n(FramesOp, x, axis=axis, size=fixed(size, "window"), step=fixed(step, "step"))
    return frames.transpose([k for k in range(x.rank + 1) if k != axis + 1] + [axis + 1])


# ---------------------------------------------------------------------- replaced parts
@aten_op("aten.slice_scatter.default")
def slice_scatter(
    n: Node, x: Value, source: Value, axis: int, start: Size | None, end: Size | None, step: Size
) -> Value:
    """x with a slice of it replaced."""
    axis, stride = n.axis(axis, x.rank), fixed(step, "step")
    first, count = _bounds(x.shape[axis], start, end, stride)
    if stride == 1:
        return _replaced(x, source, axis, first, count)
    return put(n, x, [*[None] * axis, n.range(count, start=first, step=stride)], source, False)


@aten_op("aten.select_scatter.default")
def select_scatter(n: Node, x: Value, source: Value, axis: int, index: Size) -> Value:
    """x with one entry of an axis replaced."""
    axis = n.axis(axis, x.rank)
    entry = source.reshape([1 if k == axis else s for k, s in enumerate(x.shape)])
    return _replaced(x, entry, axis, _position(index, x.shape[axis]), Expr.of(1))


def _replaced(
    x: Value, source: Value, axis: int, first: Expr, count: Expr
) -> Value:
    rest = x.shape[axis] - first - count
    shape = [count if k == axis else s for k, s in enumerate(x.shape)]
    middle = source.cast(x.element).broadcast(shape)
    before = [] if first.constant == 0 else [x.part(axis, 0, first)]
    after = [] if rest.constant == 0 else [x.part(axis, first + count, rest)]
    parts = [*before, middle, *after]
    return f.concat(parts, axis=axis) if len(parts) > 1 else middle


# ---------------------------------------------------------------------- borders
@aten_op("aten.constant_pad_nd.default", "aten.pad.default")
def constant_pad(n: Node, x: Value, pads: Sequence[Size], *rest: Operand | None) -> Value:
    """Pads are listed from the last dim on. Negative ones cut elements off."""
    mode = rest[0] if rest and isinstance(rest[0], str) else "constant"
    value = next((v for v in rest if isinstance(v, (int, float))), 0)
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    return padded(n, x, pads, modes[mode], value)


@aten_op(*(f"aten.{kind}_pad{k}d.default" for kind in ("reflection", "replication")
           for k in (1, 2, 3)))
def border_pad(n: Node, x: Value, pads: Sequence[Size]) -> Value:
    return padded(n, x, pads, "reflect" if "reflection" in n.op else "edge", None)


def padded(n: Node, x: Value, pads: Sequence[Size], mode: str, value: float | None) -> Value:
    """Copies and mirror images are of the whole tensor, from which elements are cut off then."""
    low, high = [0] * x.rank, [0] * x.rank
    for k, (before, after) in enumerate(zip(pads[::2], pads[1::2], strict=True)):
        axis = x.rank - 1 - k
        sizes = Expr.of(before), Expr.of(after)
        if mode == "constant" and any(s.constant is None for s in sizes):
            first, last = (-s if is_certain(-s) else Expr.of(0) for s in sizes)
            x = x.part(axis, first, x.shape[axis] - first - last)
            sizes = sizes[0] + first, sizes[1] + last
            x = _grown(n, x, axis, sizes, value or 0.0)
            continue
        low[axis], high[axis] = n.integers(sizes, "pads")
    x = x if mode in ("edge", "reflect") else _without_ends(x, low, high)
    more = {"low": [max(p, 0) for p in low], "high": [max(p, 0) for p in high]}
    if any(map(any, more.values())):
        x = n(PadOp, x, **more, mode=mode, value=value)
    return _without_ends(x, low, high) if mode in ("edge", "reflect") else x


def _without_ends(x: Value, low: Sequence[int], high: Sequence[int]) -> Value:
    """x without what negative pads cut off."""
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        first, last = max(-before, 0), max(-after, 0)
        if first or last:
            x = x.part(axis, first, x.shape[axis] - first - last)
    return x


def _grown(n: Node, x: Value, axis: int, sizes: tuple[Expr, Expr], value: float) -> Value:
    """Pad one axis by non-negative sizes that are known only at run time."""
    def border(size: Expr) -> list[Value]:
        shape = [size if k == axis else s for k, s in enumerate(x.shape)]
        return [] if size.constant == 0 else [operand(n, value, x.element).broadcast(shape)]

    parts = [*border(sizes[0]), x, *border(sizes[1])]
    return f.concat(parts, axis=axis)
