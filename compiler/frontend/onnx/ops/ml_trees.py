"""ai.onnx.ml: tree ensembles.

    ml_tree_tables.py   attributes           -> tests, leaves and their votes
    ml_tree_tests.py    tests of any mode    -> comparisons of integers
    ml_tree_layout.py   comparisons          -> the table of nodes that a descent reads
    ml_tree_groups.py   trees                -> groups that are descended together
    ml_tree_votes.py    descents of groups   -> scores
"""

from __future__ import annotations

from collections.abc import Sequence
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
from compiler.frontend.onnx.ops.ml_tree_votes import AGGREGATES, Scores, votes
from compiler.frontend.values import Value
from dialects.graph.ordering import ArgMaxOp
from dialects.strata import types as t
from dialects.strata.types import Array


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
    if aggregate not in AGGREGATES:
        raise Fault(f"its aggregate_function is '{aggregate}'; it must be one of "
                    f"{', '.join(AGGREGATES)}")
    scores = votes(n, rows(x, _real(x)), trees, aggregate).scores
    return _with_base(n, scores, trees, n.text("post_transform", "NONE")).cast(t.f32)


@ml_op("TreeEnsemble", since=5)
def tree_ensemble(n: Node, x: Value) -> Value:
    """The attributes aggregate_function and post_transform are numbers here, not names."""
    kinds = n.integer("aggregate_function", 1), n.integer("post_transform", 0)
    if not (0 <= kinds[0] < len(AGGREGATES) and 0 <= kinds[1] < len(TRANSFORMS)):
        raise Fault(f"aggregate_function is {kinds[0]} and post_transform {kinds[1]}; they must be "
                    f"at least 0, and below {len(AGGREGATES)} and {len(TRANSFORMS)}")
    trees = read_numbered(n)
    scores = votes(n, rows(x, _real(x)), trees, AGGREGATES[kinds[0]]).scores
    return _with_base(n, scores, trees, TRANSFORMS[kinds[1]]).cast(x.element)


def _with_base(n: Node, scores: Value, trees: Trees, name: str) -> Value:
    """Add the base values, and apply the transform. For a single target, only PROBIT is applied."""
    base, targets = _base(n), trees.targets
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
    found = votes(n, rows(x, _real(x)), trees, "SUM", who=len(labels) > 2)
    if len(labels) <= 2:
        return _binary(n, found, trees, labels, name)
    scores, base = found.scores, _base(n)
    if base.size:
        scores = scores + n.constant(base.astype(scores.type.dtype))
    ranked = scores
    if found.voted is not None and not base.size:  # classes without a vote cannot win
        ranked = f.where(found.voted, scores, -np.inf)
    best = n(ArgMaxOp, ranked, axis=1, keepdims=False, last=False)
    return [chosen(n, labels, best), transformed(n, scores, name).cast(t.f32)]


def _binary(
    n: Node, found: Scores, trees: Trees, labels: Sequence[int], name: str
) -> list[Value]:
    """The labels and scores of one or two classes.

    The label depends on the sign of the second class's score, or of the first one's if only the
    first class has votes. Its score then stands for the second class, and the first class gets the
    opposite.
    """
    voted: list[bool] = (np.bincount(trees.votes.targets, minlength=len(labels)) > 0).tolist()
    base = _base(n)
    one_sided = not voted[-1] and base.size < 2
    if base.size == 1:  # it belongs to the first class, if that has votes
        base = np.array([base[0] * voted[0], 0.0])[:len(labels)]
    scores = found.scores
    if base.size:
        scores = scores + n.constant(base.astype(scores.type.dtype))
    columns = [scores.part(1, k, 1) for k in range(len(labels))]
    decisive = columns[-1 if voted[-1] else 0]
    positive = bool((trees.votes.weights >= 0).all())
    threshold = 0.5 if positive and sum(voted) == 1 else 0
    flat = decisive.reshape([decisive.shape[0]])
    label = by_sign(n, flat, threshold, labels[-1], labels[0])
    if one_sided and name != "PROBIT":
        result = f.concat(two_columns(decisive, positive, name), axis=1)
        return [label, result.cast(t.f32)]
    return [label, transformed(n, scores, name).cast(t.f32)]
