"""What the importers of domain ai.onnx.ml share: its mark, labels, and transforms of scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.contrib import Ranks, with_ranks
from compiler.frontend.values import Value
from dialects.graph.elementwise import AddOp, DivOp, MulOp, SubOp
from dialects.graph.gather import GatherOp
from dialects.graph.logic import GreaterOp, WhereOp
from dialects.graph.normalization import SoftmaxOp
from dialects.graph.reduce import ReduceMaxOp, ReduceSumOp
from dialects.graph.unary import AbsOp, ExpOp, LogOp, NegOp, SigmoidOp, SignOp, SqrtOp
from dialects.strata import types as t

DOMAIN = "ai.onnx.ml"
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""Names of `post_transform`; TreeEnsemble gives their numbers."""


def ml_op(*op_types: str, since: int = 1, ranks: tuple[Ranks, ...] = ()) -> Callable[[Any], Any]:
    """Mark a function as the importer of operators of ai.onnx.ml; `ranks`: as of `contrib_op`."""
    mark = onnx_op(*op_types, domain=DOMAIN, since=since)
    return lambda function: mark(with_ranks(function, ranks))


def rows(n: Node, x: Value, element: Any = t.f32) -> Value:
    """x as [n, features] of floats; a single dim is one row."""
    if x.rank not in (1, 2):
        raise Fault(f"{x.type.short} should have rows of features")
    return n.cast(x if x.rank == 2 else n.reshape(x, [1, x.shape[0]]), element)


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
    return n(GatherOp, n.constant(np.array(labels, np.int64)), places, axis=0)


def by_sign(n: Node, score: Value, threshold: float, positive: int, negative: int) -> Value:
    """One label where the score is above the threshold, the other elsewhere."""
    above = n(GreaterOp, score, n.scalar(threshold, score))
    return n(WhereOp, above, *(n.constant(np.array(k, np.int64)) for k in (positive, negative)))


# ---------------------------------------------------------------------- transforms of scores
def transformed(n: Node, scores: Value, name: str) -> Value:
    """Scores [n, classes] after the transform of that name."""
    match name:
        case "NONE":
            return scores
        case "LOGISTIC":
            return n(SigmoidOp, scores)
        case "SOFTMAX":
            return n(SoftmaxOp, scores, axis=1)
        case "SOFTMAX_ZERO":
            return _softmax_zero(n, scores)
        case "PROBIT":
            return _probit(n, scores)
        case _:
            raise Fault(f"its post_transform '{name}' is none of {', '.join(TRANSFORMS)}")


def _softmax_zero(n: Node, x: Value) -> Value:
    """A softmax of the scores that are not 0; those that are stay so."""
    top = n(ReduceMaxOp, x, axes=[1], keepdims=True)
    counts = n(GreaterOp, n(AbsOp, x), n.scalar(1e-7, x))
    powers = n(WhereOp, counts, n(ExpOp, n(SubOp, x, top)), n.scalar(0, x))
    return n(DivOp, powers, n(ReduceSumOp, powers, axes=[1], keepdims=True))


def _probit(n: Node, x: Value) -> Value:
    """sqrt(2) * erfinv(2*x - 1), by Winitzki's formula, as onnxruntime has it."""
    y = n(SubOp, n(MulOp, x, n.scalar(2, x)), n.scalar(1, x))
    log = n(LogOp, n(SubOp, n.scalar(1, y), n(MulOp, y, y)))
    half = n(AddOp, n.scalar(2 / (np.pi * 0.147), y), n(MulOp, log, n.scalar(0.5, y)))
    root = n(SqrtOp, n(SubOp, n(MulOp, half, half), n(MulOp, log, n.scalar(1 / 0.147, y))))
    inverse = n(MulOp, n(SignOp, y), n(SqrtOp, n(SubOp, root, half)))
    return n(MulOp, inverse, n.scalar(np.sqrt(2), y))


def two_columns(n: Node, score: Value, positive: bool, name: str) -> list[Value]:
    """The scores of both classes from that of the second, [n, 1].

    LOGISTIC makes probabilities of scores; positive scores count as such already.
    """
    opposite = n(NegOp, score)
    if name == "LOGISTIC":
        return [n(SigmoidOp, x) for x in (opposite, score)]
    return [n(SubOp, n.scalar(1, score), score) if positive else opposite, score]
