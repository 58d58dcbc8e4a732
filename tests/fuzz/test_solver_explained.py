"""What the fuzzer explains away: the known differences, and never a bug beside or after one.

Bugs are planted in the importer, where the code and the reference have them alike.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

pytest.importorskip("z3")
pytest.importorskip("onnxruntime")

from compiler.frontend import builder
from compiler.frontend.onnx.ops import elementwise, reduce
from compiler.frontend.onnx.ops.elementwise import AbsOp, AddOp
from dialects.graph.reduce import ReduceSumOp
from tests.fuzz.solver.draft import Array
from tests.fuzz.solver.explained import explanation_of
from tests.fuzz.solver.generate import Generated
from tests.fuzz.solver.judge import Finding, judge

Plant = Callable[[pytest.MonkeyPatch], None]
LEAST = np.iinfo(np.int64).min


def drawn(text: str, **feed: Array) -> Generated:
    header = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'
    proto = onnx.parser.parse_model(f"{header} g {text}")
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    return Generated(1, proto, [feed])


def neg_is_abs(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(elementwise._UNARY, "Neg", AbsOp)


def sub_is_add(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(elementwise._BINARY, "Sub", AddOp)


NOTHING = {"x": np.zeros((0, 3), np.float32), "w": np.ones((2, 3), np.float32)}
SMALL = {"x": np.array([-30, 1, 2, -40], np.float32), "w": np.array([3, -4, 5], np.int64)}
LARGE = {"x": np.array([[2**40, 2**40], [2, 3]], np.int64), "w": np.array([LEAST + 1, 7], np.int64)}
_SUM = "(float[n, 3] x, float[2, 3] w) => ({}) <int64[1] a = {{-1}}> {{ " \
       "r = ReduceSum<keepdims = 0>(x, a) {} }}"
_COUNT = "(float[4] x, int64[3] w) => ({}) {{ s = Sigmoid(x) i = NonZero(s) {} }}"
_PRODUCT = "(int64[2, 2] x, int64[2] w) => ({}) <int64[2] o = {{1, 1}}> {{ " \
           "p = ReduceProd<axes = [1], keepdims = 0>(x) {} }}"
_QUANTIZED = "(uint8[7] w) => ({}) <uint8[7] x = {{1, 2, 3, 4, 5, 6, 9}}, " \
             "float s = {{0.125}}, float t = {{0.5}}, uint8 z = {{3}}> {{ " \
             "q = com.microsoft.QLinearMul(x, s, z, x, t, z, s, z) {} }}"
_ADDED = "(uint8[4] w) => ({}) <uint8[4] x = {{1, 2, 3, 6}}, float s = {{0.125}}, " \
         "float t = {{0.5}}, uint8 z = {{3}}, uint8 o = {{0}}> {{ " \
         "q = com.microsoft.QLinearAdd(x, s, o, x, s, o, t, z) {} }}"
_STATES = "(float[3, 2, 1] x) => ({}) <float[2, 4, 1] i = {{30, 1, 1, 1, 1, 1, 1, 1}}, " \
          "float[2, 4, 1] r = {{0, 0, 0, 0, 0, 0, 0, 0}}> {{ h, last = LSTM<hidden_size = 1, " \
          "direction = \"bidirectional\">(x, i, r) b = Cast<to = 9>(last) {} }}"
_HALVES = "(float[3] x) => ({}) <float[3] c = {{1.001, -2.003, 3.007}}> {{ " \
          "h = Cast<to = 16>(c) n = Neg(h) y = Cast<to = 1>(n) {} }}"
_DISTANCE = "(float[5, 7] x) => ({}) {{ d = com.microsoft.CDist<metric = \"euclidean\">(x, x) {} }}"
_ACROSS = "(float[1, 5, 4, 1] x) => ({}) {{ r = LRN<alpha = 0.125, bias = 1.5, size = 3>(x) {} }}"
BYTES = {"w": np.array([1, 2, 3, 4, 5, 6, 9], np.uint8)}
FAR = {"x": np.random.default_rng(0).normal(3, 1, (5, 7)).astype(np.float32)}
FEW = {"w": np.array([1, 2, 3, 6], np.uint8)}
CLOSED = {"x": np.array([-0.75, 1, -0.75, -1, -0.75, 0.5], np.float32).reshape(3, 2, 1)}
THREE = {"x": np.array([1, 2, 3], np.float32)}
LEAVES = {"x": np.array([300, 0.03, 3.5, 2, 1], np.float32).reshape(1, 5, 1, 1).repeat(4, 2)}
ALONE = {
    "ties with a zero point": drawn(_QUANTIZED.format("uint8[7] y", "y = Sub(q, w)"), **BYTES),
    "ties of sums": drawn(_ADDED.format("uint8[4] y", "y = Sub(q, w)"), **FEW),
    "constants in halves": drawn(_HALVES.format("float[3] y", ""), **THREE),
    "states that are not 0": drawn(_STATES.format("bool[] b", ""), **CLOSED),
    "and what is made of them": drawn(_STATES.format(
        "float[] y", "f = Cast<to = 1>(b) y = Neg(f)"), **CLOSED),
    "distances": drawn(_DISTANCE.format("float[5, 5] d", ""), **FAR),
    "and their negatives": drawn(_DISTANCE.format("float[5, 5] y", "y = Neg(d)"), **FAR),
    "a channel that leaves": drawn(_ACROSS.format("float[1, 5, 4, 1] r", ""), **LEAVES),
    "and what it leaves": drawn(_ACROSS.format("float[1, 5, 4, 1] y", "y = Neg(r)"), **LEAVES),
    "reduction of nothing": drawn(_SUM.format("float[] r", ""), **NOTHING),
    "along several dims": drawn(_SUM.replace("[1] a = {{-1}}", "[2] a = {{0, -1}}").format(
        "float[] r", ""), **NOTHING),
    "and what follows": drawn(_SUM.format(
        "float[] y", "s = Shape(r) c = Cast<to = 1>(s) y = Neg(c)"), **NOTHING),
    "numbers that are not 0": drawn(_COUNT.format("int64[] i", ""), **SMALL),
    "and their places": drawn(_COUNT.format("int64[] y", "y = Neg(i)"), **SMALL),
    "products out of range": drawn(_PRODUCT.format("int64[] p", ""), **LARGE),
    "and their sums": drawn(_PRODUCT.format("int64[] y", "y = Sub(p, o)"), **LARGE),
}


@pytest.mark.parametrize("name", ALONE)
def test_known_differences_are_explained(name: str) -> None:
    found = judge(ALONE[name])
    assert found.kind == "peer"
    assert explanation_of(ALONE[name], found)


@pytest.mark.parametrize("name, plant", [
    ("and what follows", neg_is_abs), ("and their places", neg_is_abs),
    ("and their sums", sub_is_add), ("ties with a zero point", sub_is_add),
    ("and their negatives", neg_is_abs), ("and what it leaves", neg_is_abs),
    ("ties of sums", sub_is_add), ("and what is made of them", neg_is_abs),
    ("constants in halves", neg_is_abs)])
def test_bugs_after_a_known_difference_are_found(
    name: str, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = judge(ALONE[name])
    assert found.kind == "peer" and not explanation_of(ALONE[name], found)


BESIDE = {
    "another shape": (drawn(_SUM.format(
        "float[] y, float[] r", "i = Cast<to = 7>(w) n = Neg(i) c = Cast<to = 9>(n) "
        "d = Add(n, i) z = NonZero(d) y = Cast<to = 1>(z)"), **NOTHING), neg_is_abs),
    "other integers": (drawn(_COUNT.format("int64[] y, int64[] i", "y = Neg(w)"), **SMALL),
                       neg_is_abs),
    "the least integer": (drawn(_PRODUCT.format("int64[] y, int64[] p", "y = Sub(w, o)"),
                                **LARGE), sub_is_add),
}


@pytest.mark.parametrize("name", BESIDE)
def test_bugs_beside_a_known_difference_are_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, plant = BESIDE[name]
    plant(monkeypatch)
    found = judge(model)
    assert found.kind == "peer" and not explanation_of(model, found)


def test_bugs_of_the_operator_itself_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum in the place of a product, one of whose elements leaves the range."""
    monkeypatch.setitem(reduce._PLAIN, "ReduceProd", ReduceSumOp)
    found = judge(ALONE["products out of range"])
    assert found.kind == "peer"
    assert not explanation_of(ALONE["products out of range"], found)


