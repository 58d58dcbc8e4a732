"""Operators that move elements: what they require of dims."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import z3

from tests.fuzz.solver.domains import is_float
from tests.fuzz.solver.draft import (
    ALL,
    I32,
    I64,
    Dim,
    Domain,
    Draft,
    Impossible,
    Value,
    product,
    same,
)


def transpose(draft: Draft) -> None:
    x = draft.pick(ALL, 0)
    perm = [int(p) for p in draft.random.permutation(x.rank)]
    if draft.chance(0.15):
        draft.node("Transpose", [x], x.dtype, x.shape[::-1])
        return
    draft.node("Transpose", [x], x.dtype, [x.shape[p] for p in perm], perm=perm)


def _reshaped(draft: Draft, x: Value, target: Sequence[Dim], **attributes: Any) -> Value:
    """Reshape to dims whose product is that of the operand; one of them may be told as -1, and
    those that stay in place as 0."""
    zero = draft.smallest > 0
    told: list[Dim] = [0 if zero and k < x.rank and same(x.shape[k], d) is True
                       and draft.chance(0.5) else d for k, d in enumerate(target)]
    if target and zero and draft.chance(0.7):
        told[draft.integer(0, len(target) - 1)] = -1
    if not zero:  # a 0 is a size, not a reference
        if draft.opset < 14:
            raise Impossible
        attributes["allowzero"] = 1
    return draft.node("Reshape", [x, draft.sizes(told)], x.dtype, target, **attributes)


def merge(draft: Draft) -> None:
    """Neighbouring dims become one."""
    x = draft.pick(ALL, 2)
    first = draft.integer(0, x.rank - 2)
    last = draft.integer(first + 1, x.rank - 1)
    merged = product(x.shape[first:last + 1])
    _reshaped(draft, x, [*x.shape[:first], merged, *x.shape[last + 1:]])


def split_dim(draft: Draft) -> None:
    """One dim becomes two, one of them a number."""
    x = draft.pick(ALL, 1, 4)
    axis, factor = draft.integer(0, x.rank - 1), draft.choose((1, 2, 3, 4, 5))
    rest = draft.dim()
    draft.require(same(rest * factor, x.shape[axis]))
    pair: list[Dim] = [rest, factor] if draft.chance() else [factor, rest]
    _reshaped(draft, x, [*x.shape[:axis], *pair, *x.shape[axis + 1:]])


def reshape_freely(draft: Draft) -> None:
    """Any dims of the same product."""
    x = draft.pick(ALL, 1, 3)
    target = [draft.dim() for _ in range(draft.integer(1, 3))]
    draft.require(same(product(target), product(x.shape)))
    _reshaped(draft, x, target)


def reshape_like(draft: Draft) -> None:
    """Reshape to the shape of another value."""
    x, y = draft.pick(ALL), draft.pick(ALL)
    draft.require(same(product(x.shape), product(y.shape)), *(d >= 1 for d in y.shape))
    shape = draft.node("Shape", [y], I64, [y.rank], keep=False)
    draft.node("Reshape", [x, shape], x.dtype, y.shape)


def flatten(draft: Draft) -> None:
    x = draft.pick(ALL)
    axis = draft.integer(0, x.rank)
    told = axis - x.rank if axis < x.rank and draft.chance(0.3) else axis
    draft.node("Flatten", [x], x.dtype, [product(x.shape[:axis]), product(x.shape[axis:])],
               axis=told)


def unsqueeze(draft: Draft) -> None:
    x = draft.pick(ALL, 0, 4)
    rank = x.rank + draft.integer(1, 2)
    axes = sorted(int(a) for a in draft.random.permutation(rank)[: rank - x.rank])
    dims = iter(x.shape)
    shape = [1 if a in axes else next(dims) for a in range(rank)]
    told = [a - rank if draft.chance(0.3) else a for a in axes]
    _with_axes(draft, "Unsqueeze", x, shape, told, 13)


def squeeze(draft: Draft) -> None:
    x = draft.pick(ALL, 1)
    axes = sorted({draft.integer(0, x.rank - 1) for _ in range(draft.integer(1, 2))})
    if not x.placeholder and not all(isinstance(x.shape[a], int) for a in axes):
        raise Impossible
    draft.require(*(same(x.shape[a], 1) for a in axes))
    draft.pinned.extend(x.shape[a] for a in axes)
    shape = [d for a, d in enumerate(x.shape) if a not in axes]
    told = [a - x.rank if draft.chance(0.3) else a for a in axes]
    _with_axes(draft, "Squeeze", x, shape, told, 13)


def _with_axes(
    draft: Draft, name: str, x: Value, shape: Sequence[Dim], axes: Sequence[int], since: int
) -> None:
    """A node whose axes are an attribute up to an opset, and an operand from there on."""
    if draft.opset >= since:
        draft.node(name, [x, draft.constant(axes)], x.dtype, shape)
    else:
        draft.node(name, [x], x.dtype, shape, axes=list(axes))


def concat(draft: Draft) -> None:
    x = draft.pick(ALL, 1)
    axis = draft.integer(0, x.rank - 1)
    parts = [x]
    for _ in range(draft.integer(0, 3)):
        shape = [draft.dim() if a == axis else d for a, d in enumerate(x.shape)]
        parts.append(draft.like(x.dtype, shape))
    parts = [parts[int(k)] for k in draft.random.permutation(len(parts))]
    total: Any = sum(p.shape[axis] for p in parts)
    draft.require(*([] if isinstance(total, int) else [total <= 64]))
    shape = [total if a == axis else d for a, d in enumerate(x.shape)]
    draft.node("Concat", parts, x.dtype, shape, axis=axis - (x.rank if draft.chance(0.3) else 0))


def split(draft: Draft) -> None:
    x = draft.pick(ALL, 1)
    axis, count = draft.integer(0, x.rank - 1), draft.integer(1, 3)
    dims: list[Dim] = [draft.dim() for _ in range(count)]
    draft.require(same(sum(dims), x.shape[axis]))  # type: ignore[arg-type]
    even = draft.chance(0.3)
    if even:
        draft.require(*(same(d, dims[0]) for d in dims))
    results = [(x.dtype, [*x.shape[:axis], d, *x.shape[axis + 1:]]) for d in dims]
    if even:
        more = {"num_outputs": count} if draft.opset >= 18 else {}
        draft.nodes("Split", [x], results, axis=axis, **more)
    elif draft.opset >= 13:
        draft.nodes("Split", [x, draft.sizes(dims)], results, axis=axis)
    else:
        draft.nodes("Split", [x], results, axis=axis, split=dims)


def slice_(draft: Draft) -> None:
    """Bounds from the front or the back, in range or beyond it, and steps of both signs."""
    x = draft.pick(ALL, 1)
    axes = sorted({draft.integer(0, x.rank - 1) for _ in range(draft.integer(1, 2))})
    parts = [_bounds(draft, x.shape[a]) for a in axes]
    shape = list(x.shape)
    for axis, (_, _, _, size) in zip(axes, parts, strict=True):
        shape[axis] = size
    starts, ends, steps = ([p[k] for p in parts] for k in range(3))
    dtype = draft.choose((I64, I32))
    operands = [draft.sizes(starts, dtype), draft.sizes(ends, dtype),
                draft.sizes([a - x.rank if draft.chance(0.2) else a for a in axes], dtype)]
    if any(s != 1 for s in steps):
        operands.append(draft.sizes(steps, dtype))
    draft.node("Slice", [x, *operands], x.dtype, shape)


def _bounds(draft: Draft, size: Dim) -> tuple[Dim, Dim, int, Dim]:
    """(start, end, step, resulting size) of a slice of one dim."""
    kind = draft.choose(("front", "back", "all", "middle", "reverse", "stride", "beyond"))
    k = draft.choose((1, 2, 3, 5))
    huge = draft.choose((1 << 30, 2**31 - 1))
    if kind in ("front", "back", "middle", "beyond"):
        draft.require(_at_least(size, k + draft.smallest))
    if kind == "front":
        return 0, k, 1, k
    if kind == "back":
        return -k, huge, 1, k
    if kind == "middle":
        return (0, -k, 1, size - k) if draft.chance() else (k, huge, 1, size - k)
    if kind == "beyond":
        return k - 1, huge, 1, size - k + 1
    if kind == "reverse":
        return -1, -huge, -1, size
    step = draft.choose((2, 3))
    return (0, huge, step, _ceil(size, step)) if kind == "stride" else (0, huge, 1, size)


def _at_least(size: Dim, least: int) -> Any:
    return size >= least


def _ceil(size: Dim, step: int) -> Dim:
    if isinstance(size, int):
        return -(-size // step)
    return (size + (step - 1)) / z3.IntVal(step)


def tile(draft: Draft) -> None:
    x = draft.pick(draft.allowed("Tile"), 1, 4)
    repeats = [draft.choose((1, 1, 2, 3)) for _ in x.shape]
    draft.node("Tile", [x, draft.constant(repeats)], x.dtype,
               [d * r if r != 1 else d for d, r in zip(x.shape, repeats, strict=True)])


def expand(draft: Draft) -> None:
    """To a shape of constants, or to that of another value."""
    x = draft.pick(ALL)
    if draft.chance():
        y = draft.pick(ALL)
        shape = draft.broadcast(x.shape, y.shape)
        target: Value | str = draft.node("Shape", [y], I64, [y.rank], keep=False)
    else:
        wanted = [draft.choose((1, 1, d)) for d in x.shape]
        wanted = [draft.integer(1, 4), *wanted] if draft.chance(0.4) and x.rank < 5 else wanted
        shape = draft.broadcast(x.shape, tuple(wanted))
        target = draft.sizes(wanted)
    draft.node("Expand", [x, target], x.dtype, shape)


def pad(draft: Draft) -> None:
    x = draft.pick(draft.allowed("Pad"), 1, 4)
    modes = ["constant"] * 3 + ["reflect", "edge"] + (["wrap"] if draft.opset >= 19 else [])
    mode = draft.choose(modes)
    low = 0 if mode != "constant" or draft.chance(0.7) else -1
    pads = [draft.integer(low, 2) if draft.chance(0.6) else 0 for _ in range(2 * x.rank)]
    shape = [d + (pads[k] + pads[k + x.rank]) for k, d in enumerate(x.shape)]
    for k, d in enumerate(x.shape):
        largest = max(pads[k], pads[k + x.rank])
        least = {"reflect": largest + 1, "edge": 1, "wrap": max(largest, 1)}.get(mode, 0)
        draft.require(_at_least(d, least), _at_least(shape[k], draft.smallest))
        draft.require(_at_least(d, -min(pads[k], 0) - min(pads[k + x.rank], 0)))
    if draft.opset < 11:
        raise Impossible
    operands = [draft.constant(pads)]
    if mode == "constant" and draft.chance(0.6):
        operands.append(draft.constant(draft.integer(0, 3), x.dtype))
    draft.node("Pad", [x, *operands], x.dtype, shape, mode=mode)


def trilu(draft: Draft) -> None:
    x = draft.pick(draft.allowed("Trilu"), 2, 4)
    k = [draft.constant(draft.integer(-3, 3))] if draft.chance() else []
    draft.node("Trilu", [x, *k], x.dtype, x.shape, upper=draft.integer(0, 1))


def shape_of(draft: Draft) -> None:
    """Shape and Size, which later operators compute with."""
    x = draft.pick(ALL)
    if draft.chance(0.3):
        draft.node("Size", [x], I64, [])
        return
    if draft.opset < 15 or draft.chance():
        draft.node("Shape", [x], I64, [x.rank])
        return
    start, end = sorted((draft.integer(0, x.rank), draft.integer(0, x.rank)))
    draft.require(same(end - start, 0) is False or draft.smallest == 0)
    draft.node("Shape", [x], I64, [end - start], start=start, end=end)


def filled(draft: Draft) -> None:
    """ConstantOfShape of a value's shape."""
    x = draft.pick(ALL, 1)
    dtype = draft.choose(ALL)
    shape = draft.node("Shape", [x], I64, [x.rank], keep=False)
    draft.node("ConstantOfShape", [shape], dtype, x.shape,
               value=np.asarray([draft.integer(0, 3)], dtype))


