"""Attention with what its gradients need, and these gradients (`compiler/torch/attention.py`).

The backward pass computes scores again from the logarithms of their sums. No product is a sum over
programs, so that results do not depend on an order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.torch.ops.attention import (
    repeated_heads,
    scale_of,
    scores_and_kept,
)
from compiler.frontend.torch.ops.elementwise import HALVES
from compiler.frontend.values import Value
from dialects.strata import types as t
from dialects.symbolic.expr import Expr


def _wide(x: Value) -> Attribute:
    return t.f32 if x.element in HALVES else x.element


def _scores(
    n: Node, query: Value, key: Value, mask: Value | None, causal: bool, scale: float | None
) -> tuple[Value, Value | None]:
    """The scores, the lowest number where a mask excludes them; and where none does."""
    scores, kept = scores_and_kept(n, query, key, mask, causal, scale)
    if not kept:
        return scores, None
    seen = f.all_of(kept)
    return f.where(seen, scores, -t.largest(scores.element)), seen


def _is_added(mask: Value | None) -> bool:
    """Whether a mask adds to scores, so that all of a row may be far below zero."""
    return mask is not None and mask.element != t.i1


def _dropped(x: Value, kept: Value | None, dropout: float) -> Value:
    """x where dropout keeps it, and zero elsewhere."""
    return x if kept is None else f.where(kept, x * (1 / (1 - dropout)), 0.0)


@aten_op("strata.attention.default")
def attention_with_sums(
    n: Node, query: Value, key: Value, value: Value, mask: Value | None, kept: Value | None,
    dropout: float, causal: bool, scale: float | None,
) -> list[Value]:
    """The result, for each row the logarithm of its scores' sum of exponentials, and its largest
    score, which the sum then leaves out, or nothing (`compiler/torch/attention.py`)."""
    element = _wide(query)
    scores, seen = _scores(n, query, repeated_heads(key, query), mask, causal, scale)
    axis = scores.rank - 1
    largest = f.reduce_max(scores, [axis], keepdims=True)
    powers = f.exp(scores - largest)
    total = f.reduce_sum(powers, [axis], keepdims=True)
    weights = f.softmax(scores, axis) if kept is None else powers
    used = [v for v in (seen, kept) if v is not None]
    if used:
        weights = f.where(f.all_of(used), weights, 0.0)
    made = weights.cast(value.element).cast(element) @ repeated_heads(value, query).cast(element)
    if kept is not None:  # one division of each sum, and none of the weights
        made = made * ((1 / (1 - dropout)) / total)
    rows = scores.shape[:-1]
    if _is_added(mask):
        return [made, f.log(total).reshape(rows), largest.reshape(rows)]
    return [made, (largest + f.log(total)).reshape(rows), n.constant(np.zeros(0, np.float32))]


@aten_op("strata.attention_backward.default")
def attention_backward(
    n: Node, given: Value, query: Value, key: Value, value: Value, made: Value, sums: Value,
    largest: Value | None, mask: Value | None, kept: Value | None, dropout: float, causal: bool,
    scale: float | None, of_mask: bool,
) -> list[Value]:
    """The gradients of query, key, value and an additive mask."""
    heads = key.shape[-3] if query.rank > 2 else None
    taken = [v.reshape([*v.shape, 1]) for v in (largest, sums) if v is not None]
    if heads is None or heads == query.shape[-3]:
        *found, outer = _gradients(
            n, given, query, key, value, made, taken, mask, kept, dropout, causal, scale)
    else:
        rows = [_in_groups(x, heads) for x in (given, query, made)]
        wide = mask if mask is None or mask.rank < 3 else (
            _alone(mask) if mask.shape[-3].constant == 1 else _in_groups(mask, heads))
        *found, outer = _gradients(
            n, rows[0], rows[1], _alone(key), _alone(value), rows[2],
            [_in_groups(v, heads) for v in taken], wide, kept and _in_groups(kept, heads), dropout,
            causal, scale)
        found = [found[0].reshape(query.shape),
                 *(f.reduce_sum(x, [key.rank - 2]) for x in found[1:])]
        outer = outer.reshape([*query.shape[:-1], key.shape[-2]])
    if mask is None or not of_mask:
        return [*found, n.constant(np.zeros(0, np.float32))]
    return [*found, _summed_to(outer, mask)]


def _in_groups(x: Value, heads: Expr) -> Value:
    """[..., heads, groups, rows, columns] of [..., heads * groups, rows, columns]."""
    return x.reshape([*x.shape[:-3], heads, x.shape[-3] // heads, *x.shape[-2:]])


def _alone(x: Value) -> Value:
    """[..., heads, 1, rows, columns], which all of a group read."""
    return x.reshape([*x.shape[:-2], 1, *x.shape[-2:]])


def _gradients(
    n: Node, given: Value, query: Value, key: Value, value: Value, made: Value,
    taken: Sequence[Value], mask: Value | None, kept: Value | None, dropout: float, causal: bool,
    scale: float | None,
) -> list[Value]:
    """The gradients of query, key, value and scores. Keys and values may have one head where
    queries have several; each of these has its own gradient. `taken`: what is subtracted from a
    row's scores, one after the other."""
    element = _wide(query)
    scores, seen = _scores(n, query, key, mask, causal, scale)
    powers = scores
    for number in taken:
        powers = powers - number
    weights = f.exp(powers)
    if seen is not None:
        weights = f.where(seen, weights, 0.0)
    rounded = weights.cast(value.element).cast(element)  # as the forward pass multiplies them
    wide, axis = given.cast(element), scores.rank - 1
    shared = f.reduce_sum(wide * made.cast(element), [axis], keepdims=True)
    inner = wide @ n.swap(value.cast(element))
    outer = weights * (_dropped(inner, kept, dropout) - shared)
    factor = scale_of(n, query, element) if scale is None else float(scale)
    narrow = outer.cast(query.element).cast(element)
    dropped = rounded if kept is None else _dropped(weights, kept, dropout).cast(
        value.element).cast(element)
    found = [(narrow @ key.cast(element)) * factor,
             (n.swap(narrow) @ query.cast(element)) * factor, n.swap(dropped) @ wide]
    return [*found, outer]


def _summed_to(x: Value, like: Value) -> Value:
    """Sums of x over the dims in which `like` was stretched."""
    first = x.rank - like.rank
    axes = [k for k in range(x.rank) if k < first or (
        like.shape[k - first] != x.shape[k] and like.shape[k - first].constant == 1)]
    return f.reduce_sum(x, axes, keepdims=True).reshape(like.shape) if axes else x
