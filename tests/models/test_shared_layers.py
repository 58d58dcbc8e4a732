"""Models of equal layers: what they compile to is the same, whether layers are shared or not.

Each block is a kind of layer; a model has several of them behind each other. Beside the text of
the whole host level, with all names of kernels counted, the names of the model's nodes and the
numbers are compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain, count
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.frontend import MemoryModel
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.state import State
from compiler.tuning.options import TuneOptions
from compiler.tuning.subject import Subject
from dialects.loop import KernelOp
from dialects.text.syntax import location_names
from passes.rewrites.calls import called
from targets.reference.interpret import interpret
from tests.models.onnx_graph import OnnxGraph

WIDTH, HEADS, LAYERS = 64, 4, 4
SHARED = "default,graph-call-layers{least=6 calls=2},graph-share-layers{least=6}"
UNSHARED = "default,without(graph-call-layers),without(graph-share-layers)"
Block = Callable[[OnnxGraph, str], str]


# ---------------------------------------------------------------------- parts of layers
def _linear(g: OnnxGraph, x: str, inner: int, outer: int, bias: bool = True) -> str:
    value = g.node("MatMul", x, g.random_weight(inner, outer))
    return g.node("Add", value, g.random_weight(outer)) if bias else value


def _layer_norm(g: OnnxGraph, x: str) -> str:
    return g.node("LayerNormalization", x, g.random_weight(WIDTH), g.random_weight(WIDTH))


def _rms_norm(g: OnnxGraph, x: str) -> str:
    squares = g.node("ReduceMean", g.node("Mul", x, x), axes=[-1])
    size = g.node("Sqrt", g.node("Add", squares, g.constant(1e-5)))
    return g.node("Mul", g.node("Div", x, size), g.random_weight(WIDTH))


def _heads(g: OnnxGraph, x: str) -> str:
    shape = g.integers(0, 0, HEADS, WIDTH // HEADS)
    return g.node("Transpose", g.node("Reshape", x, shape), perm=[0, 2, 1, 3])


def _attend(g: OnnxGraph, x: str, memory: str, mask: str = "") -> str:
    q, k, v = (_heads(g, _linear(g, value, WIDTH, WIDTH)) for value in (x, memory, memory))
    scores = g.node("MatMul", q, g.node("Transpose", k, perm=[0, 1, 3, 2]))
    scores = g.node("Div", scores, g.constant((WIDTH // HEADS) ** 0.5))
    scores = g.node("Add", scores, mask) if mask else scores
    mixed = g.node("MatMul", g.node("Softmax", scores, axis=-1), v)
    joined = g.node("Reshape", g.node("Transpose", mixed, perm=[0, 2, 1, 3]),
                    g.integers(0, 0, WIDTH))
    return _linear(g, joined, WIDTH, WIDTH)


def _perceptron(g: OnnxGraph, x: str, activation: str = "Relu") -> str:
    return _linear(g, g.node(activation, _linear(g, x, WIDTH, 96)), 96, WIDTH)


# ---------------------------------------------------------------------- layers
def before(g: OnnxGraph, x: str) -> str:
    """A transformer's layer with normalizations before its parts."""
    normal = _layer_norm(g, x)
    x = g.node("Add", x, _attend(g, normal, normal))
    return g.node("Add", x, _perceptron(g, _layer_norm(g, x)))


def after(g: OnnxGraph, x: str) -> str:
    """A transformer's layer with normalizations after its parts, as in BERT, and a mask."""
    x = _layer_norm(g, g.node("Add", x, _attend(g, x, x, "mask")))
    return _layer_norm(g, g.node("Add", x, _perceptron(g, x, "Tanh")))


def llama(g: OnnxGraph, x: str) -> str:
    """Root mean squares, products without biases, a gated perceptron."""
    normal = _rms_norm(g, x)
    x = g.node("Add", x, _attend(g, normal, normal))
    normal = _rms_norm(g, x)
    gate = _linear(g, normal, WIDTH, 96, bias=False)
    gate = g.node("Mul", gate, g.node("Sigmoid", gate))
    both = g.node("Mul", gate, _linear(g, normal, WIDTH, 96, bias=False))
    return g.node("Add", x, _linear(g, both, 96, WIDTH, bias=False))


