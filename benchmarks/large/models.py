"""Makes large ONNX models, written to disk piece by piece: of many nodes, or of many bytes.

    transformer   layers as exporters write them: Shape chains before every Reshape, an open batch
    convolutions  residual blocks of convolutions, batch norms and gates
    chain         elementwise operators only, one behind the other
    perceptron    few nodes, large matrices

Weights go into a file beside the model as soon as they are made, so that a model of many gigabytes
needs a few megabytes of memory. They differ from each other, so that none can be merged.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

PIECE = 1 << 20
"""Elements of a weight that are made at a time."""


@dataclass
class ModelFile:
    """A model under construction: the graph in memory, the weights in a file.

    Offsets of weights are multiples of `align` bytes, as exporters that think of mapping do it;
    1 packs them end to end, as others do.
    """

    path: Path
    data: BinaryIO
    align: int = 4096
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    weights: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def weight(self, *shape: int) -> str:
        """A new weight of small random values; written at once."""
        count, scale = int(np.prod(shape)), np.float32(shape[0] ** -0.5)
        self.data.write(bytes(-self.data.tell() % self.align))
        name, offset = f"w{len(self.weights)}", self.data.tell()
        for start in range(0, count, PIECE):
            values = self.random.random(min(PIECE, count - start), np.float32) - np.float32(0.5)
            self.data.write((values * scale).tobytes())
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape,
                             data_location=TensorProto.EXTERNAL)
        entries = {"location": Path(self.data.name).name, "offset": offset, "length": 4 * count}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        self.weights.append(tensor)
        return name

    def integers(self, *values: int) -> str:
        """A constant vector of integers, in the model itself."""
        return self.constant(np.array(values, np.int64))

    def integer(self, value: int) -> str:
        """A constant integer without dims."""
        return self.constant(np.array(value, np.int64))

    def number(self, value: float) -> str:
        """A constant f32 without dims."""
        return self.constant(np.array(value, np.float32))

    def constant(self, array: Any) -> str:
        """A constant in the model itself."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def __call__(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """The name of a new node's output, or a list of names when it has several."""
        names = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, names, name, **attributes))
        return names[0] if outputs == 1 else names

    def save(self, shape: Sequence[int | str], result: str, rank: int, **inputs: int) -> int:
        """Write the model, with one output; its number of nodes.

        `inputs`: the element type of each input by name; without any, there is `x: f32`.
        """
        self("Identity", result)
        self.nodes[-1].output[0] = "y"
        types = inputs or {"x": TensorProto.FLOAT}
        given = [helper.make_tensor_value_info(name, kind, shape) for name, kind in types.items()]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)]
        graph = helper.make_graph(self.nodes, "large", given, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        self.path.write_bytes(model.SerializeToString())
        return len(self.nodes)


Maker = Callable[[ModelFile, int, int], int]
"""maker(model, count, width) builds and saves; the number of nodes."""


def make(kind: str, path: Path, count: int, width: int, align: int = 4096) -> int:
    """Write a model of `count` layers, blocks or operators; its number of nodes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".weights").open("wb") as data:
        return MAKERS[kind](ModelFile(path, data, align), count, width)


# ---------------------------------------------------------------------- transformer
def transformer(n: ModelFile, count: int, width: int) -> int:
    """`count` layers of attention and a perceptron over x: f32[batch, 8, width]."""
    value = "x"
    for _ in range(count):
        value = _attention(n, value, width)
        value = _feed_forward(n, value, width)
    return n.save(["batch", 8, width], value, 3)


def _attention(n: ModelFile, x: str, width: int) -> str:
    heads = max(width // 64, 2)
    normal = n("LayerNormalization", x, n.weight(width), n.weight(width))
    joined = n("Add", n("MatMul", normal, n.weight(width, 3 * width)), n.weight(3 * width))
    q, k, v = (_split_heads(n, part, heads, width // heads)
               for part in n("Split", joined, outputs=3, axis=2))
    scores = n("MatMul", q, n("Transpose", k, perm=[0, 1, 3, 2]))
    scale = n("Sqrt", n("Cast", n("Gather", n("Shape", q), n.integers(3)), to=TensorProto.FLOAT))
    weights = n("Softmax", n("Div", scores, scale), axis=-1)
    mixed = n("Transpose", n("MatMul", weights, v), perm=[0, 2, 1, 3])
    shape = n("Concat", _size(n, mixed, 0), _size(n, mixed, 1), n.integers(width), axis=0)
    merged = n("Reshape", mixed, shape)
    out = n("Add", n("MatMul", merged, n.weight(width, width)), n.weight(width))
    return n("Add", x, out)


def _size(n: ModelFile, value: str, dim: int) -> str:
    return n("Gather", n("Shape", value), n.integers(dim))


def _split_heads(n: ModelFile, x: str, heads: int, depth: int) -> str:
    shape = n("Concat", _size(n, x, 0), _size(n, x, 1), n.integers(heads, depth), axis=0)
    return n("Transpose", n("Reshape", x, shape), perm=[0, 2, 1, 3])


def _feed_forward(n: ModelFile, x: str, width: int) -> str:
    normal = n("LayerNormalization", x, n.weight(width), n.weight(width))
    wide = n("Add", n("MatMul", normal, n.weight(width, 4 * width)), n.weight(4 * width))
    gate = n("Sigmoid", n("Mul", wide, n.weight(4 * width)))
    out = n("Add", n("MatMul", n("Mul", wide, gate), n.weight(4 * width, width)), n.weight(width))
    return n("Add", x, out)


# ---------------------------------------------------------------------- the others
def convolutions(n: ModelFile, count: int, width: int) -> int:
    """Residual blocks over x: f32[1, width, 8, 8]; each ends in a gate."""
    value = "x"
    for _ in range(count):
        inner = _convolve(n, n("Relu", _convolve(n, value, width)), width)
        squeezed = n("Conv", n("GlobalAveragePool", inner), n.weight(width, width, 1, 1))
        gated = n("Mul", inner, n("Sigmoid", squeezed))
        value = n("Clip", n("Add", value, gated))
    return n.save([1, width, 8, 8], value, 4)


def _convolve(n: ModelFile, x: str, width: int) -> str:
    made = n("Conv", x, n.weight(width, width, 3, 3), pads=[1, 1, 1, 1])
    return n("BatchNormalization", made, *(n.weight(width) for _ in range(3)),
             n("Abs", n.weight(width)))


def chain(n: ModelFile, count: int, width: int) -> int:
    """`count` elementwise operators on x: f32[batch, width]."""
    value = "x"
    steps: list[Callable[[str], str]] = [
        lambda v: n("Mul", v, n.weight(width)), lambda v: n("Sin", v), lambda v: n("Add", v, "x"),
        lambda v: n("Tanh", v), lambda v: n("Sub", n.weight(width), v)]
    for k in range(count):
        value = steps[k % len(steps)](value)
    return n.save(["batch", width], value, 2)


def perceptron(n: ModelFile, count: int, width: int) -> int:
    """`count` matrices of width x width, half of them transposed, over x: f32[batch, width]."""
    value = "x"
    for k in range(count):
        value = n("Relu", n("Gemm", value, n.weight(width, width), n.weight(width), transB=k % 2))
    return n.save(["batch", width], value, 2)


MAKERS: dict[str, Maker] = {
    "transformer": transformer, "convolutions": convolutions, "chain": chain,
    "perceptron": perceptron}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kind", choices=MAKERS)
    parser.add_argument("path", type=Path)
    parser.add_argument("--count", type=int, required=True, help="layers, blocks or operators")
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--align", type=int, default=4096, help="bytes; 1 packs weights end to end")
    args = parser.parse_args()
    nodes = make(args.kind, args.path, args.count, args.width, args.align)
    size = args.path.with_suffix(".weights").stat().st_size
    print(f"{args.path}: {nodes} nodes, {size / 1e6:.0f} MB of weights")


if __name__ == "__main__":
    main()
