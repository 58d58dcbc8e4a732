"""com.microsoft.GroupQueryAttention: groups of heads share keys and values, which are cached.

The length of the cache that is in use, `seqlens_k`, is known only at run time, and differs between
the items of a batch. So all sizes are those of the whole cache, and unused entries are masked:

    past[b] = max(seqlens_k[b] + 1 - s, 0)                                 0 in a first prompt
    present[b, j] = old[b, j] if j < past[b], new[b, j - past[b]] if j < past[b] + s, else 0
    query i of b sees key j  <=>  past[b] + i - window < j <= past[b] + i
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.contrib import (
    contrib_op,
    positive,
    refuse,
    refuse_inputs,
    share,
)
from compiler.frontend.onnx.ops.contrib_attention import (
    columns,
    lowest,
    places,
    score_scale,
    split_heads,
)
from compiler.frontend.onnx.ops.contrib_rotary import rotated
from compiler.frontend.values import Value
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, maximum


@dataclass(frozen=True)
class _Lengths:
    """Sizes known at compile time, and the items' own lengths, i64 [b, 1, 1, 1]."""

    queries: Expr  # s
    total: Expr  # the longest sequence with its past
    past: Value  # per item
    used: Value  # per item: past and new


@contrib_op("GroupQueryAttention", ranks=(3, 3, 3, 4, 4, None, None, 2, 2, 2, 4))
def group_query_attention(
    n: Node, query: Value, key: Value | None, value: Value | None, past_key: Value | None,
    past_value: Value | None, lengths: Value, total_length: Value, cos: Value | None = None,
    sin: Value | None = None, ids: Value | None = None, bias: Value | None = None,
    sink: Value | None = None, k_scale: Value | None = None, v_scale: Value | None = None,
    q_norm: Value | None = None, k_norm: Value | None = None,
) -> list[Value]:
    """Results: the attention [b, s, h*d], and the keys and values including the past."""
    refuse(n, "sliding_window_cache", "qk_output", "kv_cache_bit_width")
    refuse_inputs(k_scale=k_scale, v_scale=v_scale)
    q, k, v = _projections(n, query, key, value)
    if q_norm is not None and k_norm is not None:
        q, k = _normalized(n, q, q_norm), _normalized(n, k, k_norm)
    sizes = _lengths(n, q, lengths, total_length)
    if n.flag("do_rotary"):
        if cos is None or sin is None:
            raise Fault("do_rotary needs the inputs cos_cache and sin_cache")
        where = _places(n, sizes) if ids is None else ids
        q, k = (rotated(n, x, where, cos, sin, n.flag("rotary_interleaved")) for x in (q, k))
    keys, values = (_present(n, old, new, sizes) for old, new in ((past_key, k), (past_value, v)))
    weights = _weights(n, q, _used(keys, sizes), bias, sink, sizes)
    return [_result(weights, _used(values, sizes)), keys, values]


def _projections(
    n: Node, query: Value, key: Value | None, value: Value | None
) -> tuple[Value, Value, Value]:
    """q [b, h, s, d], k and v [b, g, s, d]: the h / g heads of a group share a key."""
    heads, groups = positive(n, "num_heads"), positive(n, "kv_num_heads")
    if heads % groups:
        raise Fault(f"kv_num_heads {groups} does not divide num_heads {heads}")
    if key is None or value is None:
        size = share(n, query.shape[-1], heads + 2 * groups, "heads")
        query, key, value = columns(n, query, [heads * size, groups * size, groups * size])
    return (split_heads(n, query, heads), split_heads(n, key, groups),
            split_heads(n, value, groups))


def _normalized(n: Node, x: Value, weight: Value) -> Value:
    """x / sqrt(mean(x*x) + epsilon) * weight, per head."""
    wide = x.cast(t.f32)
    square = f.reduce_mean(wide * wide, axes=[3], keepdims=True)
    root = f.sqrt(square + n.real("qk_norm_epsilon", 1e-6))
    normal = wide * f.reciprocal(root)
    return (normal * weight.cast(t.f32)).cast(x.element)


def _lengths(n: Node, q: Value, lengths: Value, total_length: Value) -> _Lengths:
    batch, _, queries, _ = q.shape
    whole = n.known_size(total_length, "total sequence length")
    last = lengths.cast(t.i64).reshape([batch, 1, 1, 1])
    used = last + 1
    count = n.of_size(queries).reshape([1, 1, 1, 1])
    return _Lengths(queries, whole, f.maximum(used - count, 0), used)


def _places(n: Node, sizes: _Lengths) -> Value:
    """The positions of the queries, [b, s]."""
    flat = sizes.past.reshape([sizes.past.shape[0], 1])
    return flat + places(n, sizes.queries)