def decoder(g: OnnxGraph, x: str) -> str:
    """A layer that also attends to the results of an encoder."""
    x = _layer_norm(g, g.node("Add", x, _attend(g, x, x, "mask")))
    x = _layer_norm(g, g.node("Add", x, _attend(g, x, "memory")))
    return _layer_norm(g, g.node("Add", x, _perceptron(g, x)))


def parallel(g: OnnxGraph, x: str) -> str:
    """Attention and perceptron beside each other, on one normalization."""
    normal = _layer_norm(g, x)
    both = g.node("Add", _attend(g, normal, normal), _perceptron(g, normal))
    return g.node("Add", x, both)


def gates(g: OnnxGraph, x: str) -> str:
    """A highway layer: no reduction, products whose results meet elementwise."""
    inner = g.node("Tanh", _linear(g, x, WIDTH, WIDTH))
    gate = g.node("Sigmoid", _linear(g, x, WIDTH, WIDTH))
    kept = g.node("Mul", x, g.node("Sub", g.constant(1.0), gate))
    return g.node("Add", g.node("Mul", inner, gate), kept)


def perceptron(g: OnnxGraph, x: str) -> str:
    """Products and activations only."""
    hidden = _linear(g, x, WIDTH, WIDTH)
    return g.node("Mul", hidden, g.node("Sigmoid", hidden))


def mixer(g: OnnxGraph, x: str) -> str:
    """Products along both dims, with transpositions between."""
    turned = g.node("Transpose", _layer_norm(g, x), perm=[0, 2, 1])
    mixed = _linear(g, g.node("Relu", _linear(g, turned, 8, 24)), 24, 8)
    x = g.node("Add", x, g.node("Transpose", mixed, perm=[0, 2, 1]))
    return g.node("Add", x, _perceptron(g, _layer_norm(g, x)))


def separate(g: OnnxGraph, x: str) -> str:
    """A layer whose scale is a number, another one in each."""
    scale = g.constant(1 + 0.125 * len(g.nodes))
    return g.node("Mul", before(g, x), scale)


def exponentials(g: OnnxGraph, x: str) -> str:
    """Elementwise operators only, which are one kernel however many they are."""
    for _ in range(5):
        x = g.node("Tanh", g.node("Mul", x, g.random_weight(WIDTH)))
    return x


BLOCKS: dict[Block, bool] = {
    before: True, after: True, llama: True, decoder: True, parallel: True, gates: True,
    perceptron: True, mixer: True, separate: True, exponentials: False}
"""Kinds of layers, and whether they are shared."""


def model(block: Block, given: bool = False) -> MemoryModel:
    """A few layers behind an elementwise operator, and a last product. `given`: the mask is an
    input, else it is computed."""
    g = OnnxGraph({})
    x = g.input("x", np.float32, ["batch", 8, WIDTH])
    g.input("seen", np.float32, ["batch", 8])
    g.input("memory", np.float32, ["batch", 8, WIDTH])
    value = g.node("Add", g.node("Mul", x, g.constant(0.5)), "memory")
    g.nodes[-1].output[0] = "value"
    mask = g.node("Reshape", "seen", g.integers(0, 1, 1, 8))
    if not given:
        g.node("Mul", g.node("Sub", g.constant(1.0), mask), g.constant(-1e9))
    g.nodes[-1].output[0] = "mask"
    value = "value"
    for _ in range(LAYERS):
        value = block(g, value)
    y = _linear(g, value, WIDTH, 24)
    return MemoryModel(f"{block.__name__}.onnx", g.model({"y": y}).SerializeToString())


def lowered(given: MemoryModel, passes: str, to: str | None = "host", **options: str) -> State:
    settings = {"target": "cpu", "features": "avx512", **options}
    return Compiler(given, CompileOptions(passes=passes, cache="off", tuned="off", threads=1,
                                          **settings)).lower(to)


