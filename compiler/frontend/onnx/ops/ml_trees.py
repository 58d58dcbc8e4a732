"""ai.onnx.ml: tree ensembles. All trees are descended at the same time, level by level.

    at = roots                                          [n, trees]
    depth times:  at = true[at] if x[feature[at]] <= value[at] else false[at]
    result = sum of weights[at] over the trees

One table holds the nodes of all trees. Both children of a leaf are the leaf itself. The mode of a
node says how it compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.ml import (
    TRANSFORMS,
    by_sign,
    chosen,
    labels_of,
    ml_op,
    rows,
    transformed,
    two_columns,
)
from compiler.frontend.onnx.ops.ml_tree_tables import Trees, read_named, read_numbered
from compiler.frontend.values import Value
from dialects.graph.base import GraphOp
from dialects.graph.gather import GatherElementsOp
from dialects.graph.logic import (
    EqualOp,
    GreaterEqualOp,
    GreaterOp,
    LessEqualOp,
    LessOp,
)
from dialects.graph.ordering import ArgMaxOp
from dialects.graph.reduce import ReduceMaxOp, ReduceMinOp, ReduceSumOp
from dialects.strata import types as t
from dialects.strata.types import Array

_COMPARISONS: dict[int, type[GraphOp]] = {
    0: LessEqualOp, 1: LessOp, 2: GreaterEqualOp, 3: GreaterOp, 4: EqualOp,
}
_NOT_EQUAL = 5
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


# ---------------------------------------------------------------------- the walk
def _leaves(n: Node, x: Value, trees: Trees) -> Value:
    """The leaf of each tree that each row of x reaches: i64[n, trees]."""
    roots = n.constant(trees.roots[None])
    at = roots.broadcast([x.shape[0], roots.shape[1]])
    for _ in range(trees.depth):
        features = n(GatherElementsOp, x, _looked_up(n, trees.features, at), axis=1)
        taken = _decided(n, trees, at, features)
        at = f.where(taken, _looked_up(n, trees.true, at), _looked_up(n, trees.false, at))
    return at


def _looked_up(n: Node, table: Array, at: Value) -> Value:
    """The table's entries for nodes. If all entries are equal, the lookup becomes a constant."""
    if (table == table[0]).all() and table.ndim == 1:
        return n.constant(table[0]).broadcast(at.shape)
    return f.gather(n.constant(table), at, axis=0)


def _decided(n: Node, trees: Trees, at: Value, x: Value) -> Value:
    """Whether each row goes to the true child of its node in each tree: bool [n, trees]."""
    values = _looked_up(n, trees.values.astype(x.type.dtype), at)
    modes = sorted(set(trees.modes.tolist()))
    answers = [_compared(n, mode, x, values) for mode in modes]
    taken = answers[0]
    if len(modes) > 1:
        mode = _looked_up(n, trees.modes, at)
        taken = f.any_of(f.equal(mode, k) & answer
                         for k, answer in zip(modes, answers, strict=True))
    if not trees.missing_true.any():
        return taken
    return taken | (f.is_nan(x) & _looked_up(n, trees.missing_true, at))


def _compared(n: Node, mode: int, x: Value, values: Value) -> Value:
    if mode == _NOT_EQUAL:
        return ~f.equal(x, values)
    return n(_COMPARISONS[mode], x, values)


# ---------------------------------------------------------------------- votes
@dataclass(frozen=True)
class _Votes:
    """Scores [n, targets], and where at least one leaf voted; None: everywhere."""

    scores: Value
    voted: Value | None


def _votes(n: Node, x: Value, trees: Trees, aggregate: str) -> _Votes:
    leaves = _leaves(n, x, trees)
    weights = _looked_up(n, trees.weights.astype(x.type.dtype), leaves)  # [n, trees, targets]
    is_leaf = trees.true == np.arange(len(trees.true))
    if trees.voted[is_leaf].all():
        return _Votes(_aggregated(n, weights, trees, aggregate), None)
    voted = _looked_up(n, trees.voted, leaves)
    if aggregate in ("MIN", "MAX"):
        neutral = n.scalar(np.inf if aggregate == "MIN" else -np.inf, weights)
        weights = f.where(voted, weights, neutral)
    anyone = f.reduce_max(voted, axes=[1])
    scores = _aggregated(n, weights, trees, aggregate)
    return _Votes(f.where(anyone, scores, 0), anyone)


def _aggregated(n: Node, weights: Value, trees: Trees, aggregate: str) -> Value:
    op = {"MIN": ReduceMinOp, "MAX": ReduceMaxOp}.get(aggregate, ReduceSumOp)
    scores = n(op, weights, axes=[1], keepdims=False)
    return scores / len(trees.roots) if aggregate == "AVERAGE" else scores


