"""ai.onnx.ml: scaling, and linear models."""

from __future__ import annotations

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.contrib import SOME
from compiler.frontend.onnx.ops.ml import (
    by_sign,
    chosen,
    labels_of,
    matrix,
    ml_op,
    rows,
    transformed,
    two_columns,
)
from compiler.frontend.values import Value
from dialects.graph.ordering import ArgMaxOp
from dialects.strata import types as t


@ml_op("Scaler")
def scaler(n: Node, x: Value) -> Value:
    """(x - offset) * scale, per feature or for all; in f32."""
    offset, scale = (n.constant(np.array(n.floats(name), np.float32))
                     for name in ("offset", "scale"))
    return (x.cast(t.f32) - offset) * scale


@ml_op("Normalizer", ranks=(SOME,))
def normalizer(n: Node, x: Value) -> Value:
    """Each row divided by its norm. A row of norm 0 is unchanged."""
    wide, axes = x.cast(t.f32), [x.rank - 1]
    match n.text("norm", "MAX"):
        case "MAX":
            norm = f.reduce_max(wide, axes=axes, keepdims=True)
        case "L1":
            norm = f.reduce_sum(abs(wide), axes=axes, keepdims=True)
        case "L2":
            norm = f.sqrt(f.reduce_sum(wide * wide, axes=axes, keepdims=True))
        case name:
            raise Fault(f"its norm is '{name}'; it must be MAX, L1 or L2")
    zero = f.equal(norm, 0)
    return wide / f.where(zero, 1, norm)


@ml_op("Binarizer")
def binarizer(n: Node, x: Value) -> Value:
    """1 above the threshold, 0 elsewhere, in the element type of x."""
    threshold = n.scalar(n.real("threshold"), x.cast(t.f64) if not t.is_float(x.element) else x)
    return (x.cast(threshold.element) > threshold).cast(x.element)


# ---------------------------------------------------------------------- linear models
def _linear(n: Node, x: Value, targets: int) -> Value:
    """The scores x @ coefficients' + intercepts: f32[n, targets]."""
    weights = n.constant(matrix(n, "coefficients", targets, "rows").T.copy())
    scores = rows(x) @ weights
    intercepts = n.floats("intercepts")
    if not intercepts:
        return scores
    return scores + n.constant(np.array(intercepts, np.float32))


@ml_op("LinearRegressor")
def linear_regressor(n: Node, x: Value) -> Value:
    targets, name = n.integer("targets", 1), n.text("post_transform", "NONE")
    scores = _linear(n, x, targets)
    return transformed(n, scores, name) if targets > 1 or name == "PROBIT" else scores


@ml_op("LinearClassifier")
def linear_classifier(n: Node, x: Value) -> list[Value]:
    """Results: the label of the highest score, and the scores after the transform.

    A single score is that of the second of two classes.
    """
    labels, name = labels_of(n, "classlabels_ints"), n.text("post_transform", "NONE")
    targets = len(n.floats("intercepts"))
    scores = _linear(n, x, targets)
    if targets > 1:
        best = n(ArgMaxOp, scores, axis=1, keepdims=False, last=False)
        return [chosen(n, labels, best), transformed(n, scores, name)]
    negative, positive = labels if len(labels) == 2 else (0, 1)
    label = by_sign(n, scores.reshape([scores.shape[0]]), 0, positive, negative)
    if name == "PROBIT":
        scores = transformed(n, scores, name)
    elif len(labels) == 2:
        scores = f.concat(two_columns(scores, True, name), axis=1)
    return [label, scores]
