"""A BERT with two layers, written as exporters write it: masks by Where and Expand, sizes computed
from shapes, layer norm as an operator and written out, GELU by Erf.
"""

from __future__ import annotations

import numpy as np
import onnx

from tests.models.onnx_graph import Array, OnnxGraph, Sizes

HIDDEN, HEADS, INNER, WORDS, POSITIONS = 64, 2, 128, 50, 32
OPEN: Sizes = {}
"""The sizes that are fixed where the others stay open."""
CASES: tuple[Sizes, ...] = ({"batch": 2, "seq": 16}, {"batch": 1, "seq": 11})


def make_model(sizes: Sizes) -> onnx.ModelProto:
    """input_ids, attention_mask: i64[batch, seq] -> hidden [batch, seq, 64], pooled [batch, 64]."""
    g = OnnxGraph(sizes)
    ids = g.input("input_ids", np.int64, ["batch", "seq"])
    mask = g.input("attention_mask", np.int64, ["batch", "seq"])
    hidden = _layer_norm(g, _embeddings(g, ids))
    bias = _attention_bias(g, mask)
    for written_out in (False, True):
        hidden = _layer(g, hidden, bias, written_out)
    first = g.node("Gather", hidden, g.constant(0, np.int64), axis=1)
    pooled = g.node("Tanh", g.node("Gemm", first, g.random_weight(HIDDEN, HIDDEN), _bias(g)))
    return g.model({"hidden": hidden, "pooled": pooled})


def make_inputs(sizes: Sizes) -> dict[str, Array]:
    """Random words; row r of the mask ends in 3 * r zeros."""
    random = np.random.default_rng(1)
    shape = sizes["batch"], sizes["seq"]
    kept = sizes["seq"] - 3 * np.arange(sizes["batch"])
    return {"input_ids": random.integers(0, WORDS, shape),
            "attention_mask": (np.arange(sizes["seq"]) < kept[:, None]).astype(np.int64)}


# ---------------------------------------------------------------------- parts
def _bias(g: OnnxGraph, size: int = HIDDEN) -> str:
    return g.random_weight(size, scale=0.1)


def _embeddings(g: OnnxGraph, ids: str) -> str:
    words = g.node("Gather", g.random_weight(WORDS, HIDDEN, scale=1.0), ids)
    length = g.node("Squeeze", g.size(ids, 1))
    places = g.node("Range", g.constant(0, np.int64), length, g.constant(1, np.int64))
    table = g.random_weight(POSITIONS, HIDDEN, scale=0.3)
    positions = g.node("GatherND", table, g.node("Unsqueeze", places, g.integers(-1)))
    return g.node("Add", words, positions)


def _attention_bias(g: OnnxGraph, mask: str) -> str:
    """[batch, 1, seq, seq]: 0 where a word may be looked at, else the lowest number."""
    batch, length = g.size(mask, 0), g.size(mask, 1)
    shape = g.node("Concat", batch, g.integers(1), length, length, axis=0)
    wide = g.node("Expand", g.node("Unsqueeze", mask, g.integers(1, 2)), shape)
    seen = g.node("Cast", wide, to=onnx.TensorProto.BOOL)
    return g.node("Where", seen, g.constant(0.0), g.constant(np.finfo(np.float32).min))


def _layer(g: OnnxGraph, x: str, bias: str, written_out: bool) -> str:
    attended = _linear(g, _attention(g, x, bias), HIDDEN, HIDDEN)
    x = _layer_norm(g, g.node("Add", x, attended), written_out)
    inner = _gelu(g, _linear(g, x, HIDDEN, INNER))
    return _layer_norm(g, g.node("Add", x, _linear(g, inner, INNER, HIDDEN)), written_out)


def _linear(g: OnnxGraph, x: str, inputs: int, outputs: int) -> str:
    return g.node("Add", g.node("MatMul", x, g.random_weight(inputs, outputs)), _bias(g, outputs))


def _attention(g: OnnxGraph, x: str, bias: str) -> str:
    q, k, v = (_heads(g, _linear(g, x, HIDDEN, HIDDEN), order)
               for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    scale = g.constant((HIDDEN // HEADS) ** 0.5)
    scores = g.node("Add", g.node("Div", g.node("MatMul", q, k), scale), bias)
    mixed = g.node("MatMul", g.node("Softmax", scores, axis=-1), v)
    together = g.node("Transpose", mixed, perm=[0, 2, 1, 3])
    return g.node("Reshape", together, g.integers(0, 0, HIDDEN))


def _heads(g: OnnxGraph, x: str, order: list[int]) -> str:
    return g.node("Transpose", g.node("Reshape", x, g.integers(0, 0, HEADS, HIDDEN // HEADS)),
                  perm=order)


def _layer_norm(g: OnnxGraph, x: str, written_out: bool = False) -> str:
    scale, shift = g.constant(1 + 0.1 * g.random.standard_normal(HIDDEN)), _bias(g)
    if not written_out:
        return g.node("LayerNormalization", x, scale, shift, epsilon=1e-5)
    centred = g.node("Sub", x, g.node("ReduceMean", x, axes=[-1]))
    variance = g.node("ReduceMean", g.node("Pow", centred, g.constant(2.0)), axes=[-1])
    deviation = g.node("Sqrt", g.node("Add", variance, g.constant(1e-5)))
    return g.node("Add", g.node("Mul", g.node("Div", centred, deviation), scale), shift)


def _gelu(g: OnnxGraph, x: str) -> str:
    share = g.node("Erf", g.node("Div", x, g.constant(2 ** 0.5)))
    return g.node("Mul", g.node("Mul", x, g.node("Add", share, g.constant(1.0))), g.constant(0.5))
