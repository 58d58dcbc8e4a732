"""Models that contradict themselves: we refuse what ONNX's own checker refuses, and no other.

The checker is `onnx.checker.check_model` with its full check, after strict shape inference.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.diagnostics import StrataError
from compiler.frontend import MemoryModel, load_model

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Info = onnx.ValueInfoProto


def info(name: str, kind: int = FLOAT, shape: Sequence[int | str] | None = None) -> Info:
    return helper.make_tensor_value_info(name, kind, shape)


def node(op_type: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), name=f"n_{outputs}",
                            **attributes)


X = (info("x", shape=[2, 3]), info("n", shape=["n", 3]), info("i", INT64, [2]),
     info("c", BOOL, [2, 3]), info("m", shape=[1, 4, 5, 5]))
CONSTANTS = {"w": np.ones((3, 4), "f"), "four": np.array([4, 4]), "six": np.array([-1, 4]),
             "filter": np.ones((2, 3, 3, 3), "f"), "one": np.ones(2, "f")}


def model(
    *nodes: onnx.NodeProto, output: Info | None = None, infos: Sequence[Info] = (),
    inputs: Sequence[Info] = X,
) -> onnx.ModelProto:
    """Nodes that make y, a float unless `output` says else; `infos`: what is declared besides."""
    weights = [numpy_helper.from_array(a, name) for name, a in CONSTANTS.items()]
    graph = helper.make_graph(nodes, "test", inputs, [output or info("y")], weights,
                              value_info=infos)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


RELU = node("Relu", "x", "y")
LIKE_X = info("y", shape=[2, 3])
INVALID = {
    "types of Add": model(node("Add", "x i", "y")),
    "type of an index": model(node("Gather", "x one", "y")),
    "type of a condition": model(node("Where", "x x x", "y")),
    "type of Not": model(node("Not", "x", "y"), output=info("y", BOOL)),
    "type of a shape": model(node("Reshape", "x one", "y")),
    "shapes of Add": model(node("Relu", "w", "a"), node("Add", "x a", "y")),
    "shapes of MatMul": model(node("MatMul", "x x", "y")),
    "shapes of Gemm": model(node("Gemm", "x x", "y")),
    "shapes of Concat": model(node("Concat", "x w", "y", axis=1)),
    "ranks of Concat": model(node("Concat", "x m", "y", axis=0)),
    "elements of Reshape with -1": model(node("Reshape", "x six", "y")),
    "sizes of Expand": model(node("Expand", "x four", "y")),
    "rank of MaxPool": model(node("MaxPool", "x", "y", kernel_shape=[2, 2])),
    "axis of Softmax": model(node("Softmax", "x", "y", axis=2)),
    "axis of Concat": model(node("Concat", "x x", "y", axis=-3)),
    "axis of ReduceMean": model(node("ReduceMean", "x", "y", axes=[5])),
    "axis twice": model(node("Transpose", "x", "y", perm=[0, 0])),
    "perm too long": model(node("Transpose", "x", "y", perm=[0, 1, 2])),
    "size of Split": model(node("Split", "x four", "y a", axis=1)),
    "kind of an attribute": model(node("Softmax", "x", "y", axis=1.5)),
    "name of an attribute": model(node("Softmax", "x", "y", axes=1)),
    "no attribute": model(node("Concat", "x x", "y")),
    "too many inputs": model(node("Relu", "x x", "y")),
    "too few inputs": model(node("Add", "x", "y")),
    "no operator": model(node("Rleu", "x", "y"), output=LIKE_X),
    "no value": model(node("Relu", "gone", "y")),
    "two results": model(RELU, node("Neg", "x", "y")),
    "result and input": model(node("Neg", "x", "n"), RELU),
    "in a circle": model(node("Add", "x b", "a"), node("Neg", "a", "b"), node("Relu", "b", "y"),
                         output=LIKE_X),
    "no output": model(node("Relu", "x", "z"), output=LIKE_X),
    "declared type": model(RELU, output=info("y", INT64)),
    "declared type inside": model(node("Neg", "x", "a"), node("Relu", "a", "y"),
                                  infos=[info("a", BOOL, [2, 3])]),
    "no opset": model(RELU),
    "two functions of a name": model(RELU),
}
del INVALID["no opset"].opset_import[:]
for _ in range(2):
    INVALID["two functions of a name"].functions.append(helper.make_function(
        "my", "F", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])],
        [helper.make_opsetid("", 17)]))
STRICTER = {
    "elements of Reshape": model(node("Reshape", "x four", "y")),
    "channels of Conv": model(node("Conv", "m filter", "y")),
}
"""What ONNX leaves to the run, and no run can do."""
VALID = {
    "plain": model(RELU),
    "declared": model(node("Neg", "x", "a"), node("Relu", "a", "y"),
                      output=info("y", shape=[2, 3]), infos=[info("a", shape=[2, 3])]),
    "declared by names": model(RELU, output=info("y", shape=["rows", "columns"])),
    "declared for an open size": model(node("Relu", "n", "y"), output=info("y", shape=[7, 3])),
    "open sizes that may agree": model(node("Add", "x n", "y")),
    "broadcasting": model(node("Where", "c x one2", "y"), inputs=[*X, info("one2", shape=[1, 3])]),
    "another type": model(node("Cast", "x", "y", to=INT64), output=info("y", INT64)),
    "names twice": model(node("Neg", "x", "a"), node("Neg", "a", "b"), node("Relu", "b", "y")),
    "no use": model(node("Neg", "i", "a"), RELU),
}
for n in VALID["names twice"].graph.node:
    n.name = "same"


def checker_refuses(proto: onnx.ModelProto) -> str:
    """What ONNX's checker says; empty if it accepts. Shapes of outputs, which it wants declared,
    are filled in by inference before.
    """
    try:
        whole = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True,
                                                  data_prop=True)
        onnx.checker.check_model(whole, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", INVALID)
def test_what_the_checker_refuses(kind: str) -> None:
    assert checker_refuses(INVALID[kind])
    with pytest.raises(StrataError) as caught:
        load_model(MemoryModel("model.onnx", INVALID[kind].SerializeToString()))
    assert caught.value.exit_status == 1 and caught.value.problems
    assert "model.onnx" in str(caught.value)


@pytest.mark.parametrize("kind", STRICTER)
def test_what_no_run_can_do(kind: str) -> None:
    with pytest.raises(StrataError):
        load_model(MemoryModel("model.onnx", STRICTER[kind].SerializeToString()))


@pytest.mark.parametrize("kind", VALID)
def test_what_the_checker_accepts(kind: str) -> None:
    assert checker_refuses(VALID[kind]) == ""
    load_model(MemoryModel("model.onnx", VALID[kind].SerializeToString()))


def test_shapes_are_not_held_to_what_options_change() -> None:
    """Exporters leave the sizes of their example input behind; `--dim` gives others."""
    from compiler.frontend import ImportOptions

    stale = VALID["declared for an open size"]
    load_model(MemoryModel("model.onnx", stale.SerializeToString()), ImportOptions(dims={"n": 8}))
