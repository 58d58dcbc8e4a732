"""ai.onnx.ml: support vector machines."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.ml import (
    chosen,
    labels_of,
    matrix,
    ml_op,
    rows,
    transformed,
    two_columns,
)
from compiler.frontend.peeling import repeat
from compiler.frontend.values import Value
from dialects.graph.activation import ClipOp
from dialects.graph.ordering import ArgMaxOp
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr

NEAR, MOST = 0.005, 100
"""LIBSVM's: how near the minimum probabilities are, and after how many iterations it stops."""
FEW = 4
"""The number of classes that are gone through without a loop."""


def _weighed(n: Node, x: Value, vectors: Array, weights: Array) -> Value:
    """The kernel function of each row of x and each vector, times the weights: [n, columns]."""
    kind = n.text("kernel_type", "LINEAR")
    if len(weights) != len(vectors):
        raise Fault(f"its coefficients are for {len(weights)} vectors, not {len(vectors)}")
    if kind == "LINEAR":  # (x @ vectors') @ weights == x @ (vectors' @ weights)
        product = vectors.T.astype(np.float64) @ weights
        return x @ n.constant(product.astype(np.float32))
    return _kernel(n, x, vectors, kind) @ n.constant(weights)


def _kernel(n: Node, x: Value, vectors: Array, kind: str) -> Value:
    """The kernel function of each row of x and each vector: [n, vectors]."""
    gamma, offset, degree = (*n.floats("kernel_params"), 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":  # exp(-gamma * |x - v|^2)
        apart = x.reshape([x.shape[0], 1, x.shape[1]]) - n.constant(vectors)
        square = f.reduce_sum(apart * apart, axes=[2])
        return f.exp(square * -gamma)
    product = x @ n.constant(vectors.T.copy())
    moved = product * gamma + offset
    if kind == "POLY":
        return moved ** degree
    if kind == "SIGMOID":
        return f.tanh(moved)
    raise Fault(f"its kernel_type is '{kind}'; it must be LINEAR, POLY, RBF or SIGMOID")


@ml_op("SVMRegressor")
def svm_regressor(n: Node, x: Value) -> Value:
    """The kernel's values times the coefficients, plus rho: [n, 1].

    With `one_class`, the result is the sign of that, 1 or -1.
    """
    count, rho = n.integer("n_supports"), n.floats("rho")
    if not rho:
        raise Fault("rho is missing")
    weights = matrix(n, "coefficients", 1, "rows").T.copy()
    if count:
        vectors = matrix(n, "support_vectors", count, "vectors")
        scores = _weighed(n, rows(x), vectors, weights) + rho[0]
    else:
        scores = rows(x) @ n.constant(weights) + rho[0]
    if n.flag("one_class"):
        above = scores > 0
        return f.where(above, n.scalar(1, scores), -1)
    return scores


# ---------------------------------------------------------------------- classifier
@ml_op("SVMClassifier")
def svm_classifier(n: Node, x: Value) -> list[Value]:
    """Results: the labels, and the scores of classes or of pairs of classes, transformed."""
    labels, name = labels_of(n, "classlabels_ints"), n.text("post_transform", "NONE")
    if len(labels) < 2 or not n.floats("rho"):
        raise Fault(f"it has {len(labels)} class labels and {len(n.floats('rho'))} rho; there must "
                    "be at least 2 labels and 1 rho")
    if not n.ints("vectors_per_class"):
        return _linear_classifier(n, x, labels, name)
    scores = _pair_scores(n, x, len(labels))
    best = n(ArgMaxOp, _votes(n, scores, len(labels)), axis=1, keepdims=False, last=False)
    if n.floats("prob_a"):
        likely = _probabilities(n, scores, len(labels))
        return [chosen(n, labels, best), transformed(n, likely, name)]
    if len(labels) > 2:
        return [chosen(n, labels, best), transformed(n, scores, name)]
    pair = two_columns(scores, name != "NONE", name)
    return [chosen(n, labels, best), f.concat(pair, axis=1)]


def _linear_classifier(n: Node, x: Value, labels: list[int], name: str) -> list[Value]:
    weights = matrix(n, "coefficients", len(labels), "rows")
    product = rows(x) @ n.constant(weights.T.copy())
    scores = product + n.floats("rho")[0]
    best = n(ArgMaxOp, scores, axis=1, keepdims=False, last=False)
    label = chosen(n, labels, best)
    if len(labels) == 2:  # the second class wins if any score reaches the threshold
        top = f.reduce_max(scores, axes=[1])
        enough = top >= 0.5 if weights.min() >= 0 else top > 0
        label = f.where(enough, n.constant(np.array(labels[1], np.int64)), label)
    return [label, transformed(n, scores, name)]


def _pair_scores(n: Node, x: Value, classes: int) -> Value:
    """The scores of all pairs of classes i < j, [n, pairs]: positive if i is more likely.

    The coefficients [classes - 1, vectors] of a class's vectors skip the class itself.
    """
    counts, pairs = n.ints("vectors_per_class"), list(combinations(range(classes), 2))
    rho = np.array(n.floats("rho"), np.float32)
    if len(counts) != classes or len(rho) != len(pairs):
        raise Fault(f"its {len(counts)} vectors_per_class and {len(rho)} rho do not fit {classes} "
                    "classes")
    vectors = matrix(n, "support_vectors", sum(counts), "vectors")
    coefficients = matrix(n, "coefficients", classes - 1, "rows")
    if coefficients.shape[1] != len(vectors):  # they are assigned to pairs of classes below
        raise Fault(f"its coefficients are for {coefficients.shape[1]} vectors, not {len(vectors)}")
    ends = np.cumsum([0, *counts])
    spans = [slice(*ends[k:k + 2]) for k in range(classes)]
    weights = np.zeros((len(vectors), len(pairs)), np.float32)
    for k, (i, j) in enumerate(pairs):
        weights[spans[i], k] = coefficients[j - 1, spans[i]]
        weights[spans[j], k] = coefficients[i, spans[j]]
    return _weighed(n, rows(x), vectors, weights) + n.constant(rho)


def _votes(n: Node, scores: Value, classes: int) -> Value:
    """The number of pairs that each class wins, [n, classes]. A tie counts for the second class."""
    pairs = list(combinations(range(classes), 2))
    first, second = (np.eye(classes, dtype=np.float32)[[pair[k] for pair in pairs]] for k in (0, 1))
    wins = (scores > 0).cast(t.f32)
    losses = 1 - wins
    return wins @ n.constant(first) + losses @ n.constant(second)


def _probabilities(n: Node, scores: Value, classes: int) -> Value:
    """The probabilities [n, classes] that fit those of the pairs, r, best (Wu, Lin, Weng 2004).

    They minimize sum (r_ji p_i - r_ij p_j)^2 = p' Q p under sum p_i = 1, where Q_ii = sum r_ji^2
    and Q_ij = -r_ji r_ij.
    """
    slope, offset = (np.array(n.floats(name), np.float32) for name in ("prob_a", "prob_b"))
    moved = scores * n.constant(slope) + n.constant(offset)
    first = f.sigmoid(-moved)
    bounds = n.scalar(1e-7, first), n.scalar(1 - 1e-7, first)
    first = n(ClipOp, first, *bounds, has_min=True, has_max=True)
    second = 1 - first
    lost = _as_matrix(n, first, second, classes)  # [n, i, j]: r_ji, how likely j beats i
    won = lost.transpose([0, 2, 1])
    square = f.reduce_sum(lost * lost, axes=[2], keepdims=True)
    diagonal = square * n.constant(np.eye(classes, dtype=np.float32))
    return _coupled(n, diagonal - lost * won, classes)


def _coupled(n: Node, form: Value, classes: int) -> Value:
    """The p [n, classes] with sum 1 that nearly minimize p' Q p, for Q [n, classes, classes].

    They are found as in LIBSVM, whose models these are, and from which onnxruntime has its loop: an
    iteration goes through the classes, and a row is done when p' Q p and all (Q p)_i differ by
    less than 0.005 / classes, though p is then off by up to as much.
    """
    rest = f.reduce_sum(form * n.constant(np.eye(classes, dtype=np.float32)), axes=[2])

    def state(p: Value) -> list[Value]:
        """p, Q p, p' Q p, and whether a row goes on: [n, 1]."""
        product = f.reduce_sum(form * p.reshape([p.shape[0], 1, classes]), axes=[2])
        total = f.reduce_sum(p * product, axes=[1], keepdims=True)
        error = f.reduce_max(abs(product - total), axes=[1], keepdims=True)
        return [p, product, total, error >= NEAR / classes]

    def move(step: Expr, carried: list[Value]) -> Turn:
        """Choose p_i anew, and scale all so that their sum is 1."""
        p, product, total = carried
        own, own_product = rest.part(1, step, 1), product.part(1, step, 1)
        more = (total - own_product) / own
        scale = more + 1
        here = f.equal(n.range(classes), n.of_size(step))
        column = form.part(2, step, 1).reshape(p.shape)
        total = (total + more * (more * own + own_product * 2)) / scale / scale
        return Turn(None, [(p + f.where(here, more, 0)) / scale,
                           (product + more * column) / scale, total], [])

    def turn(step: Expr, carried: list[Value]) -> Turn:
        p, product, total, goes_on = carried
        moved = [p, product, total]
        if classes <= FEW:
            for k in range(classes):
                moved = list(move(Expr.of(k), moved).carried)
        else:
            moves = Loop(f"{n.name}_class", Expr.of(classes), None, moved)
            moved = repeat(n.build, moves, move)[0]
        after = state(f.where(goes_on, moved[0], p))
        return Turn(_any(after[3]), after, [])

    start = state(n.constant(np.full((1, classes), 1 / classes, np.float32)).broadcast(
        rest.shape))
    rows_ = Loop(f"{n.name}_likely", Expr.of(MOST), _any(start[3]), start)
    return repeat(n.build, rows_, turn)[0][0]


def _any(truths: Value) -> Value:
    return f.reduce_max(truths.cast(t.i32), axes=[0, 1]) > 0


def _as_matrix(n: Node, first: Value, second: Value, classes: int) -> Value:
    """[n, classes, classes] with the second of pair (i, j) at [i, j], the first at [j, i]."""
    pairs = list(combinations(range(classes), 2))
    places = np.zeros((2, len(pairs), classes, classes), np.float32)
    for k, (i, j) in enumerate(pairs):
        places[0, k, j, i] = places[1, k, i, j] = 1
    flat = [n.constant(p.reshape(len(pairs), -1)) for p in places]
    both = first @ flat[0] + second @ flat[1]
    return both.reshape([first.shape[0], classes, classes])
