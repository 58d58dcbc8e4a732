"""com.microsoft: multi-head attention over whole sequences.

    softmax(q k' * scale + masks) v        q [b, h, s, d], k [b, h, t, d], v [b, h, t, e]

Masks are added to the scores. A masked key gets `mask_filter_value`; a later key of a causal
attention gets the lowest number. The default scale is 1 / sqrt(d).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.contrib import (
    contrib_op,
    positive,
    refuse,
    refuse_inputs,
    share,
    total,
)
from compiler.frontend.onnx.ops.quantization import matmul_integer
from compiler.frontend.onnx.ops.slicing import entry, take
from compiler.frontend.values import Value
from dialects.graph.inference import certainly_differ
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, Size

_DECODER_RANKS = (3, (3, 4), (3, 4), (1, 2), 4, 4, 4, None, None, None, 1)
"""Numbers of dims of the inputs of DecoderMaskedMultiHeadAttention."""


# ---------------------------------------------------------------------- heads
def split_heads(n: Node, x: Value, heads: int) -> Value:
    """[b, s, h*d] -> [b, h, s, d]."""
    if x.rank != 3:
        raise Fault(f"{x.type.short} must have 3 dims: batch, sequence, heads * head size")
    apart = x.reshape([*x.shape[:2], heads, share(n, x.shape[2], heads, "heads")])
    return apart.transpose([0, 2, 1, 3])


def merge_heads(x: Value) -> Value:
    """[b, h, s, d] -> [b, s, h*d]."""
    batch, heads, length, size = x.shape
    return x.transpose([0, 2, 1, 3]).reshape([batch, length, heads * size])


def columns(n: Node, x: Value, sizes: Sequence[Size]) -> list[Value]:
    """Split the last dim into consecutive parts of these sizes."""
    starts = [Expr.of(0), *accumulate(map(Expr.of, sizes))]
    if certainly_differ(starts[-1], x.shape[-1]):
        raise Fault(f"{x.type.short} does not consist of {' + '.join(map(str, sizes))} columns")
    n.build.assume(x.shape[-1], "==", starts[-1])
    return [x.part(x.rank - 1, start, size) for start, size in zip(starts, sizes, strict=False)]


def places(n: Node, count: Size, start: Size = 0, column: bool = False) -> Value:
    """start, start + 1, ... as i64: [count], or [count, 1] for a column."""
    range_ = n.range(count, start=start)
    return range_.reshape([count, 1]) if column else range_


def lowest(n: Node, like: Value) -> Value:
    """A number close to the lowest one of the element type."""
    return n.scalar(-65504.0 if like.element == t.f16 else -3.3e38, like)


# ---------------------------------------------------------------------- the computation
def score_scale(n: Node, q: Value, k: Value) -> Value:
    """The attribute `scale`, or 1 / sqrt(head size), as a scalar of q's element type."""
    given, size = n.real("scale"), k.shape[-1] if k.shape[-1].constant else q.shape[-1]
    if given or size.constant:
        return n.scalar(given or (size.constant or 1) ** -0.5, q)
    root = f.sqrt(n.of_size(size).cast(t.f32))
    return f.reciprocal(root).cast(q.element)


def attend(
    n: Node, q: Value, k: Value, v: Value, masks: Sequence[Value | None], past: Expr | None
) -> tuple[Value, Value]:
    """The result, [b, h, s, e], and the weights, [b, h, s, t].

    With `past`, the attention is causal: query i sees the keys up to past + i.
    """
    product = q @ k.transpose([0, 1, 3, 2])
    scores = total(product * score_scale(n, q, k), *masks)
    if past is not None:
        now = places(n, q.shape[2], past, column=True)
        seen = places(n, k.shape[2]) <= now
        scores = f.where(seen, scores, lowest(n, scores))
    weights = f.softmax(scores, axis=3)
    return weights @ v, weights


def key_mask(n: Node, mask: Value | None, q: Value, keys: Expr) -> Value | None:
    """The numbers to add to the scores, which broadcast to [b, h, s, t]; None without a mask.

    A mask is one of: [b], the number of valid keys; [2*b], their ends, then their starts; [b, t],
    [b, s, t] or [b, 1, m, m], positive where a key is valid.
    """
    if mask is None:
        return None
    batch, _, length, _ = q.shape
    zero, filtered = n.scalar(0, q), n.scalar(n.real("mask_filter_value", -10000.0), q)
    if mask.rank == 1:
        return f.where(_inside(n, mask, batch, keys), zero, filtered)
    counts = mask > 0
    if mask.rank == 2:
        counts = counts.reshape([batch, 1, 1, mask.shape[1]])
    elif mask.rank == 3:
        counts = counts.reshape([batch, 1, *mask.shape[1:]])
    else:
        counts = take(n, counts, [Expr.of(0), Expr.of(0), keys - length, Expr.of(0)],
                      [batch, Expr.of(1), length, keys], [1] * 4)
    return f.where(counts, zero, filtered)


