"""Small valid models of many operator families, from which mutants are made."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.frontend.onnx_models import make_model, model_of, value_info
from tests.frontend.operators.onnx_more_samples import MORE_SAMPLES
from tests.frontend.operators.onnx_samples import SAMPLES
from tests.models import tiny_cnn, tiny_lstm

WEIGHTS_FILE = "weights.bin"
"""The file beside a mutant in which external data lies: `WEIGHTS_BYTES` bytes."""
WEIGHTS_BYTES = 256
X = value_info("x", np.float32, ["n", 4])
CONDITION = value_info("c", np.bool_, [])


def node(op_type: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    """`node("Add", "a b", "c")`, named after its first result."""
    results = outputs.split()
    return helper.make_node(op_type, inputs.split(), results, name=f"n_{results[0]}", **attributes)


def output(name: str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, None)


def body(
    nodes: Sequence[onnx.NodeProto], outputs: str, inputs: Sequence[onnx.ValueInfoProto] = (),
    kinds: Sequence[int] = (),
) -> onnx.GraphProto:
    """A subgraph; `kinds`: the element types of its outputs, else floats."""
    names = outputs.split()
    return helper.make_graph(nodes, "body", inputs, [
        output(name, kind) for name, kind in
        zip(names, [*kinds, *[TensorProto.FLOAT] * len(names)], strict=False)])


# ---------------------------------------------------------------------- many nodes
def attention() -> onnx.ModelProto:
    """Softmax(x wq (x wk)^T) x, with a residual, a norm and a shape computed from x's."""
    weights = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    nodes = [
        node("MatMul", "x wq", "q"), node("MatMul", "x wk", "k"),
        node("Transpose", "k", "kt", perm=[1, 0]), node("MatMul", "q kt", "scores"),
        node("Softmax", "scores", "p", axis=-1), node("MatMul", "p x", "mixed"),
        node("Add", "mixed x", "sum"), node("LayerNormalization", "sum scale", "norm", axis=-1),
        node("Shape", "norm", "shape"), node("Gather", "shape zero", "rows", axis=0),
        node("Concat", "rows two two", "wanted", axis=0), node("Reshape", "norm wanted", "parts"),
        node("ReduceMean", "parts", "y", axes=[2], keepdims=0),
    ]
    constants = {"wq": weights, "wk": weights.T.copy(), "scale": np.ones(4, np.float32),
                 "zero": np.array([0]), "two": np.array([2])}
    return make_model(nodes, [X], ["y"], constants)


def quantized() -> onnx.ModelProto:
    """Two quantized products, and back to floats."""
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "a"),
             node("DequantizeLinear", "w s", "b"), node("MatMul", "a b", "m"),
             node("QuantizeLinear", "m s z", "r"), node("DequantizeLinear", "r s z", "y")]
    constants = {"s": np.array(0.1, np.float32), "z": np.array(3, np.int8),
                 "w": np.arange(-8, 8, dtype=np.int8).reshape(4, 4)}
    return make_model(nodes, [X], ["y"], constants)


# ---------------------------------------------------------------------- control flow, functions
def branches() -> onnx.ModelProto:
    """If, whose branches use values from outside; one of them holds another If."""
    inner = node("If", "c", "t", then_branch=body([node("Neg", "a", "n")], "n"),
                 else_branch=body([node("Abs", "x", "m")], "m"))
    outer = node("If", "c", "y", then_branch=body([inner], "t"),
                 else_branch=body([node("Exp", "a", "e")], "e"))
    return make_model([node("Relu", "x", "a"), outer], [X, CONDITION], ["y"])


def loop() -> onnx.ModelProto:
    """v = 3 times Tanh(v + x), all values collected."""
    inputs = [value_info("i", np.int64, []), value_info("go", np.bool_, []),
              value_info("v", np.float32, ["n", 4])]
    nodes = [node("Add", "v x", "s"), node("Tanh", "s", "w"), node("Identity", "go", "on"),
             node("ReduceSum", "w", "r", keepdims=0)]
    loop_body = body(nodes, "on w r", inputs, [TensorProto.BOOL])
    return make_model([node("Loop", "trips yes x", "y rs", body=loop_body)], [X], ["y", "rs"],
                      {"trips": np.array(3), "yes": np.array(True)})