def _real(x: Value) -> Any:
    return t.f64 if x.element == t.f64 else t.f32


def _base(n: Node) -> Array:
    given = n.tensor("base_values_as_tensor")
    return np.array(n.floats("base_values")) if given is None else given


# ---------------------------------------------------------------------- operators
@ml_op("TreeEnsembleRegressor")
def tree_ensemble_regressor(n: Node, x: Value) -> Value:
    trees = read_named(n, "target", n.integer("n_targets", 1))
    aggregate = n.text("aggregate_function", "SUM")
    if aggregate not in _AGGREGATES:
        raise Fault(f"its aggregate_function is '{aggregate}'; it must be one of "
                    f"{', '.join(_AGGREGATES)}")
    scores = _votes(n, rows(x, _real(x)), trees, aggregate).scores
    return _with_base(n, scores, trees, n.text("post_transform", "NONE")).cast(t.f32)


@ml_op("TreeEnsemble", since=5)
def tree_ensemble(n: Node, x: Value) -> Value:
    """The attributes aggregate_function and post_transform are numbers here, not names."""
    kinds = n.integer("aggregate_function", 1), n.integer("post_transform", 0)
    if not (0 <= kinds[0] < len(_AGGREGATES) and 0 <= kinds[1] < len(TRANSFORMS)):
        raise Fault(f"aggregate_function is {kinds[0]} and post_transform {kinds[1]}; they must be "
                    f"at least 0, and below {len(_AGGREGATES)} and {len(TRANSFORMS)}")
    trees = read_numbered(n)
    scores = _votes(n, rows(x, _real(x)), trees, _AGGREGATES[kinds[0]]).scores
    return _with_base(n, scores, trees, TRANSFORMS[kinds[1]]).cast(x.element)


def _with_base(n: Node, scores: Value, trees: Trees, name: str) -> Value:
    """Add the base values, and apply the transform. For a single target, only PROBIT is applied."""
    base, targets = _base(n), trees.weights.shape[1]
    if base.size:
        scores = scores + n.constant(base.astype(scores.type.dtype))
    return transformed(n, scores, name) if targets > 1 or name == "PROBIT" else scores


@ml_op("TreeEnsembleClassifier")
def tree_ensemble_classifier(n: Node, x: Value) -> list[Value]:
    """Results: the label of the highest score, and the scores after the transform."""
    labels, name = labels_of(n, "classlabels_int64s"), n.text("post_transform", "NONE")
    if not labels:
        raise Fault("it has no class labels")
    trees = read_named(n, "class", len(labels))
    votes = _votes(n, rows(x, _real(x)), trees, "SUM")
    if len(labels) <= 2:
        return _binary(n, votes, trees, labels, name)
    scores, base = votes.scores, _base(n)
    if base.size:
        scores = scores + n.constant(base.astype(scores.type.dtype))
    ranked = scores
    if votes.voted is not None and not base.size:  # classes without a vote cannot win
        ranked = f.where(votes.voted, scores, -np.inf)
    best = n(ArgMaxOp, ranked, axis=1, keepdims=False, last=False)
    return [chosen(n, labels, best), transformed(n, scores, name).cast(t.f32)]


def _binary(
    n: Node, votes: _Votes, trees: Trees, labels: Sequence[int], name: str
) -> list[Value]:
    """The labels and scores of one or two classes.

    The label depends on the sign of the second class's score, or of the first one's if only the
    first class has votes. Its score then stands for the second class, and the first class gets the
    opposite.
    """
    voted: list[bool] = np.any(trees.voted, axis=0).tolist()
    base = _base(n)
    one_sided = not voted[-1] and base.size < 2
    if base.size == 1:  # it belongs to the first class, if that has votes
        base = np.array([base[0] * voted[0], 0.0])[:len(labels)]
    scores = votes.scores
    if base.size:
        scores = scores + n.constant(base.astype(scores.type.dtype))
    columns = [scores.part(1, k, 1) for k in range(len(labels))]
    decisive = columns[-1 if voted[-1] else 0]
    positive = bool((trees.weights >= 0).all())
    threshold = 0.5 if positive and sum(voted) == 1 else 0
    flat = decisive.reshape([decisive.shape[0]])
    label = by_sign(n, flat, threshold, labels[-1], labels[0])
    if one_sided and name != "PROBIT":
        result = f.concat(two_columns(decisive, positive, name), axis=1)
        return [label, result.cast(t.f32)]
    return [label, transformed(n, scores, name).cast(t.f32)]
