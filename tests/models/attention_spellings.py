"""Attention as ONNX models write it: masks, biases, and heads that share keys, node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.models.onnx_graph import Array, OnnxGraph

BATCH, HEADS, DEPTH = 2, 4, 16
LOWEST = float(np.finfo(np.float16).min)
OPSET, IR_VERSION = 24, 11


@dataclass
class AttentionGraph(OnnxGraph):
    """Nodes of attention of `rows` queries and `length` keys. Of halves, as GPUs run it."""

    rows: int = 40
    length: int = 40
    open_sizes: bool = False
    arrays: dict[str, Array] = field(default_factory=dict[str, Array])
    """The inputs' values."""

    # ------------------------------------------------------------------ small things
    def given(self, name: str, array: Array) -> str:
        """An input; its sizes of rows and keys are named where they are open."""
        names = {self.rows: "s", self.length: "t"} if self.open_sizes else {}
        self.arrays[name] = array
        return self.input(name, array.dtype, [names.get(n, n) for n in array.shape])

    def half(self, value: float | Array) -> str:
        return self.constant(np.asarray(value), np.float16)

    def factor(self, name: str, length: int, heads: int = HEADS) -> str:
        values = self.random.standard_normal((BATCH, heads, length, DEPTH))
        return self.given(name, values.astype(np.float16))

    def cast(self, x: str, to: int) -> str:
        return self.node("Cast", x, to=to)

    def unsqueeze(self, x: str, *axes: int) -> str:
        return self.node("Unsqueeze", x, self.integers(*axes))

    def range(self, count: str) -> str:
        numbers = [self.constant(n, np.int64) for n in (0, 1)]
        return self.node("Range", numbers[0], self.node("Squeeze", count), numbers[1])

    def of_shape(self, value: Any, *sizes: str) -> str:
        shape = self.node("Concat", *sizes, axis=0)
        tensor = onnx.numpy_helper.from_array(np.array([value]))
        return self.node("ConstantOfShape", shape, value=tensor)

    # ------------------------------------------------------------------ attention
    def scores(self) -> str:
        """q @ k^T / sqrt(d), with q, k and v as inputs."""
        q, k = self.factor("q", self.rows), self.factor("k", self.length)
        turned = self.node("Transpose", k, perm=[0, 1, 3, 2])
        return self.node("Mul", self.node("MatMul", q, turned), self.half(DEPTH**-0.5))

    def lengths(self, scores: str) -> tuple[str, str]:
        """How many rows and keys there are, each as an i64[1]."""
        return self.size(scores, 2), self.size(scores, 3)

    def weighted(self, scores: str) -> str:
        """softmax(scores) @ v."""
        return self.node("MatMul", self.node("Softmax", scores, axis=-1),
                         self.factor("v", self.length))

    def padding(self) -> str:
        """An input: which keys count, of each sequence."""
        kept = self.random.random((BATCH, self.length)) < 0.7
        kept[:, 0] = True
        return self.given("padding", kept)

    def finish(self, value: str) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [value], ["y"]))
        graph = helper.make_graph(self.nodes, "attention", self.inputs,
                                  [helper.make_empty_tensor_value_info("y")], self.weights)
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        return onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION))


Spelling = Callable[[AttentionGraph], str]
Masked = Callable[[AttentionGraph, str], str]
"""The scores that a mask leaves."""


# ---------------------------------------------------------------------- masks that are read
def where_infinite(g: AttentionGraph, x: str) -> str:
    return g.node("Where", g.unsqueeze(g.padding(), 1, 2), x, g.half(-np.inf))


def where_lowest(g: AttentionGraph, x: str) -> str:
    return g.node("Where", g.unsqueeze(g.padding(), 1, 2), x, g.half(LOWEST))


def where_not(g: AttentionGraph, x: str) -> str:
    hidden = g.node("Not", g.unsqueeze(g.padding(), 1, 2))
    return g.node("Where", hidden, g.half(LOWEST), x)


def added_numbers(g: AttentionGraph, x: str) -> str:
    values = g.random.standard_normal((BATCH, 1, g.rows, g.length)).astype(np.float16)
    return g.node("Add", x, g.given("mask", values))


def opposite_times_lowest(g: AttentionGraph, x: str) -> str:
    """As BERT writes it."""
    kept = g.cast(g.unsqueeze(g.padding(), 1, 2), TensorProto.FLOAT16)
    return g.node("Add", x, g.node("Mul", g.node("Sub", g.half(1.0), kept), g.half(LOWEST)))


