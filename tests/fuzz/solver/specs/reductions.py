"""Operators that walk dims: reductions, orders, running sums, normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.fuzz.solver.domains import POSITIVE, is_float
from tests.fuzz.solver.draft import FLOATS, I64, Dim, Domain, Draft, Impossible, Value, same

REDUCTIONS = ("Sum", "Max", "Min", "Mean", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
EPSILON = 2.0**-7
"""The same number in every type."""
OF_NOTHING = ("Sum", "Prod", "L1", "L2", "SumSquare")
"""Reductions that are defined where there is nothing to reduce."""


def some_axes(draft: Draft, x: Value, most: int = 3) -> list[int]:
    count = min(draft.integer(1, most), x.rank)
    return sorted(int(a) for a in draft.random.permutation(x.rank)[:count])


def nonempty(draft: Draft, dims: Sequence[Dim]) -> None:
    for dim in dims:
        draft.require(dim >= 1)


def reduced(shape: Sequence[Dim], axes: Sequence[int], keep: int) -> list[Dim]:
    return [1 if a in axes else d for a, d in enumerate(shape) if a not in axes or keep]


def reduce(draft: Draft) -> None:
    name = draft.choose(REDUCTIONS)
    x = draft.pick(draft.allowed(f"Reduce{name}"), 1,
                   domain=POSITIVE if name == "LogSum" else Domain())
    keep = draft.integer(0, 1)
    every = draft.chance(0.2)
    axes = list(range(x.rank)) if every else some_axes(draft, x)
    if name not in OF_NOTHING:
        nonempty(draft, [x.shape[a] for a in axes])
    if name == "Prod":
        draft.require(*(x.shape[a] <= 6 for a in axes))
    told = [a - x.rank if draft.chance(0.3) else a for a in axes]
    shape = reduced(x.shape, axes, keep)
    since = 13 if name == "Sum" else 18
    if every:
        draft.node(f"Reduce{name}", [x], x.dtype, shape, keepdims=keep)
    elif draft.opset >= since:
        draft.node(f"Reduce{name}", [x, draft.constant(told)], x.dtype, shape, keepdims=keep)
    else:
        draft.node(f"Reduce{name}", [x], x.dtype, shape, keepdims=keep, axes=told)


def variance(draft: Draft) -> None:
    """mean((x - mean(x))^2), as exporters write it."""
    x = draft.pick(FLOATS, 1)
    axis = draft.integer(0, x.rank - 1)
    nonempty(draft, [x.shape[axis]])

    def mean(value: Value) -> Value:
        shape = reduced(x.shape, [axis], 1)
        if draft.opset >= 18:
            return draft.node("ReduceMean", [value, draft.constant([axis])], x.dtype, shape)
        return draft.node("ReduceMean", [value], x.dtype, shape, axes=[axis])

    centred = draft.node("Sub", [x, mean(x)], x.dtype, x.shape)
    mean(draft.node("Mul", [centred, centred], x.dtype, x.shape))


def arg_extremum(draft: Draft) -> None:
    name = draft.choose(("ArgMax", "ArgMin"))
    x = draft.pick(draft.allowed(name), 1)
    axis, keep = draft.integer(0, x.rank - 1), draft.integer(0, 1)
    nonempty(draft, [x.shape[axis]])
    more = {"select_last_index": draft.integer(0, 1)} if draft.opset >= 12 else {}
    draft.node(name, [x], I64, reduced(x.shape, [axis], keep), axis=axis, keepdims=keep, **more)


def top_k(draft: Draft) -> None:
    x = draft.pick(draft.allowed("TopK"), 1)
    axis, k = draft.integer(0, x.rank - 1), draft.choose((1, 1, 2, 3, 5))
    draft.require(x.shape[axis] >= k)
    shape = [k if a == axis else d for a, d in enumerate(x.shape)]
    draft.nodes("TopK", [x, draft.constant([k])], [(x.dtype, shape), (I64, shape)],
                axis=axis - (x.rank if draft.chance(0.3) else 0), largest=draft.integer(0, 1))


def cumulative(draft: Draft) -> None:
    x = draft.pick(draft.allowed("CumSum"), 1)
    axis = draft.integer(-x.rank, x.rank - 1)
    draft.node("CumSum", [x, draft.constant(axis)], x.dtype, x.shape,
               exclusive=draft.integer(0, 1), reverse=draft.integer(0, 1))


def softmax(draft: Draft) -> None:
    name = draft.choose(("Softmax", "Softmax", "LogSoftmax", "Hardmax"))
    x = draft.pick(draft.allowed(name), 1)
    axis = draft.integer(-x.rank, x.rank - 1)
    nonempty(draft, x.shape if draft.opset < 13 else [x.shape[axis]])
    by_default = draft.chance(0.2) and (draft.opset >= 13 or x.rank > 1)  # before 13 axis 1
    draft.node(name, [x], x.dtype, x.shape, **({} if by_default else {"axis": axis}))


def masked_softmax(draft: Draft) -> None:
    """Softmax where a mask has left something."""
    x = draft.pick(FLOATS, 2, 4)
    nonempty(draft, [x.shape[-1]])
    mask = draft.placeholder(x.dtype, x.shape[-1:])
    added = draft.node("Add", [x, mask], x.dtype, x.shape)
    draft.node("Softmax", [added], x.dtype, x.shape, axis=-1)


def layer_norm(draft: Draft) -> None:
    x = draft.pick(draft.allowed("LayerNormalization"), 1)
    axis = draft.integer(0, x.rank - 1)
    nonempty(draft, x.shape[axis:])
    _not_alone(draft, x.shape[axis:])
    scale = draft.placeholder(x.dtype, x.shape[axis:])
    bias = [draft.placeholder(x.dtype, x.shape[axis:])] if draft.chance(0.7) else []
    draft.node("LayerNormalization", [x, scale, *bias], x.dtype, x.shape,
               axis=axis - (x.rank if draft.chance() else 0), epsilon=EPSILON)


def rms_norm(draft: Draft) -> None:
    x = draft.pick(draft.allowed("RMSNormalization"), 1)
    axis = draft.integer(0, x.rank - 1)
    nonempty(draft, x.shape[axis:])
    scale = draft.placeholder(x.dtype, x.shape[axis:])
    draft.node("RMSNormalization", [x, scale], x.dtype, x.shape, axis=axis, epsilon=EPSILON)


def _not_alone(draft: Draft, dims: Sequence[Dim]) -> None:
    """More than one element: the deviation of one from itself is 0 and nothing but rounding."""
    draft.require(dims[-1] >= 2)


def channel_norm(draft: Draft) -> None:
    """BatchNormalization, InstanceNormalization or GroupNormalization."""
    name = draft.choose(("BatchNormalization", "InstanceNormalization", "GroupNormalization"))
    x = draft.pick(draft.allowed(name), 2 if name[0] == "B" else 3, 5)
    nonempty(draft, x.shape)
    channel = x.shape[1]
    if name == "GroupNormalization":
        _group_norm(draft, x)
        return
    _not_alone(draft, x.shape[2:] or [2])
    scale, bias = (draft.placeholder(x.dtype, [channel], fixed=True) for _ in range(2))
    operands = [x, scale, bias]
    if name == "BatchNormalization":
        operands.append(draft.placeholder(x.dtype, [channel], fixed=True))
        operands.append(draft.placeholder(x.dtype, [channel], POSITIVE, fixed=True))
    draft.node(name, operands, x.dtype, x.shape, epsilon=EPSILON)


def _group_norm(draft: Draft, x: Value) -> None:
    groups, rest = draft.choose((1, 2, 3)), draft.dim()
    draft.require(same(rest * groups, x.shape[1]), x.shape[-1] >= 2)
    if draft.opset < 21:  # whose scale is of groups, and which onnxruntime reads as of channels
        raise Impossible
    scale, bias = (draft.placeholder(x.dtype, [x.shape[1]]) for _ in range(2))
    draft.node("GroupNormalization", [x, scale, bias], x.dtype, x.shape, num_groups=groups,
               epsilon=EPSILON)


def other_norm(draft: Draft) -> None:
    name = draft.choose(("LpNormalization", "LRN", "MeanVarianceNormalization"))
    low = {"LpNormalization": 1, "LRN": 3}.get(name, 4)
    wide = name != "MeanVarianceNormalization"  # whose definition has constants of f32
    x = draft.pick(draft.allowed(name) if wide else FLOATS[:1], low, 4)
    nonempty(draft, x.shape)
    more: dict[str, Any] = {}
    if name == "LRN":
        more = {"size": draft.choose((1, 3, 5)), "alpha": 0.125, "bias": 1.5}
    elif name == "LpNormalization":
        more = {"axis": draft.integer(0, x.rank - 1), "p": draft.integer(1, 2)}
    else:
        draft.require(x.shape[-1] >= 2)
    draft.node(name, [x], x.dtype, x.shape, **more)


def reverse_sequence(draft: Draft) -> None:
    x = draft.pick(draft.allowed("ReverseSequence"), 2, 4)
    batch = draft.integer(0, 1)
    nonempty(draft, [x.shape[1 - batch]])
    lengths = draft.placeholder(I64, [x.shape[batch]],
                                Domain("index", x.shape[1 - batch], from_zero=True))
    one = draft.node("Add", [lengths, draft.constant(1)], I64, lengths.shape, keep=False)
    draft.node("ReverseSequence", [x, one], x.dtype, x.shape, batch_axis=batch,
               time_axis=1 - batch)


def ordinal(draft: Draft) -> None:
    """The indices of an extremum, as numbers that take part again."""
    x = draft.pick(draft.allowed("ArgMax"), 1)
    axis = draft.integer(0, x.rank - 1)
    nonempty(draft, [x.shape[axis]])
    index = draft.node("ArgMax", [x], I64, reduced(x.shape, [axis], 1), axis=axis, keepdims=1)
    draft.node("GatherElements", [x, index], x.dtype, index.shape, axis=axis)


def quantized(draft: Draft) -> None:
    """To integers and back, as models that were quantized have it."""
    x = draft.pick([t for t in draft.allowed("QuantizeLinear") if is_float(t)], 1)
    if draft.special or (x.dtype not in FLOATS[:1] and draft.opset < 19):
        raise Impossible
    kind = draft.choose(("u1", "i1"))
    scale = draft.constant(draft.choose((0.125, 0.25, 0.0625)), x.dtype)
    zero = draft.constant(draft.integer(0, 5), kind)
    q = draft.node("QuantizeLinear", [x, scale, zero], np.dtype(kind), x.shape)
    draft.node("DequantizeLinear", [q, scale, zero], x.dtype, x.shape)


SPECS = {reduce: 4, variance: 0.7, arg_extremum: 0.8, top_k: 0.7, cumulative: 1, softmax: 1.5,
         masked_softmax: 0.5, layer_norm: 1, rms_norm: 0.4, channel_norm: 1.2, other_norm: 0.6,
         reverse_sequence: 0.4, ordinal: 0.3, quantized: 0.6}