def test_bugs_of_folding_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are gone where the constants are inputs, but so are the results."""
    compute = builder._compute
    monkeypatch.setattr(builder, "_compute", lambda op, numbers: (
        compute(op, numbers) * 2 if op.name == "graph.neg" else compute(op, numbers)))
    found = judge(ALONE["constants in halves"])
    assert found.kind == "peer" and not explanation_of(ALONE["constants in halves"], found)


# ---------------------------------------------------------------------- memory
_TERMS = "(int8[3, {0}] a, uint8[{0}, 2] b) => (int32[3, 2] y) <uint8 z = {{3}}, " \
         "int8 k = {{1}}, int32 o = {{1}}> {{ p = MatMulInteger(a, b, k, z) y = Sub(p, o) }}"


def _terms(count: int) -> Generated:
    return drawn(_TERMS.format(count), a=np.ones((3, count), np.int8),
                 b=np.ones((count, 2), np.uint8))


def test_products_without_terms_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """What onnxruntime leaves in memory, perhaps even the right numbers, is not known here."""
    found = Finding("peer", "output y int32[3, 2] at [0, 0]: 848, not -1")
    assert explanation_of(_terms(0), found)
    assert not explanation_of(_terms(1), found)
    sub_is_add(monkeypatch)
    assert not explanation_of(_terms(0), found)


@pytest.mark.parametrize("kind, text, known", [
    ("refused", "x: do not broadcast: 0 and n0", True),
    ("refused", "x: do not broadcast: 0 and 3", False),
    ("wrong", "x: do not broadcast: 0 and n0", False),
    ("refused", "at a run: sizes do not fit here: it needs n == m, which is 1 == 4", True),
    ("refused", "at a run: sizes do not fit here: it needs n == m, which is 2 == 4", False),
    ("refused", "at a run: sizes do not fit here: it needs n == m, which is 12 == 13", False)])
def test_refusals(kind: str, text: str, known: bool) -> None:
    assert bool(explanation_of(ALONE["products out of range"], Finding(kind, text))) == known