def expanded_and_chosen(g: AttentionGraph, x: str) -> str:
    """As BERT and its relatives are exported: a mask of zeros and lowest numbers, for all rows."""
    rows, keys = g.lengths(x)
    shape = g.node("Concat", g.integers(BATCH, 1), rows, keys, axis=0)
    kept = g.node("Expand", g.unsqueeze(g.padding(), 1, 2), shape)
    return g.node("Add", x, g.node("Where", kept, g.half(0.0), g.half(LOWEST)))


READ: tuple[Masked, ...] = (where_infinite, where_lowest, where_not, added_numbers,
                            opposite_times_lowest, expanded_and_chosen)


# ---------------------------------------------------------------------- causal masks
def lower(g: AttentionGraph, x: str) -> str:
    """Trilu of ones."""
    ones = g.of_shape(np.float32(1), *g.lengths(x))
    return g.cast(g.node("Trilu", ones, upper=0), TensorProto.BOOL)


def trilu_where(g: AttentionGraph, x: str) -> str:
    return g.node("Where", lower(g, x), x, g.half(-np.inf))


def trilu_lowest(g: AttentionGraph, x: str) -> str:
    return g.node("Where", lower(g, x), x, g.half(LOWEST))


def trilu_infinite_added(g: AttentionGraph, x: str) -> str:
    full = g.of_shape(np.float32(-np.inf), *g.lengths(x))
    above = g.node("Trilu", full, g.constant(1, np.int64), upper=1)
    return g.node("Add", x, g.cast(above, TensorProto.FLOAT16))


def ranges_compared(g: AttentionGraph, x: str) -> str:
    rows, keys = map(g.range, g.lengths(x))
    seen = g.node("LessOrEqual", g.unsqueeze(keys, 0), g.unsqueeze(rows, 1))
    return g.node("Where", seen, x, g.half(LOWEST))


def ranges_greater_times_lowest(g: AttentionGraph, x: str) -> str:
    rows, keys = map(g.range, g.lengths(x))
    hidden = g.node("Greater", g.unsqueeze(keys, 0), g.unsqueeze(rows, 1))
    numbers = g.node("Mul", g.cast(hidden, TensorProto.FLOAT16), g.half(LOWEST))
    return g.node("Add", x, g.unsqueeze(numbers, 0, 1))


def zeros_where_infinite(g: AttentionGraph, x: str) -> str:
    """As PyTorch's exporter writes is_causal."""
    numbers = g.node("Where", lower(g, x), g.half(0.0), g.half(-np.inf))
    return g.node("Add", x, numbers)


CAUSAL: tuple[Masked, ...] = (
    trilu_where, trilu_lowest, trilu_infinite_added, ranges_compared, ranges_greater_times_lowest,
    zeros_where_infinite)


# ---------------------------------------------------------------------- both, and others
def causal_and_padding(g: AttentionGraph, x: str) -> str:
    both = g.node("And", lower(g, x), g.unsqueeze(g.padding(), 1, 2))
    return g.node("Where", both, x, g.half(LOWEST))


def causal_then_padding(g: AttentionGraph, x: str) -> str:
    return where_lowest(g, trilu_lowest(g, x))


def distances(g: AttentionGraph, x: str) -> str:
    """ALiBi: the further away, the less."""
    rows, keys = map(g.range, g.lengths(x))
    behind = g.node("Sub", g.unsqueeze(keys, 0), g.unsqueeze(rows, 1))
    slopes = g.half(np.array([0.5, 0.25, 0.125, 0.0625]).reshape(1, HEADS, 1, 1))
    return g.node("Add", x, g.node("Mul", g.cast(behind, TensorProto.FLOAT16), slopes))


def distances_of_seen(g: AttentionGraph, x: str) -> str:
    return trilu_lowest(g, distances(g, x))


def in_a_window(g: AttentionGraph, x: str) -> str:
    rows, keys = map(g.range, g.lengths(x))
    behind = g.node("Sub", g.unsqueeze(rows, 1), g.unsqueeze(keys, 0))
    seen = g.node("And", g.node("GreaterOrEqual", behind, g.constant(0, np.int64)),
                  g.node("Less", behind, g.constant(9, np.int64)))
    return g.node("Where", seen, x, g.half(LOWEST))


OTHERS: tuple[Masked, ...] = (causal_and_padding, causal_then_padding, distances,
                              distances_of_seen, in_a_window)


def masked(mask: Masked) -> Spelling:
    """Attention whose scores a mask changes."""
    def build(g: AttentionGraph) -> str:
        return g.weighted(mask(g, g.scores()))

    build.__name__ = mask.__name__
    return build


