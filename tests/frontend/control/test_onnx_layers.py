"""ONNX models whose layers are equal but for one thing.

Of many equal layers a few are imported, and the rest are calls. What comes of that must be the same
module as if all had been imported, with the same problems, and compute what onnxruntime computes.
In each variant one layer in the middle differs in something, or others read what layers compute.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import ImportOptions, model_of
from compiler.frontend.onnx import importer
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.strata.types import Array

WIDTH, LAYERS, ODD = 24, 12, 7


@dataclass
class Stack:
    """A model in the making. `names`: whether nodes have names."""

    names: bool = True
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    constants: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    outputs: list[str] = field(default_factory=list[str])
    declared: list[onnx.ValueInfoProto] = field(default_factory=list[onnx.ValueInfoProto])
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))
    count: itertools.count[int] = field(default_factory=itertools.count)

    def __call__(self, op: str, *operands: str | Array, results: int = 1, **attributes: Any) -> str:
        """Add a node; the name of its first result. An array becomes a constant."""
        name = f"{op.lower()}_{next(self.count)}"
        inputs = [v if isinstance(v, str) else self.constant(v) for v in operands]
        outputs = [f"{name}_y{k or ''}" for k in range(results)]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name if self.names else "",
                                           **attributes))
        return outputs[0]

    def constant(self, array: Array) -> str:
        name = f"constant_{next(self.count)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self.random.normal(0, 0.2, shape).astype(np.float32))

    def model(self, last: str) -> onnx.ModelProto:
        def described(name: str, shape: Any) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

        graph = helper.make_graph(
            self.nodes, "stack", [described("x", ["batch", 3, WIDTH])],
            [described(name, None) for name in (last, *self.outputs)], self.constants,
            value_info=self.declared)
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


@dataclass
class Layer:
    """What a layer does, as the variants change it."""

    scale: float = 0.5
    bias: Array | None = None
    inner: int = WIDTH
    order: tuple[int, ...] = (0, 2, 1)
    picked: tuple[int, ...] = (2, 1, 0)
    weight: str = ""
    gain: Array | None = None

    def add(self, n: Stack, x: str) -> str:
        normal = n("LayerNormalization", x, n.weight(WIDTH), n.weight(WIDTH))
        wide = n("MatMul", normal, self.weight or n.weight(WIDTH, self.inner))
        biased = n("Add", wide, n.weight(self.inner) if self.bias is None else self.bias)
        sizes = n("Gather", n("Shape", biased), np.array([0, 1]))
        parts = n("Concat", sizes, np.array([2, self.inner // 2]), axis=0)
        halves = n("Transpose", n("Reshape", biased, parts), perm=[0, 1, 3, 2])
        joined = n("Reshape", halves, n("Concat", sizes, np.array([self.inner]), axis=0))
        picked = n("Gather", joined, np.array(self.picked), axis=1)
        product = n("MatMul", n("Tanh", picked), n.weight(self.inner, WIDTH))
        if self.order != (0, 2, 1):
            product = n("Transpose", n("Transpose", product, perm=self.order), perm=self.order)
        scaled = n("Mul", product, np.array(self.scale, np.float32))
        if self.gain is not None:
            scaled = n("Mul", scaled, self.gain)
        return n("Add", x, scaled)


def stacked(n: Stack, change: Callable[[Stack, int, Layer], object] = lambda n, k, layer: None,
            between: Callable[[Stack, int, str, list[str]], str] = lambda n, k, x, all: x) -> str:
    """Layers behind each other. `change` gets each layer before it is added, `between` what each of
    them reads and the results so far."""
    results = [n("Relu", "x")]
    for k in range(LAYERS):
        layer = Layer()
        change(n, k, layer)
        results.append(layer.add(n, between(n, k, results[-1], results)))
    return results[-1]


# ---------------------------------------------------------------------- variants
def plain(n: Stack) -> str:
    return stacked(n)


def without_names(n: Stack) -> str:
    n.names = False
    return stacked(n)


def of_one_name(n: Stack) -> str:
    last = stacked(n)
    for node in n.nodes:
        node.name = "n"
    return last


def scaled(n: Stack) -> str:
    return stacked(n, lambda n, k, layer: setattr(layer, "scale", 0.0 if k == ODD else 0.5))


def without_bias(n: Stack) -> str:
    """A rule may remove an addition of zeros."""
    zeros = np.zeros(WIDTH, np.float32)
    return stacked(n, lambda n, k, layer: setattr(layer, "bias", zeros if k == ODD else None))


def all_without_bias(n: Stack) -> str:
    return stacked(n, lambda n, k, layer: setattr(layer, "bias", np.zeros(WIDTH, np.float32)))


def wider(n: Stack) -> str:
    return stacked(n, lambda n, k, layer: setattr(layer, "inner", WIDTH * (1 + (k == ODD))))


def ordered(n: Stack) -> str:
    """Integers are constants, not weights."""
    return stacked(n, lambda n, k, layer: setattr(
        layer, "picked", (0, 1, 2) if k == ODD else (2, 1, 0)))


def longer(n: Stack) -> str:
    return stacked(n, lambda n, k, layer: setattr(
        layer, "order", (0, 1, 2) if k == ODD else (0, 2, 1)))


def gained(n: Stack) -> str:
    """A few numbers become literals, by which rules may decide."""
    return stacked(n, lambda n, k, layer: setattr(
        layer, "gain", np.array([1 + k / 8], np.float32)))


def repeated_one(n: Stack) -> str:
    """One layer has a weight of the layer before it."""
    weight = n.weight(WIDTH, WIDTH)
    return stacked(n, lambda n, k, layer: setattr(
        layer, "weight", weight if k in (ODD, ODD - 1) else ""))


def equal_contents(n: Stack) -> str:
    """Two weights with other names, but the same contents."""
    array = np.arange(WIDTH * WIDTH, dtype=np.float32).reshape(WIDTH, WIDTH) / 999
    return stacked(n, lambda n, k, layer: setattr(
        layer, "weight", n.constant(array) if k in (ODD, ODD - 1) else ""))


def all_of_equal_contents(n: Stack) -> str:
    array = np.arange(WIDTH * WIDTH, dtype=np.float32).reshape(WIDTH, WIDTH) / 999
    return stacked(n, lambda n, k, layer: setattr(layer, "weight", n.constant(array)))


def all_share(n: Stack) -> str:
    weight = n.weight(WIDTH, WIDTH)
    return stacked(n, lambda n, k, layer: setattr(layer, "weight", weight))


def tied_head(n: Stack) -> str:
    weights = [n.weight(WIDTH, WIDTH) for _ in range(LAYERS)]
    last = stacked(n, lambda n, k, layer: setattr(layer, "weight", weights[k]))
    return n("MatMul", last, weights[ODD])


def tapped(n: Stack) -> str:
    def between(n: Stack, k: int, x: str, results: list[str]) -> str:
        n.outputs += [x] if k == ODD else []
        return x

    return stacked(n, between=between)


def skipping(n: Stack) -> str:
    return stacked(n, between=lambda n, k, x, all: n("Add", x, all[-3]) if k == ODD else x)


def all_skipping(n: Stack) -> str:
    return stacked(n, between=lambda n, k, x, all: n("Add", x, all[max(len(all) - 3, 0)]))


def growing(n: Stack) -> str:
    """Nodes are equal, but the types of what they compute are not."""
    return stacked(n, lambda n, k, layer: setattr(layer, "picked", (0,)),
                   lambda n, k, x, all: n("Concat", x, "x", axis=1))


def counting(n: Stack) -> str:
    """Nodes are equal, but each adds 1 to a number that the import knows."""
    counts = [n.constant(np.array([1]))]

    def between(n: Stack, k: int, x: str, results: list[str]) -> str:
        counts.append(n("Add", counts[-1], np.array([1])))
        return n("Mul", x, n("Cast", counts[-1], to=TensorProto.FLOAT))

    return stacked(n, between=between)


def branching(n: Stack) -> str:
    def branch(name: str, op: str, x: str) -> onnx.GraphProto:
        y = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(op, [x], [f"{name}_y"])], name, [], [y])

    def between(n: Stack, k: int, x: str, results: list[str]) -> str:
        return n("If", np.array(k % 2 == 0), then_branch=branch(f"then_{k}", "Neg", x),
                 else_branch=branch(f"else_{k}", "Tanh", x))

    return stacked(n, between=between)


VARIANTS: dict[Callable[[Stack], str], bool] = {
    plain: True, without_names: True, of_one_name: False, scaled: False, without_bias: False,
    all_without_bias: True, wider: False, ordered: False, longer: False, gained: False,
    repeated_one: False, equal_contents: True, all_of_equal_contents: False, all_share: True,
    tied_head: False, tapped: False, skipping: False, all_skipping: False, growing: False,
    counting: False, branching: False}
"""The variants, and whether a few of the layers stand for all."""


@pytest.fixture
def expanded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of nodes of models of which a few layers were imported."""
    found, original = list[int](), importer.expand

    def counted(*arguments: Any) -> Any:
        nodes = original(*arguments)
        found.append(len(nodes))
        return nodes

    monkeypatch.setattr(importer, "expand", counted)
    return found


