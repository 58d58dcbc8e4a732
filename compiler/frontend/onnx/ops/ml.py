"""Shared by the importers of domain ai.onnx.ml: the decorator, labels, transforms of scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.contrib import Ranks, with_ranks
from compiler.frontend.values import Value
from dialects.graph.unary import SignOp
from dialects.strata import types as t

DOMAIN = "ai.onnx.ml"
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The values of `post_transform`. TreeEnsemble gives an index into this list instead."""


def ml_op(*op_types: str, since: int = 1, ranks: tuple[Ranks, ...] = ()) -> Callable[[Any], Any]:
    """Mark a function as the importer of operators of ai.onnx.ml.

    `ranks`: the allowed ranks of the first inputs, as for `contrib_op`.
    """
    mark = onnx_op(*op_types, domain=DOMAIN, since=since)
    return lambda function: mark(with_ranks(function, ranks))


def rows(x: Value, element: Any = t.f32) -> Value:
    """x as rows of features, [n, features] of floats. A tensor of one dim is one row."""
    if x.rank not in (1, 2):
        raise Fault(f"{x.type.short} must have 1 or 2 dims: features, or rows of features")
    return (x if x.rank == 2 else x.reshape([1, x.shape[0]])).cast(element)


def matrix(n: Node, name: str, count: int, what: str) -> np.ndarray:
    """The attribute `name`, a list of floats, as a matrix f32[count, ...]."""
    numbers = np.array(n.floats(name), np.float32)
    if count < 1 or len(numbers) % count:
        raise Fault(f"its {len(numbers)} {name} do not divide into {count} {what}")
    return numbers.reshape(count, -1)


def refuse_texts(n: Node, *names: str) -> None:
    """Raise Fault if one of these attributes, which are lists of strings, is given."""
    for name in names:
        if n.has(name):
            raise Fault(f"{name} are strings, which are not supported",
                        "export the model with integer labels or categories")


# ---------------------------------------------------------------------- labels
def labels_of(n: Node, name: str) -> list[int]:
    """The integer labels. For string labels, which no result may use, their indices."""
    texts = n.texts("classlabels_strings")
    if texts and n.wants(0):
        raise Fault("classlabels_strings are not supported, as its first result would be strings",
                    "export the model with integer labels, or without the label as an output")
    return list(range(len(texts))) if texts else n.ints(name)


def chosen(n: Node, labels: list[int], places: Value) -> Value:
    """The labels at these indices: i64, in the shape of the indices."""
    return f.gather(n.constant(np.array(labels, np.int64)), places, axis=0)


def by_sign(n: Node, score: Value, threshold: float, positive: int, negative: int) -> Value:
    """The label `positive` where the score is above the threshold, `negative` elsewhere."""
    above = score > threshold
    return f.where(above, *(n.constant(np.array(k, np.int64)) for k in (positive, negative)))


# ---------------------------------------------------------------------- transforms of scores
def transformed(n: Node, scores: Value, name: str) -> Value:
    """Apply the transform of that name to scores [n, classes]."""
    match name:
        case "NONE":
            return scores
        case "LOGISTIC":
            return f.sigmoid(scores)
        case "SOFTMAX":
            return f.softmax(scores, axis=1)
        case "SOFTMAX_ZERO":
            return _softmax_zero(scores)
        case "PROBIT":
            return _probit(n, scores)
        case _:
            raise Fault(f"its post_transform is '{name}'; it must be one of "
                        f"{', '.join(TRANSFORMS)}")


def _softmax_zero(x: Value) -> Value:
    """The softmax over the scores that are not 0. Scores of 0 remain 0."""
    top = f.reduce_max(x, axes=[1], keepdims=True)
    counts = abs(x) > 1e-7
    powers = f.where(counts, f.exp(x - top), 0)
    return powers / f.reduce_sum(powers, axes=[1], keepdims=True)


def _probit(n: Node, x: Value) -> Value:
    """sqrt(2) * erfinv(2*x - 1), by Winitzki's approximation, which onnxruntime uses as well."""
    y = x * 2 - 1
    log = f.log(1 - y * y)
    half = 2 / (np.pi * 0.147) + log * 0.5
    root = f.sqrt(half * half - log * (1 / 0.147))
    inverse = n(SignOp, y) * f.sqrt(root - half)
    return inverse * np.sqrt(2)


def two_columns(score: Value, positive: bool, name: str) -> list[Value]:
    """The scores of both classes, [n, 1] each, from that of the second class.

    LOGISTIC converts both to probabilities. For other transforms, the score of the first class is 1
    - score if `positive`, which says that scores are probabilities already, and -score otherwise.
    """
    opposite = -score
    if name == "LOGISTIC":
        return [f.sigmoid(x) for x in (opposite, score)]
    return [1 - score if positive else opposite, score]