def normalized(state: State) -> list[str]:
    """The lines of a module but for constants and views, which are free. Kernels are numbered in
    the order of their use; values have no names, and operations no nodes."""
    numbers, known = count(), dict[str, str]()

    def numbered(match: re.Match[str]) -> str:
        return known.setdefault(match[0], f"@k{next(numbers)}")

    text = re.sub(r" loc\([^)]*\)", "", state.text)
    functions = re.split(r"\n(?=  \w+\.\w+ @)", re.sub(r"%[\w.]+", "%", text))
    main = re.sub(r"@[\w.]+", numbered, "\n".join(f for f in functions if "host.func" in f))
    kernels = [re.sub(r"@[\w.]+", numbered, f) for f in functions if ".kernel" in f]
    kernels = [k.partition("\n  }")[0] for k in kernels]
    steps = [x for x in main.splitlines() if not re.search(r"host\.(constant|view)", x)]
    return [*steps, *sorted(kernels)]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: b.__name__)
def test_shared_layers_become_the_same_launches(block: Block, target: str) -> None:
    """What all layers read and a target would compute again in each of them, as the CUDA target
    does with a mask, is computed once if they are shared. Numbers that differ are inputs then, but
    not those of a first layer that is apart, whose kernel is another one."""
    given = model(block, given=target == "cuda")
    options = {"target": target, "features": "avx512" if target == "cpu" else "sm_90"}
    is_shared = "strata.call" in lowered(given, SHARED, "graph", **options).text
    assert is_shared == BLOCKS[block]
    texts = [normalized(lowered(given, passes, **options)) for passes in (SHARED, UNSHARED)]
    if block is separate:
        texts = [[str(sum("host.launch" in line for line in text))] for text in texts]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("block", [b for b, shared in BLOCKS.items() if shared],
                         ids=lambda b: b.__name__)
def test_kernels_stand_for_the_nodes_of_all_layers(block: Block, target: str) -> None:
    """Of the nodes of layers, what is inside a kernel names the same ones, shared or not."""
    options = {"target": target, "features": "avx512" if target == "cpu" else "sm_90"}
    given = model(block, given=True)
    graph = lowered(given, SHARED, "graph", **options).module
    layers = {name for calls in called(graph).values() for c in calls for name in c.node_names
              if not name.startswith("weight")}  # which nests that read them need not name

    def named(passes: str) -> list[list[str]]:
        module = lowered(given, passes, **options).module
        kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
        return sorted(sorted(layers & {n for op in kernel.walk() if op is not kernel
                                       for n in location_names(op)}) for kernel in kernels)

    assert len(layers) > LAYERS
    if block is separate:  # scales that layers do not share are not folded into their kernels
        assert set(chain(*named(SHARED))) == set(chain(*named(UNSHARED)))
    else:
        assert named(SHARED) == named(UNSHARED)


def test_the_tuner_counts_the_launches_of_all_layers() -> None:
    def launches(passes: str) -> list[int]:
        options = CompileOptions(target="cpu", features="avx512", passes=passes, cache="off",
                                 tuned="off", threads=1)
        tasks = Subject(model(before), options).tasks(TuneOptions(sizes={"batch": 2}))
        return sorted(task.launches for task in tasks)

    assert launches(SHARED) == launches(UNSHARED)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: b.__name__)
def test_each_call_has_its_own_weights(block: Block) -> None:
    """At every level at which layers are shared, and in the code."""
    runtime: Any = pytest.importorskip("onnxruntime")
    random, given = np.random.default_rng(3), model(block)
    x, memory = random.standard_normal((2, 2, 8, WIDTH)).astype(np.float32)
    inputs = [x, np.repeat(np.float32([[1, 0]]), [5, 3], 1).repeat(2, 0), memory]
    session = runtime.InferenceSession(given.data, providers=["CPUExecutionProvider"])
    [expected] = session.run(None, dict(zip(("x", "seen", "memory"), inputs, strict=True)))
    found = {level: interpret(state.module, state.context.weights, inputs)[0] for level, state in (
        ("graph", lowered(given, SHARED, "graph")),
        ("loop", lowered(given, f"{SHARED},without(loop-inline-layers)", "loop")),
        ("host", lowered(given, SHARED)))}
    exe = compiler.compile(given, passes=SHARED, cache="off", threads=1)
    found["code"] = exe.run(inputs)[0]
    for level, array in found.items():
        np.testing.assert_allclose(array, expected, atol=3e-5 * np.abs(expected).max(),
                                   err_msg=level)