def _inside(n: Node, ends: Value, batch: Expr, keys: Expr) -> Value:
    """Which keys lie before the ends and, if there are starts, not before these."""
    spots, shape = places(n, keys), [batch, 1, 1, 1]
    bounds = ends.cast(t.i64)
    if bounds.shape[0] == batch * 3 + 2:
        raise Fault("a mask of 3 * batch + 2 lengths and offsets is not supported",
                    "export the model with a mask of 0 and 1 per key")
    if bounds.shape[0] != batch * 2:
        return spots < bounds.reshape(shape)
    last, first = (bounds.reshape([2, batch]).part(0, k, 1).reshape(shape) for k in (0, 1))
    return (spots < last) & (spots >= first)


def appended(past: Value | None, new: Value) -> Value:
    """The past and the new keys or values, concatenated: [b, h, p + s, d]."""
    return new if past is None else f.concat([past, new], axis=2)


# ---------------------------------------------------------------------- with a projection
@contrib_op("Attention", ranks=(3, 2, 1, range(1, 5), 5, 4))
def attention(
    n: Node, x: Value, weights: Value, bias: Value | None = None, mask: Value | None = None,
    past: Value | None = None, scores: Value | None = None, past_length: Value | None = None,
) -> list[Value]:
    """Results: the attention [b, s, h*e]; the keys and values with the past, [2, b, h, p + s, d].
    """
    refuse_inputs(past_sequence_length=past_length)
    return _self_attention(n, total(x @ weights, bias), mask, past, scores)


@contrib_op("QAttention", ranks=(3, 2, 1, None, None, range(1, 5), None, None, 5))
def quantized_attention(
    n: Node, x: Value, weights: Value, bias: Value, x_scale: Value, weight_scale: Value,
    mask: Value | None = None, x_zero: Value | None = None, weight_zero: Value | None = None,
    past: Value | None = None,
) -> list[Value]:
    """Attention whose projection is a product of quantized integers."""
    product = matmul_integer(n, x, weights, x_zero, weight_zero)
    scale = x_scale.reshape(()) * weight_scale
    real = product.cast(scale.element) * scale
    return _self_attention(n, total(real, bias), mask, past, None)


def _self_attention(
    n: Node, projected: Value, mask: Value | None, past: Value | None, scores: Value | None
) -> list[Value]:
    refuse(n, "do_rotary", "past_present_share_buffer")
    heads = positive(n, "num_heads")
    sizes = n.ints("qkv_hidden_sizes") or [share(n, projected.shape[-1], 3, "parts")] * 3
    if len(sizes) != 3:
        raise Fault(f"qkv_hidden_sizes is {sizes}; there must be three")
    q, k, v = (split_heads(n, x, heads) for x in columns(n, projected, sizes))
    old = [None, None] if past is None else [entry(past, index) for index in (0, 1)]
    before = Expr.of(0) if past is None else past.shape[3]
    k, v = appended(old[0], k), appended(old[1], v)
    masks = [key_mask(n, mask, q, k.shape[2]), scores]
    y, _ = attend(n, q, k, v, masks, before if n.flag("unidirectional") else None)
    if not n.wants(1):
        return [merge_heads(y)]
    present = [state.reshape([1, *state.shape]) for state in (k, v)]
    return [merge_heads(y), f.concat(present, axis=0)]