def eye_like(draft: Draft) -> None:
    x = draft.pick(draft.allowed("EyeLike"), 2, 2)
    draft.node("EyeLike", [x], x.dtype, x.shape, k=draft.integer(-2, 2))


def range_(draft: Draft) -> None:
    """From 0 to a size, in its steps."""
    x = draft.pick(ALL, 1)
    axis, step = draft.integer(0, x.rank - 1), draft.choose((1, 1, 2, 3))
    shape = draft.node("Shape", [x], I64, [x.rank], keep=False)
    limit = draft.node("Gather", [shape, draft.constant(axis)], I64, [], keep=False)
    draft.node("Range", [draft.constant(0), limit, draft.constant(step)], I64,
               [_ceil(x.shape[axis], step)])


def depth_space(draft: Draft) -> None:
    block = draft.choose((1, 2, 3))
    to_space = draft.chance()
    x = draft.pick(draft.allowed("DepthToSpace"), 4, 4)
    n, c, h, w = x.shape
    if to_space:
        rest = draft.dim()
        draft.require(same(rest * (block * block), c))
        draft.node("DepthToSpace", [x], x.dtype, [n, rest, h * block, w * block],
                   blocksize=block, mode=draft.choose(("DCR", "CRD")))
        return
    rows, columns = draft.dim(), draft.dim()
    draft.require(same(rows * block, h), same(columns * block, w))
    draft.node("SpaceToDepth", [x], x.dtype, [n, c * (block * block), rows, columns],
               blocksize=block)


