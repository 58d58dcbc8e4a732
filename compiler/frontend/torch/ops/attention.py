"""Scaled dot-product attention, with the names of its PyTorch implementations."""

from __future__ import annotations

import math

from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.torch.drawing.operators import kept_by_dropout
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.torch.ops.elementwise import HALVES
from compiler.frontend.values import Value
from dialects.strata import types as t
from dialects.symbolic.expr import Expr


def scale_of(n: Node, query: Value, element: Attribute) -> Value | float:
    """1 / sqrt(head size)"""
    size = query.shape[-1]
    if size.constant is not None:
        return 1 / math.sqrt(size.constant) if size.constant else math.inf
    return f.reciprocal(f.sqrt(n.of_size(size).cast(element)))


@aten_op("aten.scaled_dot_product_attention.default")
def attention(
    n: Node, query: Value, key: Value, value: Value, mask: Value | None, dropout: float,
    causal: bool, scale: float | None, grouped: bool = False,
) -> Value:
    """softmax(query @ key^T * scale + mask) @ value, for [..., heads, length, head size].

    For halves, sums, scores and the softmax are f32. The weights are rounded to halves, as in
    PyTorch's fused kernels, so that both products have halves as operands. A row whose mask
    excludes everything, as false or as -inf, is zero. In other rows a mask adds -inf, as in eager
    mode, so that an excluded score of NaN makes the row NaN; what causality excludes is not seen.
    """
    if grouped:
        key, value = (repeated_heads(x, query) for x in (key, value))
    scores, kept = scores_and_kept(n, query, key, mask, causal, scale)
    element, axis = scores.element, scores.rank - 1
    if mask is not None and mask.element == t.i1:
        scores = f.where(mask, scores, scores + -math.inf)
    if causal:
        scores = f.where(kept[0], scores, -math.inf)
    weights = softmax_of_kept(scores, axis, f.all_of(kept)) if kept else f.softmax(scores, axis)
    if dropout:
        weights = kept_by_dropout(n, weights, dropout)
    return weights.cast(value.element).cast(element) @ value.cast(element)


def scores_and_kept(
    n: Node, query: Value, key: Value, mask: Value | None, causal: bool, scale: float | None
) -> tuple[Value, list[Value]]:
    """The scores, of halves in f32, with an additive mask; and where each mask keeps one.

    The first of several masks is the causal one.
    """
    element = t.f32 if query.element in HALVES else query.element
    scores = query.cast(element) @ n.swap(key.cast(element))
    scores = scores * (scale_of(n, query, element) if scale is None else float(scale))
    kept = [causal_mask(n, query.shape[-2], key.shape[-2])] if causal else list[Value]()
    if mask is not None and mask.element == t.i1:
        kept.append(mask)
    elif mask is not None:
        scores = scores + mask.cast(element)
        kept.append(~f.equal(mask, -math.inf))
    return scores, kept


def softmax_of_kept(x: Value, axis: int, keep: Value) -> Value:
    """The softmax, and 0 where an element is not kept, also if none is: those elements are -inf."""
    return f.where(keep, f.softmax(x, axis=axis), 0.0)


def causal_mask(n: Node, queries: Expr, keys: Expr) -> Value:
    """The causal mask, bool [queries, keys]: query i sees the keys 0 to i."""
    return n.range(keys) <= n.range(queries).reshape([queries, 1])


def repeated_heads(x: Value, query: Value) -> Value:
    """Repeat each head of x so that there are as many as of the query."""
    if x.rank < 3 or x.shape[-3] == query.shape[-3]:
        return x
    heads, before, after = query.shape[-3], x.shape[:-2], x.shape[-2:]
    times = heads // x.shape[-3]
    wide = x.reshape([*before, 1, *after]).broadcast([*before, times, *after])
    return wide.reshape([*x.shape[:-3], heads, *after])


# ---------------------------------------------------------------------- fused kernels
# They repeat heads of keys without being told to.
@aten_op("aten._scaled_dot_product_flash_attention_for_cpu.default")
def attention_for_cpu(
    n: Node, query: Value, key: Value, value: Value, dropout: float, causal: bool,
    mask: Value | None, scale: float | None,
) -> list[Value]:
    return [attention(n, query, key, value, mask, dropout, causal, scale, True)]


@aten_op("aten._scaled_dot_product_efficient_attention.default")
def efficient_attention(
    n: Node, query: Value, key: Value, value: Value, mask: Value | None, logsumexp: bool,
    dropout: float, causal: bool, scale: float | None,
) -> list[Value]:
    return [attention(n, query, key, value, mask, dropout, causal, scale, True)]


@aten_op("aten._scaled_dot_product_flash_attention.default")
def flash_attention(
    n: Node, query: Value, key: Value, value: Value, dropout: float, causal: bool, debug: bool,
    scale: float | None,
) -> list[Value]:
    return [attention(n, query, key, value, None, dropout, causal, scale, True)]


@aten_op("aten._scaled_dot_product_cudnn_attention.default")
def cudnn_attention(
    n: Node, query: Value, key: Value, value: Value, mask: Value | None, logsumexp: bool,
    dropout: float, causal: bool, debug: bool, scale: float | None,
) -> list[Value]:
    return [attention(n, query, key, value, mask, dropout, causal, scale, True)]
