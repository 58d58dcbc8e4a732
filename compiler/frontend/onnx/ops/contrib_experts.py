"""com.microsoft.MoE: a mixture of experts, in which each row of the input goes to a few experts.

    p = softmax(scores)      the k largest of each row, normalized to the sum 1 if the node says so
    y = sum of p[e] * (act(x @ w1[e].T + b1[e]) @ w2[e].T + b2[e])

Rows are sorted by expert, so that each expert multiplies consecutive rows, and two grouped matrix
products compute all experts.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.contrib import contrib_op, positive, refuse, refuse_inputs
from compiler.frontend.onnx.ops.contrib_attention import places
from compiler.frontend.onnx.ops.slicing import take
from compiler.frontend.values import Value
from dialects.graph.activation import GeluOp, ReluOp
from dialects.graph.grouped import GroupedMatmulOp
from dialects.graph.ordering import TopKOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr

_ACTIVATIONS: dict[str, Callable[[Node, Value], Value]] = {
    "relu": lambda n, x: n(ReluOp, x),
    "gelu": lambda n, x: n(GeluOp, x, approximate="tanh"),
    "silu": lambda n, x: x * f.sigmoid(x),
    "identity": lambda n, x: x,
    "swiglu": lambda n, x: _swiglu(n, x)}


@contrib_op("MoE", ranks=((2, 3), 2, 3, 2, 3, 2))
def mixture_of_experts(
    n: Node, x: Value, scores: Value, first: Value, first_bias: Value | None, second: Value,
    second_bias: Value | None = None, third: Value | None = None, third_bias: Value | None = None,
) -> Value:
    """x [rows..., h], scores [rows, experts], weights [experts, out, in]."""
    refuse(n, "use_sparse_mixer")
    refuse_inputs(fc3_experts_weights=third, fc3_experts_bias=third_bias)
    kind = n.text("activation_type", "relu")
    if kind not in _ACTIVATIONS or (kind == "swiglu" and n.integer("swiglu_fusion") != 1):
        raise Fault(f"activation_type {kind!r} with swiglu_fusion = {n.integer('swiglu_fusion')} "
                    "is not supported")
    rows, chosen = x.reshape([scores.shape[0], x.shape[-1]]), positive(n, "k", 1)
    weights, experts = _chosen(n, scores, chosen)
    experts = experts.reshape([scores.shape[0] * chosen])
    place = _place(n, experts)
    order = _order(n, place)
    owner = f.gather(experts, order, axis=0)
    source = f.gather(rows, order / chosen, axis=0)
    ends = _ends(n, experts, first.shape[0])
    inner = _ACTIVATIONS[kind](n, _product(n, source, first, first_bias, owner, ends))
    results = _product(n, inner, second, second_bias, owner, ends)
    parts = f.gather(results, place, axis=0).reshape([scores.shape[0], chosen, second.shape[1]])
    row = weights.reshape([scores.shape[0], 1, chosen])
    return (row @ parts).reshape(x.shape)


def _chosen(n: Node, scores: Value, count: int) -> tuple[Value, Value]:
    """The experts with the largest scores of each row: their weights, and their indices.

    Weights are compared in f32, since different scores may have equal weights in half precision.
    """
    weights, experts = n.build.results(TopKOp, f.softmax(scores.cast(t.f32), axis=1), axis=1,
                                       k=Expr.of(count), largest=True)
    if n.flag("normalize_routing_weights"):
        weights = weights / f.reduce_sum(weights, axes=[1], keepdims=True)
    return weights.cast(scores.element), experts


def _place(n: Node, experts: Value) -> Value:
    """The position of each row after sorting by expert: the number of rows before it.

    Each row is compared with all others, which takes one kernel; a sort takes several.
    """
    count = experts.shape[0]
    keys = experts * n.of_size(count) + places(n, count)
    before = keys.reshape([1, count]) < keys.reshape([count, 1])
    return f.reduce_sum(before.cast(t.i64), axes=[1])


def _order(n: Node, place: Value) -> Value:
    """The inverse of `_place`: the row at each position.

    It is the sum of the indices of all rows, in which rows at other positions count as 0.
    """
    count = place.shape[0]
    numbers = places(n, count)
    is_there = f.equal(place.reshape([1, count]), numbers.reshape([count, 1]))
    found = f.where(is_there, numbers.reshape([1, count]), 0)
    return f.reduce_sum(found, axes=[1])


def _ends(n: Node, experts: Value, count: Expr) -> Value:
    """The end positions of the rows of each expert."""
    numbers = places(n, count).reshape([count, 1])
    before = experts.reshape([1, experts.shape[0]]) <= numbers
    return f.reduce_sum(before.cast(t.i64), axes=[1])


def _product(
    n: Node, x: Value, weights: Value, bias: Value | None, owner: Value, ends: Value
) -> Value:
    """Each row times the transposed matrix of its expert, plus that expert's bias."""
    y = n(GroupedMatmulOp, x, weights.transpose([0, 2, 1]), ends)
    return y if bias is None else y + f.gather(bias, owner, axis=0)


def _swiglu(n: Node, x: Value) -> Value:
    """g * sigmoid(alpha * g) * (l + beta), where g and l alternate in the last dim.

    With `swiglu_limit`, g is at most the limit, and l is clipped to both sides.
    """
    gate, line = (take(n, x, [Expr.of(0), Expr.of(k)], [x.shape[0], x.shape[1] // 2], [1, 2])
                  for k in (0, 1))
    limit = n.real("swiglu_limit", inf)
    if limit < inf:
        high, low = n.scalar(limit, x), n.scalar(-limit, x)
        gate, line = f.minimum(gate, high), f.maximum(f.minimum(line, high), low)
    alpha, beta = n.real("activation_alpha", 1.0), n.real("activation_beta", 0.0)
    gated = gate * f.sigmoid(alpha * gate)
    return gated * (line + beta)
