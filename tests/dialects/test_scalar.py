"""Scalar bodies, evaluated on arrays: types, signs, wrap-around, NaN and undefined cases."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.math import Math
from xdsl.ir import Operation
from xdsl.parser import Parser

from dialects.block.dialect import Block
from dialects.semantics.scalar import evaluate_body, evaluate_values
from dialects.strata import types as t
from dialects.strata.types import Array

I8 = np.array([-128, -7, -1, 0, 1, 7, 127], np.int8)
FLOATS = np.array([-np.inf, -2.5, -1.5, -0.5, -0.0, 0.0, 0.49999997, 0.5, 1.5, 2.5, np.inf,
                   np.nan], np.float32)


def body_of(lines: str, arguments: Sequence[Array]) -> Operation:
    """A function-like op whose body takes `%0, %1 ...` and runs the lines."""
    types = [t.signless(t.element_of(a.dtype)) for a in arguments]
    heads = ", ".join(f"%a{k}: {type_}" for k, type_ in enumerate(types))
    text = f'"builtin.module"() ({{ ^bb0({heads}):\n{lines}\n}}) : () -> ()'
    context = Context()
    for dialect in (Builtin, Arith, Math, Block):
        context.load_dialect(dialect)
    return Parser(context, text).parse_op()


def run(lines: str, *arguments: Array) -> Array:
    """The first yielded value; a warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return evaluate_body(body_of(lines, arguments).regions[0].block, arguments)[0]


def unary(op: str, x: Array, result: str | None = None) -> Array:
    type_ = t.signless(t.element_of(x.dtype))
    types = f"{type_} to {result}" if result else f"{type_}"
    return run(f"%r = {op} %a0 : {types}\nblock.yield %r", x)


def binary(op: str, x: Array, y: Array) -> Array:
    type_ = t.signless(t.element_of(x.dtype))
    return run(f"%r = {op} %a0, %a1 : {type_}\nblock.yield %r", x, y)


# ---------------------------------------------------------------------- types
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("op", ["arith.addf", "arith.mulf", "arith.divf", "arith.maximumf",
                                "math.powf", "math.copysign", "math.atan2"])
def test_binary_float_operations_keep_their_type(op: str, dtype: type) -> None:
    x, y = np.array([0.5, 3.0], dtype), np.array([2.0, 0.1], dtype)
    assert binary(op, x, y).dtype == dtype


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("op", ["absf", "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt",
                                "rsqrt", "tanh", "erf", "sin", "cos", "tan", "floor", "ceil",
                                "roundeven", "round", "trunc", "cbrt", "atan", "sinh"])
def test_functions_keep_their_type_and_are_close(op: str, dtype: type) -> None:
    x = np.array([0.25, 0.75, 1.0], dtype)
    names = {"absf": "fabs", "roundeven": "round", "round": "round"}
    if op == "rsqrt":
        expected = [1 / math.sqrt(v) for v in x.astype(float)]
    elif op == "exp2":
        expected = [2.0**v for v in x.astype(float)]
    elif op == "cbrt":
        expected = [v ** (1 / 3) for v in x.astype(float)]
    else:
        function = round if op.startswith("round") else getattr(math, names.get(op, op))
        expected = [function(v) for v in x.astype(float)]
    found = unary(f"math.{op}", x)
    assert found.dtype == dtype
    step = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(found.astype(float), expected, rtol=2 * step, atol=step)


def test_bfloat16_rounds_after_every_operation() -> None:
    x = np.array([1.0], ml_dtypes.bfloat16)
    small = np.array([2.0**-9], ml_dtypes.bfloat16)
    lines = "%s = arith.addf %a0, %a1 : bf16\n%r = arith.addf %s, %a1 : bf16\nblock.yield %r"
    assert float(run(lines, x, small)[0]) == 1.0


