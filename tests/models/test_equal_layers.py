"""Models whose layers are equal but for one thing: shared or not, they compute what they should.

Each variant changes something that a rule may look at: a scale, a bias, the number of heads, a
type, a mask, a weight that several layers or operators read. The expected numbers are those of the
model as it was imported, which the interpreter executes. What the passes of the graph level do for
many equal layers is counted, not timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.frontend import MemoryModel
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from passes.rewriting import _Driver as Driver  # pyright: ignore[reportPrivateUsage]
from targets.reference.interpret import interpret
from tests.models.onnx_graph import OnnxGraph

WIDTH, ROWS = 20, 6
PASSES = "default,graph-call-layers{least=6 calls=2},graph-share-layers{least=6}"


@dataclass
class Layers:
    """A model in the making. `last`: whether the current layer is the last one, which differs."""

    g: OnnxGraph = field(default_factory=lambda: OnnxGraph({}))
    number: int = 0
    last: bool = False
    kept: dict[str, str] = field(default_factory=dict[str, str])

    def once(self, name: str, make: Callable[[], str]) -> str:
        """A value that all layers share."""
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]

    def weight(self, *shape: int) -> str:
        return self.g.random_weight(*shape)

    def full(self, value: float) -> str:
        return self.g.constant(np.full(WIDTH, value))


Inner = Callable[[Layers, str], str]


def product(m: Layers, x: str) -> str:
    return m.g.node("MatMul", x, m.weight(WIDTH, WIDTH))


def scaled(m: Layers, x: str) -> str:
    """A factor that is a number: one in all layers but the last, where it is zero."""
    return m.g.node("Mul", product(m, x), m.g.constant(0.0 if m.last else 1.0))


def divided(m: Layers, x: str) -> str:
    """Divisors with several elements: powers of two but in the last layer."""
    return m.g.node("Div", product(m, x), m.g.constant(
        np.full(WIDTH, 3.0) if m.last else np.exp2(np.arange(WIDTH) % 5)))


def zero_bias(m: Layers, x: str) -> str:
    """A bias of zeros but in the last layer."""
    return m.g.node("Add", product(m, x), m.weight(WIDTH) if m.last else m.full(0.0))


def all_zero_bias(m: Layers, x: str) -> str:
    return m.g.node("Add", product(m, x), m.full(-0.0))


def signed_zeros(m: Layers, x: str) -> str:
    """Zeros to which something is added: 0.0 but in the last layer, where it is -0.0."""
    return m.g.node("Add", product(m, x), m.full(-0.0 if m.last else 0.0))


def all_ones(m: Layers, x: str) -> str:
    return m.g.node("Mul", product(m, x), m.full(1.0))


def one_of_ones(m: Layers, x: str) -> str:
    return m.g.node("Mul", product(m, x), m.full(1.0) if m.last else m.weight(WIDTH))


def not_finite(m: Layers, x: str) -> str:
    return m.g.node("Min", product(m, x), m.g.constant(
        np.where(np.arange(WIDTH) == m.number, np.nan, np.inf)))


def heads(m: Layers, x: str) -> str:
    """The shape of a reshape: another number of heads in the last layer."""
    count = 2 if m.last else 4
    parts = m.g.node("Reshape", product(m, x), m.g.integers(0, 0, count, WIDTH // count))
    turned = m.g.node("Transpose", parts, perm=[0, 2, 1, 3])
    mixed = m.g.node("Softmax", m.g.node("MatMul", turned, m.g.node(
        "Transpose", turned, perm=[0, 1, 3, 2])), axis=-1)
    back = m.g.node("Transpose", m.g.node("MatMul", mixed, turned), perm=[0, 2, 1, 3])
    return product(m, m.g.node("Reshape", back, m.g.integers(0, 0, WIDTH)))


def types(m: Layers, x: str) -> str:
    """The type of a product: half precision in the last layer."""
    if not m.last:
        return product(m, x)
    narrow = m.g.node("Cast", x, to=10)
    weight = m.g.constant(m.g.random.standard_normal((WIDTH, WIDTH)) / 5, np.float16)
    return m.g.node("Cast", m.g.node("MatMul", narrow, weight), to=1)


def masks(m: Layers, x: str) -> str:
    """A mask that each layer computes from an input; the last layer has none."""
    scores = m.g.node("MatMul", product(m, x), m.g.node("Transpose", x, perm=[0, 2, 1]))
    if not m.last:
        inverse = m.g.node("Sub", m.g.constant(1.0), "seen")
        masked = m.g.node("Mul", m.g.node("Unsqueeze", inverse, m.g.integers(1)),
                          m.g.constant(-1e9))
        scores = m.g.node("Add", scores, masked)
    return m.g.node("MatMul", m.g.node("Softmax", scores, axis=-1), product(m, x))


def tied(m: Layers, x: str) -> str:
    """One weight for all layers."""
    return m.g.node("MatMul", x, m.once("w", lambda: m.weight(WIDTH, WIDTH)))


def in_turns(m: Layers, x: str) -> str:
    """Two weights in turns."""
    return m.g.node("MatMul", x, m.once(f"w{m.number % 2}", lambda: m.weight(WIDTH, WIDTH)))


def twice(m: Layers, x: str) -> str:
    """A weight that a layer reads twice, once transposed."""
    weight = m.weight(WIDTH, WIDTH)
    inner = m.g.node("Tanh", m.g.node("MatMul", x, weight))
    return m.g.node("MatMul", inner, m.g.node("Transpose", weight, perm=[1, 0]))


def computed(m: Layers, x: str) -> str:
    """A weight that is computed from others: a scale, a table that all share, a slice."""
    table = m.once("t", lambda: m.weight(WIDTH + 3, WIDTH))
    rows = m.g.node("Slice", table, m.g.integers(m.number % 2), m.g.integers(WIDTH + m.number % 2))
    return m.g.node("MatMul", x, m.g.node("Mul", m.g.node("Mul", m.weight(WIDTH, WIDTH), rows),
                                          m.g.constant(2.0)))


def common(m: Layers, x: str) -> str:
    """What all layers compute from the input of the model and a weight."""
    inner = m.g.node("Tanh", m.g.node("MatMul", "x", m.once("w", lambda: m.weight(WIDTH, WIDTH))))
    return m.g.node("Add", product(m, x), inner)


def norm_of_ones(m: Layers, x: str) -> str:
    """A norm as it is before training: equal arrays, of which each layer has its own."""
    return product(m, m.g.node("LayerNormalization", x, m.full(1.0), m.full(0.0)))


def places(m: Layers, x: str) -> str:
    """A table of integers that all layers have equal copies of, as a relative bias has."""
    rows = m.g.constant(np.arange(WIDTH * 2) % 7, np.int64)
    bias = m.g.node("Slice", m.g.node("Gather", m.weight(7), rows), m.g.integers(3),
                    m.g.integers(WIDTH + 3))
    return m.g.node("Add", product(m, x), bias)


def turned(m: Layers, x: str) -> str:
    """Layers that begin and end with a transposition, which cancel each other."""
    back = m.g.node("Transpose", x, perm=[0, 2, 1])
    mixed = m.g.node("MatMul", m.g.node("Tanh", back), m.weight(ROWS, ROWS))
    return m.g.node("Transpose", m.g.node("Relu", mixed), perm=[0, 2, 1])


VARIANTS: list[Inner] = [
    product, scaled, divided, zero_bias, all_zero_bias, signed_zeros, all_ones, one_of_ones,
    not_finite, heads, types, masks, tied, in_turns, twice, computed, common, norm_of_ones, places,
    turned]


def model(inner: Inner, count: int, *, residual: bool = True, extra: bool = False) -> MemoryModel:
    """Layers behind each other. `extra`: the model also returns what each layer computes."""
    m = Layers()
    value = m.g.input("x", np.float32, ["batch", ROWS, WIDTH])
    m.g.input("seen", np.float32, ["batch", ROWS])
    outputs: dict[str, str] = {}
    for m.number in range(count):
        m.last = m.number == count - 1
        norm = m.g.node("LayerNormalization", value, m.weight(WIDTH), m.weight(WIDTH))
        made = m.g.node("Tanh", inner(m, norm))
        value = m.g.node("Add", value, made) if residual else made
        outputs[f"y{m.number}"] = value
    last = f"y{count - 1}"
    chosen = outputs if extra else {last: outputs[last]}
    return MemoryModel(f"{inner.__name__}.onnx", m.g.model(chosen).SerializeToString())


def options(target: str, passes: str = PASSES) -> CompileOptions:
    features = {"cpu": "avx512", "cuda": "sm_90"}[target]
    return CompileOptions(target=target, features=features, passes=passes, cache="off",
                          tuned="off", threads=1)


def arrays() -> list[Any]:
    x = np.random.default_rng(5).standard_normal((2, ROWS, WIDTH)).astype(np.float32)
    return [x, np.array([[1, 1, 1, 1, 0, 0], [1, 0, 1, 0, 1, 1]], np.float32)]


def expected(given: MemoryModel) -> list[Any]:
    state = Compiler(given, options("cpu")).read()
    return interpret(state.module, state.context.weights, arrays())


def same(found: list[Any], wanted: list[Any]) -> None:
    for array, reference in zip(found, wanted, strict=True):
        np.testing.assert_allclose(array, reference, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(("count", "residual", "target"), [
    (2, True, "cpu"), (3, True, "cuda"), (12, True, "cuda"), (12, False, "cpu")])
@pytest.mark.parametrize("inner", VARIANTS, ids=lambda f: f.__name__)
def test_layers_that_differ_compute_what_they_should(
    inner: Inner, count: int, residual: bool, target: str
) -> None:
    given = model(inner, count, residual=residual, extra=count == 3)
    state = Compiler(given, options(target)).lower("graph")
    same(interpret(state.module, state.context.weights, arrays()), expected(given))


@pytest.mark.parametrize("inner", VARIANTS, ids=lambda f: f.__name__)
def test_code_of_layers_that_differ(inner: Inner) -> None:
    given = model(inner, 4)
    exe = compiler.compile(given, passes=PASSES, cache="off", tuned="off", threads=1)
    same(exe.run(arrays()), expected(given))


# ---------------------------------------------------------------------- counts instead of times
def looks(count: int, inner: Inner, target: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many operations rules look at while a model of so many layers is lowered."""
    seen = 0
    rules_of = Driver.rules_of

    def counted(self: Driver, class_: Any) -> Any:
        nonlocal seen
        seen += 1
        return rules_of(self, class_)

    given = model(inner, count)
    with monkeypatch.context() as patch:
        patch.setattr(Driver, "rules_of", counted)
        Compiler(given, options(target, "default")).lower("loop")
    return seen


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("inner", [heads, masks, twice, norm_of_ones, places],
                         ids=lambda f: f.__name__)
def test_passes_see_one_of_many_layers(
    inner: Inner, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A further layer is a call, at which each set of rules looks once."""
    few, many = (looks(count, inner, target, monkeypatch) for count in (12, 48))
    assert few / 12 > 20 > (many - few) / 36