# ---------------------------------------------------------------------- the cache
def _present(n: Node, old: Value | None, new: Value, sizes: _Lengths) -> Value:
    """The cache with the new entries: [b, g, max(total, size of the old cache), d]."""
    if old is None:
        return new
    size = maximum(sizes.total, old.shape[2])
    old = _filled_up(n, old, size)
    spots = places(n, size, column=True)  # [t, 1], to broadcast to [b, g, t, d]
    ahead = spots - sizes.past  # [b, 1, t, 1]: indices into the new entries
    count = n.of_size(sizes.queries)
    moved = _moved(new, ahead, count)
    fresh = f.where(ahead < count, moved, 0)
    return f.where(spots < sizes.past, old, fresh)


def _filled_up(n: Node, x: Value, size: Expr) -> Value:
    """x with zeros appended to dim 2, up to this size."""
    if x.shape[2] == size:
        return x
    zeros = n.scalar(0, x).broadcast([*x.shape[:2], size - x.shape[2], x.shape[3]])
    return f.concat([x, zeros], axis=2)


def _moved(new: Value, ahead: Value, count: Value) -> Value:
    """The new entry for each position, [b, g, t, d]; an arbitrary one if there is none."""
    batch, groups, _, size = new.shape
    index = f.maximum(f.minimum(ahead, count - 1), 0)
    spots = ahead.shape[2]
    rows = new.transpose([0, 2, 1, 3])  # [b, s, g, d]
    found = f.gather_nd(rows, index.reshape([batch, spots, 1]), batch_dims=1)
    return found.reshape([batch, spots, groups, size]).transpose([0, 2, 1, 3])


def _used(cache: Value, sizes: _Lengths) -> Value:
    """The part of a cache that items may use. The cache may exceed the longest sequence."""
    if cache.shape[2] == sizes.queries:
        return cache
    return cache.part(2, 0, sizes.total)


# ---------------------------------------------------------------------- weights and result
def _weights(
    n: Node, q: Value, keys: Value, bias: Value | None, sink: Value | None, sizes: _Lengths
) -> Value:
    """The attention weights, [b, g, h / g, s, t], which are 0 for masked keys.

    Scores and their softmax are f32, as in onnxruntime: scores of f16 inputs may exceed the range
    of f16.
    """
    element = q.element
    q, keys = q.cast(t.f32), keys.cast(t.f32)
    groups = keys.shape[1]
    product = _apart(q, groups) @ _apart(keys, groups).transpose([0, 1, 2, 4, 3])
    scores = product * score_scale(n, q, keys)
    if limit := n.real("softcap"):
        scores = f.tanh(scores / limit) * limit
    if bias is not None:
        scores = scores + _apart(bias, groups).cast(t.f32)
    seen = _apart(_seen(n, keys.shape[2], sizes), groups)
    scores = f.where(seen, scores, lowest(n, scores))
    weights = _softmax(n, scores, None if sink is None else sink.cast(t.f32))
    return f.where(seen, weights, 0).cast(element)


def _apart(x: Value, groups: Expr) -> Value:
    """x [b, h, ...] as [b, g, h / g, ...]. A single head becomes [b, 1, 1, ...] for all groups."""
    batch, heads, *rest = x.shape
    if heads.constant == 1:
        return x.reshape([batch, 1, 1, *rest])
    return x.reshape([batch, groups, heads // groups, *rest])


def _seen(n: Node, keys: Expr, sizes: _Lengths) -> Value:
    """Which keys a query sees: [b, 1, s, t]."""
    spots = places(n, keys)
    if not n.flag("causal", True):
        return spots < sizes.used
    now = sizes.past + places(n, sizes.queries, column=True)
    seen = spots <= now
    window = n.integer("local_window_size", -1)
    if window < 0:
        return seen
    return seen & (spots > now - window)


def _softmax(n: Node, scores: Value, sink: Value | None) -> Value:
    """The softmax over the keys.

    A sink, which is 0 for a smooth softmax, adds the score of one more key, whose weight is
    dropped.
    """
    smooth = n.integer("smooth_softmax", -1) > 0
    if sink is None and not smooth:
        return f.softmax(scores, axis=4)
    extra = n.scalar(0, scores) if sink is None else sink.reshape([1, *scores.shape[1:3], 1, 1])
    extra = extra.broadcast([*scores.shape[:4], 1])
    weights = f.softmax(f.concat([extra, scores], axis=4), axis=4)
    return weights.part(4, 1, scores.shape[4])


def _result(weights: Value, values: Value) -> Value:
    """The attention [b, s, h*d]."""
    y = weights @ _apart(values, values.shape[1])
    batch, groups, shared, queries, size = y.shape
    return y.transpose([0, 3, 1, 2, 4]).reshape([batch, queries, groups * shared * size])