def no_layers(*arguments: object) -> None:
    """Finds no equal layers."""


def lowered(model: onnx.ModelProto) -> Any:
    options = CompileOptions(target="cuda", features="sm_90", cache="off", tuned="off")
    return Compiler(model_of(model), options).lower("graph")


@pytest.mark.parametrize("make", VARIANTS, ids=lambda f: f.__name__)
def test_a_few_layers_stand_for_all(
    make: Callable[[Stack], str], expanded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    n = Stack()
    model = n.model(make(n))
    some = lowered(model)
    assert expanded == ([len(n.nodes)] if VARIANTS[make] else [])
    monkeypatch.setattr(importer, "find_layers", no_layers)
    every = lowered(model)
    assert some.text == every.text
    assert some.nodes == every.nodes
    assert some.context.provenance.gone == every.context.provenance.gone
    assert some.context.weights.arrays.keys() == every.context.weights.arrays.keys()


@pytest.mark.parametrize("make", [plain, all_without_bias, equal_contents, growing, counting],
                         ids=lambda f: f.__name__)
@pytest.mark.parametrize("batch", [1, 2])
def test_layers_compute_what_onnxruntime_computes(
    make: Callable[[Stack], str], batch: int
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    n = Stack()
    model = n.model(make(n))
    x = np.random.default_rng(1).normal(0, 1, (batch, 3, WIDTH)).astype(np.float32)
    found = compiler.compile(model, target="cpu", cache="off", threads=1).run([x])
    session = onnxruntime.InferenceSession(model.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    for a, b in zip(found, session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4 * max(1.0, float(np.abs(b).max())))


def unsupported(n: Stack) -> str:
    """No operator of this name exists."""
    return stacked(n, between=lambda n, k, x, all: n("Reshape", x, np.array([7, 7, -1, 0, 0])))


def declared_otherwise(n: Stack) -> str:
    last = stacked(n)
    result = next(node for node in n.nodes[len(n.nodes) * 2 // 3:] if node.op_type == "Tanh")
    n.declared.append(helper.make_tensor_value_info(result.output[0], TensorProto.DOUBLE, None))
    return last


@pytest.mark.parametrize("make", [unsupported, declared_otherwise], ids=lambda f: f.__name__)
def test_problems_are_those_of_all_layers(
    make: Callable[[Stack], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    n = Stack()
    data = n.model(make(n)).SerializeToString()
    told: list[str] = []
    for _ in range(2):
        with pytest.raises(StrataError) as caught:
            importer.import_bytes("model.onnx", data, ImportOptions(layers=True))
        told.append(str(caught.value))
        monkeypatch.setattr(importer, "find_layers", no_layers)
    assert told[0] == told[1]
