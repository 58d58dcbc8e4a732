"""The fuzzer's tolerance: what rounding explains is granted, and a planted bug is not."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import onnx
import pytest

pytest.importorskip("z3")

from compiler.frontend import ImportOptions, MemoryModel, load_model
from targets.reference.interpret import interpret
from tests.fuzz.solver import precise
from tests.fuzz.solver.draft import F16, Array
from tests.fuzz.solver.judge import Rule, differs
from tests.fuzz.solver.precise import Allowance
from tests.fuzz.solver.rounding import is_rounded

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '


def allowance(text: str, *inputs: Array) -> Allowance:
    proto = onnx.parser.parse_model(HEAD + text)
    model = load_model(MemoryModel("m.onnx", proto.SerializeToString()), ImportOptions())
    native = interpret(model.module, model.weights, inputs)
    return Allowance.of(model.module, model.weights, inputs, native)


def granted(found: Allowance, *actual: Array) -> bool:
    names: Sequence[str] = [str(k) for k in range(len(actual))]
    return not differs(actual, found.native, found, names, Rule())


def changed(array: Array, place: tuple[int, ...], by: float) -> Array:
    result = array.copy()
    result[place] += result.dtype.type(by)
    return result


# ---------------------------------------------------------------------- LSTM
STEPS, HIDDEN = 9, 8


def lstm(order: int = 1) -> tuple[str, list[Array]]:
    """One whose weights enlarge what a step rounds. `order`: of the features, 1 or -1."""
    random = np.random.default_rng(5)
    x, w, r = (random.normal(0, s, shape).astype(np.float32) for s, shape in (
        (1, (STEPS, 1, 64)), (1, (1, 4 * HIDDEN, 64)), (4, (1, 4 * HIDDEN, HIDDEN))))
    return (f"(float[{STEPS}, 1, 64] x, float[1, {4 * HIDDEN}, 64] w, "
            f"float[1, {4 * HIDDEN}, {HIDDEN}] r) => (float[{STEPS}, 1, 1, {HIDDEN}] y) "
            f"{{ y = LSTM<hidden_size = {HIDDEN}>(x, w, r) }}"), [
        x[..., ::order].copy(), w[..., ::order].copy(), r]


def test_what_steps_of_an_lstm_enlarge_is_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums in another order: the same function with other roundings."""
    text, inputs = lstm()
    [other] = allowance(*[lstm(-1)[0]], *lstm(-1)[1]).native
    found = allowance(text, *inputs)
    assert not np.array_equal(other, found.native[0])
    assert granted(found, found.native[0]) and granted(found, other)
    by_steps = found.slack[0].copy()
    monkeypatch.setattr(precise, "IN_STEPS", ())
    whole = allowance(text, *inputs)
    whole.widen(found.trials)
    assert by_steps[-1].max() > 2 * whole.slack[0][-1].max()


@pytest.mark.parametrize("by", [1e-3, -1e-3, 0.1])
def test_another_state_of_an_lstm_is_not(by: float) -> None:
    text, inputs = lstm()
    found = allowance(text, *inputs)
    for step in (0, STEPS - 1):
        assert not granted(found, changed(found.native[0], (step, 0, 0, 3), by))


def test_gates_in_another_order_are_not() -> None:
    text, inputs = lstm()
    x, w, r = inputs
    turned = [np.roll(a.reshape(1, 4, HIDDEN, -1), 1, 1).reshape(a.shape) for a in (w, r)]
    [wrong] = allowance(text, x, *turned).native
    assert not granted(allowance(text, *inputs), wrong)


# ---------------------------------------------------------------------- layer normalization
NORM = "(float[2, 2] x, float[2] s) => (float[2, 2] y) " \
       "{{ y = LayerNormalization<epsilon = {}>(x, s) }}"
ROWS = np.array([[0.080628745, 0.080576240], [0.5, -0.25]], np.float32)