def sequence(draft: Draft) -> None:
    """Split along an axis into a sequence, and together again, or one of its elements."""
    x = draft.pick(ALL, 1, 4)
    axis = draft.integer(0, x.rank - 1)
    draft.require(_at_least(x.shape[axis], 1))
    parts = draft.node("SplitToSequence", [x], x.dtype, x.shape, keep=False, axis=axis,
                       keepdims=1)
    if draft.chance(0.4):
        shape = [1 if a == axis else d for a, d in enumerate(x.shape)]
        draft.node("SequenceAt", [parts, draft.constant(draft.choose((0, -1)))], x.dtype, shape)
        return
    other = draft.integer(0, x.rank - 1)
    if other == axis:
        draft.node("ConcatFromSequence", [parts], x.dtype, x.shape, axis=axis)
        return
    shape = list(x.shape)
    shape[axis], shape[other] = 1, shape[other] * x.shape[axis]
    draft.node("ConcatFromSequence", [parts], x.dtype, shape, axis=other)


def permuted_blocks(draft: Draft) -> None:
    """Reshape, transpose, reshape: channels shuffled, heads split."""
    x = draft.pick(ALL, 2, 3)
    factor, rest = draft.choose((2, 3)), draft.dim()
    draft.require(same(rest * factor, x.shape[-1]))
    wide = [*x.shape[:-1], rest, factor]
    y = draft.node("Reshape", [x, draft.constant([0] * (x.rank - 1) + [-1, factor])], x.dtype,
                   wide, keep=False) if draft.smallest else None
    if y is None:
        raise Impossible
    perm = [int(p) for p in draft.choose(list(itertools.permutations(range(y.rank))))]
    draft.node("Transpose", [y], x.dtype, [y.shape[p] for p in perm], perm=perm)


