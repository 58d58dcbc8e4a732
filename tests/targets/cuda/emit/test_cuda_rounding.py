"""Cheaper forms where results are rounded to f16 or bf16: where they stand, and how exact they are.

The single instructions behind them are measured on a GPU by `benchmarks/cuda/accuracy.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import EmitOptions, emit_kernel
from tests.targets.cuda.samples import kernel_of

ERF = "%r = math.erf %x : f32"
EXP = "%r = math.exp %x : f32"
TANH = "%r = math.tanh %x : f32"
ONE_PLUS_ERF = """%e = math.erf %x : f32
                  %r = arith.addf %e, %one : f32"""
ONE_PLUS_TANH = """%e = math.tanh %x : f32
                   %r = arith.addf %one, %e : f32"""
SIGMOID = """%n = arith.negf %x : f32
             %e = math.exp %n : f32
             %s = arith.addf %e, %one : f32
             %r = arith.divf %one, %s : f32"""
GELU = """%half = arith.constant 0.5 : f32
          %root = arith.constant 0.70710677 : f32
          %z = arith.mulf %x, %root : f32
          %e = math.erf %z : f32
          %s = arith.addf %e, %one : f32
          %t = arith.mulf %x, %s : f32
          %r = arith.mulf %half, %t : f32"""
FALLING = """%e = math.exp %x : f32
             %s = arith.addf %one, %e : f32
             %r = arith.divf %one, %s : f32"""

erf, erfc = (np.vectorize(f, [np.float64]) for f in (math.erf, math.erfc))
CASES: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "erf": (ERF, erf, "quick_erf"),
    "exp": (EXP, np.exp, "quick_exp"),
    "tanh": (TANH, np.tanh, "quick_tanh"),
    "1 + erf": (ONE_PLUS_ERF, lambda x: erfc(-x), "quick_erfc"),
    "1 + tanh": (ONE_PLUS_TANH, lambda x: 2 / (1 + np.exp(-2 * x)), "quick_sigmoid"),
    "gelu": (GELU, lambda x: 0.5 * x * erfc(-x * 0.5**0.5), "quick_gelu"),
    "sigmoid": (SIGMOID, lambda x: 1 / (1 + np.exp(-x)), "quick_sigmoid"),
    "1/(1 + exp)": (FALLING, lambda x: 1 / (1 + np.exp(x)), "quick_sigmoid"),
}


def kernel(body: str, element: str, stored: str = "") -> str:
    """The function of all numbers of a type; `stored` in another type than that."""
    result = stored or element
    end = "block.yield %r" if stored else f"""%y = arith.truncf %r : f32 to {element}
    block.yield %y"""
    return f"""