# ---------------------------------------------------------------------- without a projection
@contrib_op("MultiHeadAttention", ranks=((3, 5), (3, 4, 5), (3, 4), 1, (1, 2, 3), 4, 4, 4))
def multi_head_attention(
    n: Node, query: Value, key: Value | None = None, value: Value | None = None,
    bias: Value | None = None, mask: Value | None = None, scores: Value | None = None,
    past_key: Value | None = None, past_value: Value | None = None,
    past_length: Value | None = None, indirection: Value | None = None,
) -> list[Value]:
    """Results: the attention [b, s, h*e], keys and values including the past, and the weights.

    Query, key and value are [b, s, h*d] each, or packed: the query as [b, s, h, 3, d] with all
    three, or the key as [b, t, h, 2, d] with the value. A key of shape [b, h, t, d] is that of a
    cross attention, and includes its bias.
    """
    refuse_inputs(past_sequence_length=past_length, cache_indirection=indirection)
    q, k, v = _heads(n, query, key, value, bias)
    k, v = appended(past_key, k), appended(past_value, v)
    before = Expr.of(0) if past_key is None else past_key.shape[2]
    masks = [key_mask(n, mask, q, k.shape[2]), scores]
    y, weights = attend(n, q, k, v, masks, before if n.flag("unidirectional") else None)
    return [merge_heads(y), k, v, weights]


def _heads(
    n: Node, query: Value, key: Value | None, value: Value | None, bias: Value | None
) -> list[Value]:
    """q, k and v with their biases, as [b, h, s, d]."""
    heads = positive(n, "num_heads")
    given = _unpacked(n, query, key, value)
    if bias is not None:
        widths = [x.shape[-1] if x.rank == 3 else x.shape[1] * x.shape[3] for x in given]
        given = [x if x.rank == 4 else total(x, b)
                 for x, b in zip(given, columns(n, bias, widths), strict=True)]
    return [x if x.rank == 4 else split_heads(n, x, heads) for x in given]


def _unpacked(n: Node, query: Value, key: Value | None, value: Value | None) -> list[Value]:
    if key is None and query.rank == 3:
        return columns(n, query, [share(n, query.shape[2], 3, "parts")] * 3)
    if key is None:
        return _apart(query, 3)
    if value is None:
        return [query, *_apart(key, 2)]
    return [query, key, value]


def _apart(x: Value, count: int) -> list[Value]:
    """Unpack [b, s, h, count, d] into `count` tensors [b, s, h*d]."""
    if x.rank != 5 or x.shape[3].constant != count:
        raise Fault(f"{x.type.short} must be [batch, sequence, heads, {count}, head size], as it "
                    "holds packed tensors")
    batch, length, heads, _, size = x.shape
    return [x.part(3, k, 1).reshape([batch, length, heads * size]) for k in range(count)]


@contrib_op("DecoderMaskedMultiHeadAttention", ranks=_DECODER_RANKS)
def decoder_masked_attention(
    n: Node, query: Value, key: Value | None = None, value: Value | None = None,
    mask: Value | None = None, scores: Value | None = None, past_key: Value | None = None,
    past_value: Value | None = None, past_length: Value | None = None,
    beams: Value | None = None, indirection: Value | None = None, bias: Value | None = None,
) -> list[Value]:
    """The same as MultiHeadAttention, for one new position.

    With `past_present_share_buffer`, the past is a buffer larger than its contents: the new key is
    stored after the first past_sequence_length keys.
    """
    refuse_inputs(cache_indirection=indirection)
    q, k, v = _heads(n, query, key, value, bias)
    if key is not None and key.rank == 4:  # a cross attention brings all of its keys
        past_length = None
    elif n.flag("past_present_share_buffer"):
        k, v = (_inserted(n, old, new, past_length)
                for old, new in ((past_key, k), (past_value, v)))
    else:
        k, v, past_length = appended(past_key, k), appended(past_value, v), None
    reach = next((m.shape[-1] for m in (mask, scores) if m is not None), k.shape[2])
    near_k, near_v = (x.part(2, 0, reach) for x in (k, v))
    masks = [scores, key_mask(n, mask, q, reach), _filled(n, q, reach, past_length)]
    y, weights = attend(n, q, near_k, near_v, masks, None)
    return [merge_heads(y), k, v, weights]


def _inserted(n: Node, old: Value | None, new: Value, place: Value | None) -> Value:
    """The old keys with the new one, [b, h, 1, d], at its place."""
    if old is None or place is None:
        raise Fault("past_present_share_buffer needs past_key, past_value, past_sequence_length")
    spots = places(n, old.shape[2], column=True)
    here = f.equal(spots, place.cast(t.i64).reshape(()))
    return f.where(here, new, old)


def _filled(n: Node, q: Value, keys: Expr, place: Value | None) -> Value | None:
    """The mask to add to the scores so that keys after that position are ignored."""
    if place is None:
        return None
    later = places(n, keys) > place.cast(t.i64).reshape(())
    return f.where(later, lowest(n, q), 0)