def one_hot(draft: Draft) -> None:
    depth = draft.integer(2, 5)
    x = draft.placeholder(draft.choose((I64, I32)), [draft.dim() for _ in range(
        draft.integer(1, 2))], Domain("index", depth))
    dtype = draft.main if is_float(draft.main) else np.dtype("f4")
    axis = draft.integer(-x.rank - 1, x.rank)
    shape: list[Dim] = list(x.shape)
    shape.insert(axis if axis >= 0 else x.rank + 1 + axis, depth)
    if dtype not in draft.allowed("OneHot", 2):
        raise Impossible
    draft.node("OneHot", [x, draft.constant(depth), draft.constant([0.5, 2], dtype)], dtype, shape,
               axis=axis)


SPECS = {transpose: 2.5, merge: 1.2, split_dim: 1.5, reshape_freely: 0.5, reshape_like: 0.6,
         flatten: 0.5, unsqueeze: 1, squeeze: 0.8, concat: 2, split: 1.2, slice_: 2, tile: 0.7,
         expand: 1.2, pad: 1.3, trilu: 0.5, shape_of: 0.5, filled: 0.4, eye_like: 0.2,
         range_: 0.4, depth_space: 0.4, sequence: 0.4, permuted_blocks: 0.7, one_hot: 0.4}