block.kernel @function(%X: {element}[65536], %Y: {result}[65536]) grid(%p: 16) sizes() {{
  %v = block.load %X[4096*%p + t0] : tile<4096x{element}>
  %w = block.map (%v[0]) : tile<4096x{result}> {{
  ^bb0(%h: {element}):
    %one = arith.constant 1.0 : f32
    %x = arith.extf %h : {element} to f32
    {body}
    {end}
  }}
  block.store %w, %Y[4096*%p + t0]
  block.yield
}}"""


def emit(text: str, options: EmitOptions | None = None) -> str:
    return emit_kernel(kernel_of(text), options).text


@pytest.mark.parametrize("name", CASES)
def test_a_result_that_is_rounded_has_a_cheap_form(name: str) -> None:
    body, _, helper = CASES[name]
    assert f"{helper}(" in emit(kernel(body, "bf16")).partition("def function")[2]
    assert "quick" not in emit(kernel(body, "bf16"), EmitOptions(exact=True))


@pytest.mark.parametrize("name", CASES)
def test_a_result_that_is_stored_in_full_has_none(name: str) -> None:
    assert "quick" not in emit(kernel(CASES[name][0], "f16", stored="f32"))


def test_instructions_of_nvidia_stand_only_where_they_may() -> None:
    text = kernel(EXP, "f16")
    assert "inline_asm" in emit(text, EmitOptions(ptx=True))
    assert "inline_asm" not in emit(text, EmitOptions(ptx=False))


REDUCTION = """
block.kernel @rows(%X: bf16[8, 64], %Y: {element}[8, 64]) grid(%p: 8) sizes() {{
  %v = block.load %X[%p, t0] : tile<64xbf16>
  %e = block.map (%v[0]) : tile<64xf32> {{
  ^bb0(%h: bf16):
    %x = arith.extf %h : bf16 to f32
    %r = math.exp %x : f32
    block.yield %r
  }}
  %zero = block.full 0.0 : tile<f32>
  %s = block.for %k = 0 to 4 step 1 (%c = %zero) {{
    %part = block.reduce add %e dim 0 : tile<f32>
    %t = block.map (%c[], %part[]) : tile<f32> {{
    ^bb0(%a: f32, %b: f32):
      %r = arith.addf %a, %b : f32
      block.yield %r
    }}
    block.yield %t
  }}
  %w = block.map (%e[0], %s[]) : tile<64x{element}> {{
  ^bb0(%a: f32, %b: f32):
    %q = arith.divf %a, %b : f32
    {end}
  }}
  block.store %w, %Y[%p, t0]
  block.yield
}}"""


def test_values_are_followed_through_maps_reductions_and_loops() -> None:
    rounded = emit(REDUCTION.format(element="bf16", end="""%y = arith.truncf %q : f32 to bf16
    block.yield %y"""))
    assert "quick_exp(" in rounded and "div_rn" not in rounded
    assert "e * (1.0 / " in rounded  # one division for the row
    full = emit(REDUCTION.format(element="f32", end="block.yield %q"))
    assert "quick" not in full and "tl.div_rn" in full


def test_what_is_compared_is_needed_in_full() -> None:
    compared = emit(kernel("""%e = math.exp %x : f32
    %c = arith.cmpf ogt, %e, %one : f32
    %r = arith.select %c, %one, %x : f32""", "f16"))
    assert "quick" not in compared


def test_roundings_in_the_midst_are_left_out() -> None:
    text = kernel("""%a = arith.addf %x, %one : f32
    %b = arith.truncf %a : f32 to f16
    %c = arith.extf %b : f16 to f32
    %r = arith.mulf %c, %c : f32""", "f16")
    line = next(x for x in emit(text).splitlines() if "w = " in x or "v_2 = " in x)
    assert emit(text).count(".to(tl.float16)") == 1, line
    assert emit(text, EmitOptions(exact=True)).count(".to(tl.float16)") == 2


# ---------------------------------------------------------------------- how exact they are
@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("element", "most"), [("f16", 0.52), ("bf16", 1.01)])
def test_forms_round_to_the_nearest_number_or_almost(
    interpreter: Interpreter, name: str, element: str, most: float
) -> None:
    """Triton's interpreter cuts off when it makes a bf16."""
    body, function, _ = CASES[name]
    dtype = np.dtype(np.float16 if element == "f16" else ml_dtypes.bfloat16)
    x = np.arange(65536, dtype=np.uint16).view(dtype)
    y = np.zeros_like(x)
    interpreter.run(kernel_of(kernel(body, element)), buffers := [x, y], {})
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64))
        nearest = exact.astype(dtype)
    found = buffers[1]
    np.testing.assert_array_equal(np.isnan(found), np.isnan(nearest))
    least = 1e-11 if name in ("1 + erf", "gelu") else 2.0**-125
    assert largest_error(found, exact, nearest, dtype, least) <= most


def largest_error(
    found: Any, exact: Any, nearest: Any, dtype: np.dtype[Any], least: float
) -> float:
    """In units of the last place, of results that are not smaller than `least`."""
    limits: Any = ml_dtypes.finfo(dtype)
    found, nearest = found.astype(np.float64), nearest.astype(np.float64)
    assert (np.isfinite(nearest) | (found == nearest) | np.isnan(exact)).all()
    assert (np.abs(found[np.abs(exact) < least]) <= 2 * least).all()
    counted = np.isfinite(nearest) & (np.abs(exact) >= least)
    size = np.maximum(np.abs(exact[counted]), float(limits.tiny))
    unit = 2.0 ** np.floor(np.log2(size)) * float(limits.eps)
    return float((np.abs(found[counted] - exact[counted]) / unit).max())