def test_means_of_nearly_equal_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding the mean shows, since the numbers are hardly apart; another epsilon shows more."""
    scale = np.array([2.5, 2.5], np.float32)
    found = allowance(NORM.format("1e-12"), ROWS, scale)
    [other] = allowance(NORM.format("1e-10"), ROWS, scale).native
    assert granted(found, found.native[0]) and not granted(found, other)
    assert not granted(found, changed(found.native[0], (1, 0), 1e-4))
    monkeypatch.setattr(precise, "IN_STEPS", ())
    assert not granted(allowance(NORM.format("1e-12"), ROWS, scale), found.native[0])


# ---------------------------------------------------------------------- ties and codes
def test_ties_of_rounded_numbers() -> None:
    """The first of two equal halves; in f64 the second is larger, and the last is far from it."""
    x = np.full(40, -100, F16)
    x[:2] = 1.0, 1.5
    found = allowance("(float16[40] x, float16 c) => (int64 y) "
                      "{ s = Add(x, c) y = ArgMax<keepdims = 0>(s) }", x, np.asarray(4096, F16))
    assert int(found.native[0]) == 0 and int(found.exact[0]) == 1
    assert granted(found, np.asarray(0)) and granted(found, np.asarray(1))
    assert not granted(found, np.asarray(39))


def test_codes_of_rounded_numbers() -> None:
    """A number between two codes may have either; no third, and the others only their own."""
    x = np.array([0.3, 0.25 * 2.5, 7.0], np.float32)
    found = allowance("(float[3] x) => (uint8[3] y) <float s = {0.25}, uint8 z = {3}, "
                      "float a = {1}> { t = Mul(x, a) y = QuantizeLinear(t, s, z) }", x)
    found.widen(20)
    native = found.native[0]
    assert granted(found, native)
    assert not granted(found, changed(native, (2,), 1))
    assert not granted(found, changed(native, (0,), 10))


@pytest.mark.parametrize("kind", [1, 11])
def test_products_are_granted_few_units(kind: int) -> None:
    name, dtype = {1: ("float", np.float32), 11: ("double", np.float64)}[kind]
    random = np.random.default_rng(0)
    a, b = (random.normal(0, 1, (8, 8)).astype(dtype) for _ in range(2))
    found = allowance(f"({name}[8, 8] a, {name}[8, 8] b) => ({name}[8, 8] y) "
                      "{ y = MatMul(a, b) }", a, b)
    unit = float(np.finfo(dtype).eps)
    assert granted(found, a[:, ::-1] @ b[::-1])
    assert not granted(found, changed(found.native[0], (3, 4), 1000 * unit))


# ---------------------------------------------------------------------- f64
VARIANCE = ("(double[300, 2] x, double[300, 2] w) => (double[300, 1] y) { p = Mul(x, w) "
            "m = ReduceMean<axes = [1]>(p) d = Sub(p, m) s = Mul(d, d) "
            "y = ReduceMean<axes = [1]>(s) }")


def test_roundings_of_f64_count_where_numbers_cancel() -> None:
    """The reference is in f64, too: one that rounds less, or not at all, is right as well."""
    random = np.random.default_rng(6)
    x = random.normal(size=(300, 2))
    w = 0.5 * (1 + 1e-3 * random.normal(size=(300, 2))) / x
    products = [[Fraction(a) * Fraction(b) for a, b in zip(*rows, strict=True)]
                for rows in zip(x.tolist(), w.tolist(), strict=True)]
    exact = np.array([[float((a - b)**2 / 4)] for a, b in products])
    found = allowance(VARIANCE, x, w)
    assert not np.array_equal(exact, found.native[0])
    assert granted(found, exact)
    assert not granted(found, exact * (1 + 1e-8))


@pytest.mark.parametrize("name, operation", [
    ("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide),
    ("sqrt", np.sqrt), ("reciprocal", np.reciprocal)])
def test_what_is_rounded_in_f64(name: str, operation: np.ufunc) -> None:
    random = np.random.default_rng(7)
    a, b = (np.concatenate([random.normal(size=50)**2, random.integers(1, 9, 50)**2 / 4.0])
            for _ in range(2))
    operands = [a, b][:operation.nin]
    result = operation(*operands)
    exact = [_is_exact(name, *numbers) for numbers in zip(
        *(o.tolist() for o in operands), result.tolist(), strict=True)]
    assert is_rounded(name, operands, result).tolist() == [not e for e in exact]
    assert 0 < sum(exact) < 100


def _is_exact(name: str, *numbers: float) -> bool:
    *given, y = map(Fraction, numbers)
    a, b = given[0], given[-1]
    return {"add": a + b == y, "sub": a - b == y, "mul": a * b == y, "div": y * b == a,
            "sqrt": y * y == a, "reciprocal": y * a == 1}[name]


def test_integers_beyond_53_bits_are_rounded_in_f64() -> None:
    given = np.array([2**53, 2**53 + 1, -3, 2**63 - 1], np.int64)
    assert is_rounded("cast", [given], given.astype(np.float64)).tolist() == [
        False, True, False, True]
