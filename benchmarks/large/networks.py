"""Writes the models of `compile_time.py`: networks as exporters write them, with seeded weights.

    resnet50      ResNet-50 with its batch norms folded, an open batch
    bert_base     BERT-base of 12 layers, with open batch and length; normalizations as operators
    transformer   `models.py transformer`, 7 layers of 256: about 350 nodes
    recurrent     a recognizer of speech or text: strided convolutions, LSTMs of both directions, a
                  GRU and a head over frames, with open batch and length

Weights lie in a file beside the model.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from models import ModelFile, transformer
from onnx import TensorProto

LAYERS, WIDTH, HEADS, VOCABULARY, POSITIONS = 12, 768, 12, 30522, 512
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
"""ResNet-50's blocks, their inner channels and their first stride, for each stage."""


def make(name: str, path: Path) -> int:
    """Write a model; its number of nodes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".weights").open("wb") as data:
        return MODELS[name](ModelFile(path, data))


# ---------------------------------------------------------------------- ResNet-50
def resnet50(n: ModelFile) -> int:
    value = n("Relu", _convolve(n, "x", 3, 64, 7, 2))
    value = n("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for blocks, inner, stride in STAGES:
        for k in range(blocks):
            value = _bottleneck(n, value, channels, inner, stride if k == 0 else 1)
            channels = 4 * inner
    flat = n("Flatten", n("GlobalAveragePool", value))
    return n.save(["batch", 3, 224, 224], n("Gemm", flat, n.weight(1000, channels),
                                            n.weight(1000), transB=1), 2)


def _bottleneck(n: ModelFile, x: str, channels: int, inner: int, stride: int) -> str:
    value = n("Relu", _convolve(n, x, channels, inner, 1, 1))
    value = n("Relu", _convolve(n, value, inner, inner, 3, stride))
    value = _convolve(n, value, inner, 4 * inner, 1, 1)
    short = x if channels == 4 * inner else _convolve(n, x, channels, 4 * inner, 1, stride)
    return n("Relu", n("Add", value, short))


def _convolve(n: ModelFile, x: str, channels: int, filters: int, size: int, stride: int) -> str:
    return n("Conv", x, n.weight(filters, channels, size, size), n.weight(filters),
             kernel_shape=[size, size], strides=[stride, stride], pads=[size // 2] * 4)


# ---------------------------------------------------------------------- BERT
def bert_base(n: ModelFile) -> int:
    """input_ids, attention_mask: i64[batch, length] -> f32[batch, length, 768]."""
    mask = n("Cast", n("Unsqueeze", "attention_mask", n.integers(1, 2)), to=TensorProto.FLOAT)
    one, lowest = n.number(1), n.number(-3.4028234663852886e38)
    bias = n("Mul", n("Sub", one, mask), lowest)
    words = n("Gather", n.weight(VOCABULARY, WIDTH), "input_ids")
    length = n("Unsqueeze", n("Gather", n("Shape", "input_ids"), n.integer(1)), n.integers(0))
    places = n("Slice", n.weight(POSITIONS, WIDTH), n.integers(0), length, n.integers(0))
    value = _normalize(n, n("Add", n("Add", words, n.weight(WIDTH)), places))
    for _ in range(LAYERS):
        value = _layer(n, value, bias)
    return n.save(["batch", "length"], value, 3, input_ids=TensorProto.INT64,
                  attention_mask=TensorProto.INT64)


def _layer(n: ModelFile, x: str, bias: str) -> str:
    q, k, v = (_split_heads(n, _linear(n, x, WIDTH, WIDTH), x) for _ in range(3))
    scores = n("MatMul", q, n("Transpose", k, perm=[0, 1, 3, 2]))
    weights = n("Softmax", n("Add", n("Div", scores, n.number(8)), bias), axis=-1)
    mixed = n("Transpose", n("MatMul", weights, v), perm=[0, 2, 1, 3])
    joined = n("Reshape", mixed, n("Concat", *_sizes(n, x), n.integers(WIDTH), axis=0))
    value = _normalize(n, n("Add", _linear(n, joined, WIDTH, WIDTH), x))
    inner = _linear(n, value, WIDTH, 4 * WIDTH)
    error = n("Erf", n("Div", inner, n.number(2 ** 0.5)))
    gelu = n("Mul", n("Mul", inner, n("Add", error, n.number(1))), n.number(0.5))
    return _normalize(n, n("Add", _linear(n, gelu, 4 * WIDTH, WIDTH), value))


def _linear(n: ModelFile, x: str, inner: int, outer: int) -> str:
    return n("Add", n.weight(outer), n("MatMul", x, n.weight(inner, outer)))


def _sizes(n: ModelFile, x: str) -> tuple[str, str]:
    shape = n("Shape", x)
    first, second = (n("Unsqueeze", n("Gather", shape, n.integer(k)), n.integers(0))
                     for k in range(2))
    return first, second


def _split_heads(n: ModelFile, value: str, x: str) -> str:
    shape = n("Concat", *_sizes(n, x), n.integers(HEADS, WIDTH // HEADS), axis=0)
    return n("Transpose", n("Reshape", value, shape), perm=[0, 2, 1, 3])


def _normalize(n: ModelFile, x: str) -> str:
    """Layer normalization in operators, as opsets before 17 have it."""
    apart = n("Sub", x, n("ReduceMean", x, axes=[-1]))
    spread = n("ReduceMean", n("Pow", apart, n.number(2)), axes=[-1])
    scaled = n("Div", apart, n("Sqrt", n("Add", spread, n.number(1e-12))))
    return n("Add", n("Mul", scaled, n.weight(WIDTH)), n.weight(WIDTH))


# ---------------------------------------------------------------------- recurrent networks
FEATURES, CHANNELS, HIDDEN, CLASSES = 40, 96, 128, 77


def recurrent(n: ModelFile) -> int:
    """x: f32[batch, 40, length] -> f32[batch, frames, 77], frames about length / 4."""
    value = n("Sub", "x", n("ReduceMean", "x", axes=[2], keepdims=1))
    for channels, filters, stride in ((FEATURES, CHANNELS, 2), (CHANNELS, CHANNELS, 2)):
        value = n("Relu", n("Conv", value, n.weight(filters, channels, 5), n.weight(filters),
                            kernel_shape=[5], strides=[stride], pads=[2, 2]))
    value = n("Transpose", value, perm=[2, 0, 1])
    value = _both_directions(n, value, CHANNELS)
    value = _both_directions(n, value, 2 * HIDDEN)
    value = _one_direction(n, value, 2 * HIDDEN)
    value = _linear(n, n("Transpose", value, perm=[1, 0, 2]), HIDDEN, CLASSES)
    return n.save(["batch", FEATURES, "length"], n("LogSoftmax", value, axis=-1), 3)


def _both_directions(n: ModelFile, value: str, inner: int) -> str:
    """An LSTM of both directions over [frames, batch, inner], and its states side by side."""
    zeros = n("ConstantOfShape", n("Concat", n.integers(2), _batch(n, value), n.integers(HIDDEN),
                                   axis=0))
    out = n("LSTM", value, n.weight(2, 4 * HIDDEN, inner), n.weight(2, 4 * HIDDEN, HIDDEN),
            n.weight(2, 8 * HIDDEN), "", zeros, zeros, hidden_size=HIDDEN,
            direction="bidirectional")
    return n("Reshape", n("Transpose", out, perm=[0, 2, 1, 3]), n.integers(0, 0, 2 * HIDDEN))


def _one_direction(n: ModelFile, value: str, inner: int) -> str:
    out = n("GRU", value, n.weight(1, 3 * HIDDEN, inner), n.weight(1, 3 * HIDDEN, HIDDEN),
            n.weight(1, 6 * HIDDEN), hidden_size=HIDDEN, linear_before_reset=1)
    return n("Squeeze", out, n.integers(1))


def _batch(n: ModelFile, value: str) -> str:
    """The middle size of [frames, batch, inner], as a vector of one element."""
    return n("Slice", n("Shape", value), n.integers(1), n.integers(2), n.integers(0))


MODELS: dict[str, Callable[[ModelFile], int]] = {
    "resnet50": resnet50, "bert_base": bert_base, "transformer": lambda n: transformer(n, 7, 256),
    "recurrent": recurrent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("path", type=Path)
    args = parser.parse_args()
    print(f"{args.path}: {make(args.name, args.path)} nodes")


if __name__ == "__main__":
    main()
