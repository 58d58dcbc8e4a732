"""Equal layers with windows: one function, the same launches, and the layouts of unshared layers.

Layouts are chosen for what crosses the borders of layers as well. Each model puts something else
around its layers, or between them: what fixes a layout, or would be fused with a layer, must not
change what is launched. Filters and numbers differ in each layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.frontend import MemoryModel
from dialects.loop import KernelOp, NestOp
from passes.rewrites.calls import called
from targets.reference.interpret import interpret
from tests.models.onnx_graph import OnnxGraph
from tests.models.test_shared_layers import lowered, normalized

CHANNELS, SIZE = 16, 10
SHARED = "default,graph-share-layers{least=6}"
UNSHARED = "default,without(graph-share-layers)"
Layer = Callable[[OnnxGraph, str], str]


def _conv(g: OnnxGraph, x: str, taps: int = 1, outer: int = CHANNELS, **attributes: Any) -> str:
    inner = CHANNELS // attributes.get("group", 1)
    scale = (inner * taps * taps) ** -0.5
    return g.node("Conv", x, g.random_weight(outer, inner, taps, taps, scale=scale),
                  g.random_weight(outer, scale=0.1), pads=[taps // 2] * 4, **attributes)


# ---------------------------------------------------------------------- layers
def residual(g: OnnxGraph, x: str) -> str:
    """ResNet's block."""
    inner = g.node("Relu", _conv(g, g.node("Relu", _conv(g, x)), 3))
    return g.node("Relu", g.node("Add", _conv(g, inner), x))


def separable(g: OnnxGraph, x: str) -> str:
    """MobileNet's block, with numbers that each layer has its own of."""
    y = g.node("HardSwish", _conv(g, x, 3, group=CHANNELS))
    return g.node("Mul", g.node("HardSwish", _conv(g, y)), g.constant(g.random.uniform(0.5, 2)))


def excited(g: OnnxGraph, x: str) -> str:
    """A block that scales its channels by what it computes from their means, of known sizes: others
    are a number that all layers compute with, which a kernel would not get as an argument."""
    y = g.node("Relu", _conv(g, x, 3))
    gate = _conv(g, g.node("GlobalAveragePool", y))
    return g.node("Add", g.node("Mul", y, g.node("Sigmoid", gate)), x)


def modern(g: OnnxGraph, x: str) -> str:
    """ConvNeXt's block: a norm and products over the last dim, between two transpositions."""
    y = g.node("Transpose", _conv(g, x, 3, group=CHANNELS), perm=[0, 2, 3, 1])
    y = g.node("LayerNormalization", y, g.random_weight(CHANNELS), g.random_weight(CHANNELS))
    y = g.node("MatMul", y, g.random_weight(CHANNELS, 24))
    y = g.node("MatMul", g.node("Tanh", y), g.random_weight(24, CHANNELS))
    return g.node("Add", g.node("Transpose", y, perm=[0, 3, 1, 2]), x)


def pooled(g: OnnxGraph, x: str) -> str:
    """A block with a maximum over windows beside its convolution."""
    pool = g.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
    return g.node("Add", g.node("Relu", _conv(g, x, 3)), pool)


def quantized(g: OnnxGraph, x: str) -> str:
    """Static quantization: scales and filters of bytes that each layer has its own of."""
    def rounded(value: str) -> str:
        scale, zero = g.constant(g.random.uniform(0.01, 0.03)), g.constant(0, np.int8)
        return g.node("DequantizeLinear", g.node("QuantizeLinear", value, scale, zero), scale, zero)

    filters = g.constant(g.random.integers(-127, 128, (CHANNELS, CHANNELS, 3, 3)), np.int8)
    scale = g.constant(g.random.uniform(1e-3, 2e-3))
    read = g.node("DequantizeLinear", filters, scale, g.constant(0, np.int8))
    return g.node("Relu", rounded(g.node("Conv", rounded(x), read, pads=[1] * 4)))


# ---------------------------------------------------------------------- what is around the layers
def convolved(g: OnnxGraph, x: str) -> str:
    return g.node("ReduceMean", _conv(g, x, outer=8), axes=[2, 3], keepdims=0)


def averaged(g: OnnxGraph, x: str) -> str:
    """The last layer ends with what is fused with a mean."""
    return g.node("ReduceMean", x, axes=[2, 3])


def flattened(g: OnnxGraph, x: str) -> str:
    """A product reads what is read as a matrix, whose order in memory is fixed."""
    rows = g.node("Reshape", x, g.integers(0, 0, -1))
    return g.node("MatMul", rows, g.random_weight(SIZE * SIZE, 8))