# ---------------------------------------------------------------------- other forms of all of it
def both_scaled(g: AttentionGraph) -> str:
    """As PyTorch's exporter writes it: each factor times the root of the scale."""
    root = g.half(DEPTH**-0.25)
    q = g.node("Mul", g.factor("q", g.rows), root)
    k = g.node("Transpose", g.factor("k", g.length), perm=[0, 1, 3, 2])
    return g.weighted(g.node("MatMul", q, g.node("Mul", k, root)))


def divided(g: AttentionGraph) -> str:
    q, k = g.factor("q", g.rows), g.factor("k", g.length)
    turned = g.node("Transpose", k, perm=[0, 1, 3, 2])
    return g.weighted(g.node("Div", g.node("MatMul", q, turned), g.half(DEPTH**0.5)))


def guarded(g: AttentionGraph) -> str:
    """NaN of rows that see nothing becomes 0."""
    weights = g.node("Softmax", where_infinite(g, g.scores()), axis=-1)
    clean = g.node("Where", g.node("IsNaN", weights), g.half(0.0), weights)
    return g.node("MatMul", clean, g.factor("v", g.length))


def in_single_precision(g: AttentionGraph) -> str:
    """Softmax in f32, as many models write it."""
    wide = g.cast(trilu_lowest(g, g.scores()), TensorProto.FLOAT)
    weights = g.cast(g.node("Softmax", wide, axis=-1), TensorProto.FLOAT16)
    return g.node("MatMul", weights, g.factor("v", g.length))


def _shared(g: AttentionGraph, heads: int, spread: Callable[[str], str]) -> str:
    q = g.factor("q", g.rows)
    k, v = (spread(g.factor(name, g.length, heads)) for name in "kv")
    turned = g.node("Transpose", k, perm=[0, 1, 3, 2])
    scores = g.node("Mul", g.node("MatMul", q, turned), g.half(DEPTH**-0.5))
    return g.node("MatMul", g.node("Softmax", trilu_lowest(g, scores), axis=-1), v)


def heads_expanded(g: AttentionGraph) -> str:
    def spread(x: str) -> str:
        wide = g.node("Expand", g.unsqueeze(x, 2), g.integers(1, 1, 2, 1, 1))
        return g.node("Reshape", wide, g.integers(0, HEADS, -1, DEPTH))

    return _shared(g, HEADS // 2, spread)


def heads_tiled(g: AttentionGraph) -> str:
    def spread(x: str) -> str:
        wide = g.node("Tile", g.unsqueeze(x, 2), g.integers(1, 1, 2, 1, 1))
        return g.node("Reshape", wide, g.integers(0, HEADS, -1, DEPTH))

    return _shared(g, HEADS // 2, spread)


def one_head(g: AttentionGraph) -> str:
    return _shared(g, 1, lambda x: x)


# ---------------------------------------------------------------------- ONNX's own operator
def own_operator(
    mask: Callable[[AttentionGraph], Array] | None = None, heads: int = HEADS, **attributes: int
) -> Spelling:
    """Attention by one node; a mask is an input."""
    def build(g: AttentionGraph) -> str:
        factors = [g.factor("q", g.rows), *(g.factor(x, g.length, heads) for x in "kv")]
        masks = [] if mask is None else [g.given("mask", mask(g))]
        return g.node("Attention", *factors, *masks, **attributes)

    build.__name__ = "_".join(["own", "plain" if mask is None else mask.__name__, str(heads),
                               *attributes])
    return build


def truths(g: AttentionGraph) -> Array:
    """Two rows see nothing."""
    kept = g.random.random((g.rows, g.length)) < 0.7
    kept[[0, 7]] = False
    return kept


def numbers(g: AttentionGraph) -> Array:
    """Of each sequence; two rows see nothing."""
    values = g.random.standard_normal((BATCH, 1, g.rows, g.length)).astype(np.float16)
    values[:, :, [0, 7]] = -np.inf
    values[..., 3] = -np.inf
    return values


OWN: tuple[Spelling, ...] = (
    own_operator(), own_operator(is_causal=1), own_operator(heads=2, is_causal=1),
    own_operator(truths), own_operator(numbers), own_operator(truths, heads=2),
    own_operator(numbers, heads=1))

SPELLINGS: Sequence[Spelling] = (
    *map(masked, (*READ, *CAUSAL, *OTHERS)), both_scaled, divided, guarded, in_single_precision,
    heads_expanded, heads_tiled, one_head, *OWN)