def scan() -> onnx.ModelProto:
    """Running sums of the rows."""
    inputs = [value_info("s", np.float32, [4]), value_info("row", np.float32, [4])]
    scan_body = body([node("Add", "s row", "t"), node("Relu", "t", "r")], "t r", inputs)
    return make_model([node("Scan", "start x", "last y", body=scan_body, num_scan_inputs=1)],
                      [X], ["y"], {"start": np.zeros(4, np.float32)})


def functions() -> onnx.ModelProto:
    """my.Twice calls my.Scale, whose attribute has a default."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    softmax = helper.make_node("Softmax", ["s"], ["out"], "soft")
    softmax.attribute.add(name="axis", ref_attr_name="axis", type=onnx.AttributeProto.INT)
    scale = helper.make_function("my", "Scale", ["a", "b"], ["out"], [
        node("Mul", "a b", "s"), softmax], opsets, [], [helper.make_attribute("axis", 1)])
    twice = helper.make_function("my", "Twice", ["a"], ["c"], [
        node("Scale", "a a", "b", domain="my"),
        node("Scale", "b a", "c", domain="my", axis=0)], opsets)
    return make_model([node("Twice", "x", "y", domain="my")], [X], ["y"],
                      functions=[scale, twice], domains=["my"])


def sequences() -> onnx.ModelProto:
    nodes = [node("SplitToSequence", "x", "parts", axis=1),
             node("SequenceAt", "parts one", "part"), node("SequenceInsert", "parts part", "more"),
             node("ConcatFromSequence", "more", "y", axis=1)]
    return make_model(nodes, [X], ["y"], {"one": np.array(1)})


# ---------------------------------------------------------------------- data
def data_dependent() -> onnx.ModelProto:
    """Sizes that only a run tells."""
    nodes = [node("NonZero", "x", "places"), node("Transpose", "places", "rows"),
             node("GatherND", "x rows", "found"), node("Unique", "found", "y")]
    return make_model(nodes, [X], ["y"])


def external() -> onnx.ModelProto:
    """A weight in another file."""
    model = make_model([node("MatMul", "x w", "y")], [X], ["y"], {"w": np.ones((4, 8), "f")})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": WEIGHTS_FILE, "offset": "64", "length": "128"}.items():
        tensor.external_data.add(key=key, value=value)
    return model


def typed_fields() -> onnx.ModelProto:
    """Weights as numbers in fields instead of bytes, of several types; one is sparse."""
    model = make_model([node("MatMul", "x w", "a"), node("Add", "a h", "b"), node("Cast", "k", "f",
                        to=1), node("Add", "b f", "y")], [X], ["y"])
    half = helper.make_tensor("h0", TensorProto.FLOAT16, [4], [1.0, 2.0, 3.0, 4.0])
    model.graph.node.insert(0, node("Cast", "h0", "h", to=TensorProto.FLOAT))
    model.graph.initializer.extend([
        helper.make_tensor("w", TensorProto.FLOAT, [4, 4], [0.5] * 16), half,
        helper.make_tensor("k", TensorProto.INT32, [4], [1, 2, 3, 4])])
    return model


COMPOSED = (attention, quantized, branches, loop, scan, functions, sequences, data_dependent,
            external, typed_fields)


NUMBER_COMPOSED = len(COMPOSED) + 2
"""So many of `seed_models`, the first, have several nodes."""


@cache
def seed_models() -> tuple[bytes, ...]:
    """All of them, serialized: every operator's sample, by turns with fixed and open sizes."""
    models = [build() for build in COMPOSED]
    models += [tiny_cnn.make_model(tiny_cnn.OPEN), tiny_lstm.make_model(tiny_lstm.OPEN)]
    for k, sample in enumerate((*SAMPLES, *MORE_SAMPLES)):
        model, _ = model_of(sample, sample.opsets[-1], sample.symbolic and k % 2 == 0)
        models.append(model)
    return tuple(m.SerializeToString() for m in models)