def both(g: OnnxGraph, x: str) -> str:
    rows = g.node("ReduceMax", flattened(g, x), axes=[1], keepdims=0)
    return g.node("Add", convolved(g, x), rows)


def returned(g: OnnxGraph, x: str) -> str:
    return x


ENDS: list[Layer] = [convolved, averaged, flattened, both, returned]
LAYERS: list[Layer] = [residual, separable, excited, modern, pooled, quantized]


def model(layer: Layer, end: Layer = convolved, count: int = 4, stem: bool = True) -> MemoryModel:
    g = OnnxGraph({"h": SIZE, "w": SIZE} if end in (flattened, both) or layer is excited else {})
    x = g.input("x", np.float32, ["n", CHANNELS, "h", "w"])
    value = g.node("Relu", _conv(g, x, 3)) if stem else x
    for _ in range(count):
        value = layer(g, value)
    return MemoryModel("m.onnx", g.model({"y": end(g, value)}).SerializeToString())


def shared_calls(given: MemoryModel, target: str = "cpu") -> int:
    features = "avx512" if target == "cpu" else "sm_90"
    state = lowered(given, SHARED, "graph", target=target, features=features)
    return sum(map(len, called(state.module).values()))


def launches(given: MemoryModel, passes: str, target: str) -> list[str]:
    """The lines of the host level; numbers that are inputs of kernels come in any order."""
    features = "avx512" if target == "cpu" else "sm_90"
    lines = normalized(lowered(given, passes, target=target, features=features))
    return [line.partition("\n")[0].count("%") * "%" + line.split("schedule")[-1]
            if ".kernel" in line else line for line in lines]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("end", ENDS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("layer", LAYERS, ids=lambda f: f.__name__)
def test_shared_layers_become_the_same_launches(layer: Layer, end: Layer, target: str) -> None:
    given = model(layer, end)
    assert launches(given, SHARED, target) == launches(given, UNSHARED, target)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda f: f.__name__)
def test_layers_are_shared_but_for_a_last_one_that_is_read_differently(layer: Layer) -> None:
    """Quantized layers are cut where a convolution reads bytes, so none ends as the last one."""
    assert {end.__name__: shared_calls(model(layer, end)) for end in ENDS} == {
        "convolved": 3 if layer is quantized else 4, "averaged": 3, "flattened": 3, "both": 3,
        "returned": 3}


@pytest.mark.parametrize("stem", [True, False])
@pytest.mark.parametrize("layer", LAYERS, ids=lambda f: f.__name__)
def test_each_layer_has_its_own_filters(layer: Layer, stem: bool) -> None:
    """At every level at which layers are shared, and in the code."""
    given = model(layer, both, stem=stem)
    x = np.random.default_rng(1).standard_normal((2, CHANNELS, SIZE, SIZE)).astype(np.float32)
    plain = lowered(given, UNSHARED, "graph")
    [expected] = interpret(plain.module, plain.context.weights, [x])
    found = {level: interpret(state.module, state.context.weights, [x])[0] for level, state in (
        ("graph", lowered(given, SHARED, "graph")),
        ("loop", lowered(given, f"{SHARED},without(loop-inline-layers)", "loop")),
        ("host", lowered(given, SHARED)))}
    exe = compiler.compile(given, passes=SHARED, cache="off", threads=1)
    found["code"] = exe.run([x])[0]
    for level, array in found.items():
        np.testing.assert_allclose(array, expected, atol=1e-4 * np.abs(expected).max(),
                                   err_msg=level)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda f: f.__name__)
def test_calls_stand_for_the_nodes_of_their_own_layers(layer: Layer) -> None:
    """Also where all layers compute with one number, such as the reciprocal of an image's size. An
    operation at a border may stand for nodes of two layers."""
    [calls] = called(lowered(model(layer, count=6), SHARED, "graph").module).values()
    nodes = Counter(name for call in calls for name in call.node_names if name)
    assert len(calls) > 3
    assert max(nodes.values()) <= 2, nodes.most_common(3)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("layer", LAYERS, ids=lambda f: f.__name__)
def test_more_layers_are_no_more_nests_and_kernels(layer: Layer, target: str) -> None:
    """Passes on loops see one layer, whatever the number."""
    def counts(count: int) -> Counter[str]:
        state = lowered(model(layer, count=count), "default,without(loop-inline-layers)", "loop",
                        target=target, features="avx512" if target == "cpu" else "sm_90")
        return Counter(type(op).__name__ for op in state.module.walk()
                       if isinstance(op, (NestOp, KernelOp)))

    assert counts(6) == counts(24)
