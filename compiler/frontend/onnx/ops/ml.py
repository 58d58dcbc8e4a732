"""What the importers of domain ai.onnx.ml share: its mark, labels, and transforms of scores."""

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
"""Names of `post_transform`; TreeEnsemble gives their numbers."""


def ml_op(*op_types: str, since: int = 1, ranks: tuple[Ranks, ...] = ()) -> Callable[[Any], Any]:
    """Mark a function as the importer of operators of ai.onnx.ml; `ranks`: as of `contrib_op`."""
    mark = onnx_op(*op_types, domain=DOMAIN, since=since)
    return lambda function: mark(with_ranks(function, ranks))


def rows(x: Value, element: Any = t.f32) -> Value:
    """x as [n, features] of floats; a single dim is one row."""
    if x.rank not in (1, 2):
        raise Fault(f"{x.type.short} should have rows of features")
    return (x if x.rank == 2 else x.reshape([1, x.shape[0]])).cast(element)


def matrix(n: Node, name: str, count: int, what: str) -> np.ndarray:
    """A list of floats as that many rows."""
    numbers = np.array(n.floats(name), np.float32)
    if count < 1 or len(numbers) % count:
        raise Fault(f"its {len(numbers)} {name} do not make {count} {what}")
    return numbers.reshape(count, -1)


def refuse_texts(n: Node, *names: str) -> None:
    """Raise Fault when one of these lists of strings is given."""
    for name in names:
        if n.has(name):
            raise Fault(f"{name} are strings, which are not supported",
                        "export the model with integer labels or categories")


# ---------------------------------------------------------------------- labels
def labels_of(n: Node, name: str) -> list[int]:
    """The integer labels; for strings, which nothing may use, their places."""
    texts = n.texts("classlabels_strings")
    if texts and n.wants(0):
        raise Fault("classlabels_strings are not supported, as its first result would be strings",
                    "export the model with integer labels, or without the label as an output")
    return list(range(len(texts))) if texts else n.ints(name)


def chosen(n: Node, labels: list[int], places: Value) -> Value:
    """The labels at these places."""
    return f.gather(n.constant(np.array(labels, np.int64)), places, axis=0)


def by_sign(n: Node, score: Value, threshold: float, positive: int, negative: int) -> Value:
    """One label where the score is above the threshold, the other elsewhere."""
    above = score > threshold
    return f.where(above, *(n.constant(np.array(k, np.int64)) for k in (positive, negative)))


# ---------------------------------------------------------------------- transforms of scores
def transformed(n: Node, scores: Value, name: str) -> Value:
    """Scores [n, classes] after the transform of that name."""
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
            raise Fault(f"its post_transform '{name}' is none of {', '.join(TRANSFORMS)}")


def _softmax_zero(x: Value) -> Value:
    """A softmax of the scores that are not 0; those that are stay so."""
    top = f.reduce_max(x, axes=[1], keepdims=True)
    counts = abs(x) > 1e-7
    powers = f.where(counts, f.exp(x - top), 0)
    return powers / f.reduce_sum(powers, axes=[1], keepdims=True)


def _probit(n: Node, x: Value) -> Value:
    """sqrt(2) * erfinv(2*x - 1), by Winitzki's formula, as onnxruntime has it."""
    y = x * 2 - 1
    log = f.log(1 - y * y)
    half = 2 / (np.pi * 0.147) + log * 0.5
    root = f.sqrt(half * half - log * (1 / 0.147))
    inverse = n(SignOp, y) * f.sqrt(root - half)
    return inverse * np.sqrt(2)


def two_columns(score: Value, positive: bool, name: str) -> list[Value]:
    """The scores of both classes from that of the second, [n, 1].

    LOGISTIC makes probabilities of scores; positive scores count as such already.
    """
    opposite = -score
    if name == "LOGISTIC":
        return [f.sigmoid(x) for x in (opposite, score)]
    return [1 - score if positive else opposite, score]
