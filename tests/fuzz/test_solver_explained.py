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
_DISTANCE = "(float[5, 7] x) => ({}) {{ d = com.microsoft.CDist<metric = \"euclidean\">(x, x) {} }}"
_ACROSS = "(float[1, 5, 4, 1] x) => ({}) {{ r = LRN<alpha = 0.125, bias = 1.5, size = 3>(x) {} }}"
BYTES = {"w": np.array([1, 2, 3, 4, 5, 6, 9], np.uint8)}
FAR = {"x": np.random.default_rng(0).normal(3, 1, (5, 7)).astype(np.float32)}
LEAVES = {"x": np.array([300, 0.03, 3.5, 2, 1], np.float32).reshape(1, 5, 1, 1).repeat(4, 2)}
ALONE = {
    "ties with a zero point": drawn(_QUANTIZED.format("uint8[7] y", "y = Sub(q, w)"), **BYTES),
    "distances": drawn(_DISTANCE.format("float[5, 5] d", ""), **FAR),
    "and their negatives": drawn(_DISTANCE.format("float[5, 5] y", "y = Neg(d)"), **FAR),
    "a channel that leaves": drawn(_ACROSS.format("float[1, 5, 4, 1] r", ""), **LEAVES),
    "and what it leaves": drawn(_ACROSS.format("float[1, 5, 4, 1] y", "y = Neg(r)"), **LEAVES),
    "reduction of nothing": drawn(_SUM.format("float[] r", ""), **NOTHING),
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
    ("and their negatives", neg_is_abs), ("and what it leaves", neg_is_abs)])
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


@pytest.mark.parametrize("kind, text, known", [
    ("refused", "x: do not broadcast: 0 and n0", True),
    ("refused", "x: do not broadcast: 0 and 3", False),
    ("wrong", "x: do not broadcast: 0 and n0", False),
    ("refused", "at a run: sizes do not fit here: it needs n == m, which is 1 == 4", True),
    ("refused", "at a run: sizes do not fit here: it needs n == m, which is 2 == 4", False),
    ("refused", "at a run: sizes do not fit here: it needs n == m, which is 12 == 13", False)])
def test_refusals(kind: str, text: str, known: bool) -> None:
    assert bool(explanation_of(ALONE["products out of range"], Finding(kind, text))) == known