# ---------------------------------------------------------------------- integers
@pytest.mark.parametrize(("op", "function"), [
    ("arith.addi", lambda x, y: x + y),
    ("arith.subi", lambda x, y: x - y),
    ("arith.muli", lambda x, y: x * y),
    ("arith.maxsi", max),
    ("arith.minsi", min),
    ("arith.divsi", lambda x, y: int(x / y)),
    ("arith.remsi", lambda x, y: int(math.fmod(x, y))),
    ("arith.floordivsi", lambda x, y: x // y),
    ("arith.ceildivsi", lambda x, y: -(-x // y)),
    ("arith.divui", lambda x, y: (x % 256) // (y % 256)),
    ("arith.remui", lambda x, y: (x % 256) % (y % 256)),
    ("arith.maxui", lambda x, y: max(x % 256, y % 256)),
    ("arith.minui", lambda x, y: min(x % 256, y % 256)),
    ("arith.andi", lambda x, y: x & y),
    ("arith.ori", lambda x, y: x | y),
    ("arith.xori", lambda x, y: x ^ y),
])
def test_integers_wrap_and_the_operation_decides_the_sign(op: str, function: object) -> None:
    x, y = np.repeat(I8, len(I8)), np.tile(I8, len(I8))
    defined = y != 0 if "div" in op or "rem" in op else np.ones(x.shape, bool)
    found = binary(op, x, y)
    expected = [function(int(a), int(b)) for a, b in zip(x[defined], y[defined], strict=True)]
    assert found.dtype == np.int8
    np.testing.assert_array_equal(
        found[defined].astype(int) % 256, np.array(expected) % 256)


def test_shifts() -> None:
    by = np.full(I8.shape, 1, np.int8)
    doubled = (I8.astype(int) * 2).astype(np.int8)
    np.testing.assert_array_equal(binary("arith.shli", I8, by), doubled)
    np.testing.assert_array_equal(binary("arith.shrsi", I8, by), I8 >> 1)
    np.testing.assert_array_equal(
        binary("arith.shrui", I8, by).view(np.uint8), I8.view(np.uint8) >> 1)


@pytest.mark.parametrize("op", ["divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi"])
def test_division_by_zero_gives_some_value(op: str) -> None:
    zero = np.zeros(I8.shape, np.int8)
    assert binary(f"arith.{op}", I8, zero).shape == I8.shape
    least = np.array([-128], np.int8)
    assert binary(f"arith.{op}", least, np.array([-1], np.int8)).dtype == np.int8


def test_truth_values_are_one_bit_integers() -> None:
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    np.testing.assert_array_equal(binary("arith.addi", x, y), x ^ y)
    np.testing.assert_array_equal(binary("arith.muli", x, y), x & y)
    np.testing.assert_array_equal(binary("arith.maxsi", x, y), x & y)  # true is -1
    np.testing.assert_array_equal(binary("arith.maxui", x, y), x | y)
    np.testing.assert_array_equal(binary("arith.cmpi slt,", x, y), x & ~y)
    np.testing.assert_array_equal(binary("arith.cmpi ult,", x, y), ~x & y)
    np.testing.assert_array_equal(unary("arith.extui", x, "i32"), x.astype(np.int32))
    np.testing.assert_array_equal(unary("arith.extsi", x, "i32"), -x.astype(np.int32))
    np.testing.assert_array_equal(unary("arith.uitofp", x, "f32"), x.astype(np.float32))
    np.testing.assert_array_equal(unary("arith.sitofp", x, "f32"), -x.astype(np.float32))


# ---------------------------------------------------------------------- conversions
def test_conversions_of_integers() -> None:
    unsigned = I8.view(np.uint8)
    np.testing.assert_array_equal(unary("arith.extsi", I8, "i32"), I8.astype(np.int32))
    np.testing.assert_array_equal(unary("arith.extui", I8, "i32"), unsigned.astype(np.int32))
    np.testing.assert_array_equal(unary("arith.uitofp", I8, "f16"), unsigned.astype(np.float16))
    np.testing.assert_array_equal(unary("arith.trunci", I8, "i1"), (I8 & 1).astype(bool))
    wide = np.array([-1, 256, 300], np.int64)
    np.testing.assert_array_equal(unary("arith.trunci", wide, "i8"), wide.astype(np.int8))
    assert unary("arith.index_cast", I8, "index").dtype == np.int64


def test_conversions_of_floats_truncate_and_survive_any_value() -> None:
    values = np.array([-2.7, -0.5, 0.5, 2.7, 255.0], np.float32)
    np.testing.assert_array_equal(unary("arith.fptosi", values, "i32"), [-2, 0, 0, 2, 255])
    np.testing.assert_array_equal(unary("arith.fptoui", values, "i8")[2:].view(np.uint8),
                                  [0, 2, 255])
    for result in ("i8", "i32", "i64"):
        assert unary("arith.fptosi", FLOATS * 1e30, result).shape == FLOATS.shape
        assert unary("arith.fptoui", FLOATS * 1e30, result).shape == FLOATS.shape


def test_bitcast_keeps_the_bits() -> None:
    bits = unary("arith.bitcast", FLOATS, "i32")
    np.testing.assert_array_equal(bits.view(np.float32), FLOATS)


# ---------------------------------------------------------------------- floats
def test_maximumf_propagates_nan_and_maxnumf_does_not() -> None:
    nan = np.full(FLOATS.shape, np.nan, np.float32)
    assert np.isnan(binary("arith.maximumf", FLOATS, nan)).all()
    assert np.isnan(binary("arith.minimumf", nan, FLOATS)).all()
    np.testing.assert_array_equal(binary("arith.maxnumf", FLOATS, nan), FLOATS)


def test_comparisons_with_nan() -> None:
    one, nan = np.array([1.0, 1.0], np.float32), np.array([1.0, np.nan], np.float32)
    expected = {"false": (0, 0), "oeq": (1, 0), "ogt": (0, 0), "oge": (1, 0), "olt": (0, 0),
                "ole": (1, 0), "one": (0, 0), "ord": (1, 0), "ueq": (1, 1), "ugt": (0, 1),
                "uge": (1, 1), "ult": (0, 1), "ule": (1, 1), "une": (0, 1), "uno": (0, 1),
                "true": (1, 1)}
    for predicate, values in expected.items():
        found = binary(f"arith.cmpf {predicate},", one, nan)
        assert tuple(found.astype(int)) == values, predicate


def test_rounding() -> None:
    finite = FLOATS[1:-2]
    np.testing.assert_array_equal(unary("math.roundeven", finite), np.rint(finite))
    np.testing.assert_array_equal(
        unary("math.round", finite), [-3, -2, -1, 0, 0, 0, 1, 2, 3])
    np.testing.assert_array_equal(unary("math.round", FLOATS[-2:]), FLOATS[-2:])


def test_erf_is_accurate_to_two_units_in_the_last_place() -> None:
    x = np.linspace(-7, 7, 20001).astype(np.float32)
    exact = np.array([math.erf(v) for v in x.astype(float)])
    error = np.abs(unary("math.erf", x).astype(float) - exact)
    assert (error <= 2 * np.spacing(np.abs(exact).astype(np.float32))).all()
    np.testing.assert_array_equal(
        unary("math.erf", np.array([-np.inf, np.inf, np.nan], np.float32)), [-1, 1, np.nan])
    assert unary("math.erf", np.array(0.5, np.float32)).shape == ()


def test_fma_rounds_once() -> None:
    x = np.array([1 + 2.0**-12], np.float32)
    z = np.array([-(1 + 2.0**-11)], np.float32)
    found = run("%r = math.fma %a0, %a0, %a1 : f32\nblock.yield %r", x, z)
    assert found[0] == 2.0**-24


# ---------------------------------------------------------------------- bodies
def test_constants_of_every_type_have_no_dims() -> None:
    for literal, dtype in (("1.5 : f32", np.float32), ("-1 : i8", np.int8), ("true", np.bool_),
                           ("1.5 : bf16", ml_dtypes.bfloat16), ("7 : index", np.int64)):
        found = run(f"%r = arith.constant {literal}\nblock.yield %r")
        assert found.dtype == dtype and found.shape == ()


def test_a_body_broadcasts_and_yields_several_values() -> None:
    rows, columns = np.ones((3, 1), np.float32), np.ones((1, 4), np.float32)
    lines = ("%s = arith.addf %a0, %a1 : f32\n%c = arith.cmpf olt, %a0, %s : f32\n"
             "%r = arith.select %c, %a0, %s : f32\nblock.yield %r, %a1")
    block = body_of(lines, [rows, columns]).regions[0].block
    first, second = evaluate_body(block, [rows, columns])
    assert first.shape == (3, 4) and second.shape == (1, 4)


def test_only_what_is_wanted_is_evaluated() -> None:
    x = np.ones(2, np.float32)
    block = body_of("%p = arith.mulf %a0, %a0 : f32\n%r = arith.addf %p, %a1 : f32\n"
                    "block.yield %r", [x, x]).regions[0].block
    product = block.first_op
    assert product is not None
    (found,) = evaluate_values(block, [x, np.empty(5)], product.results)
    np.testing.assert_array_equal(found, x)


def test_an_operation_that_nobody_evaluates_is_named() -> None:
    block = body_of("%r = block.full 0.0 : tile<f32>\nblock.yield %r", []).regions[0].block
    with pytest.raises(KeyError, match=r"block\.full"):
        evaluate_body(block, [])
    (found,) = evaluate_body(block, [], lambda op: [np.zeros(3)])
    assert found.shape == (3,)
