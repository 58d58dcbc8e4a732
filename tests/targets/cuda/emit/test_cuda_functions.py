"""Functions of f32 with forms of their own: how exact they are, and at the ends of their range.

Triton's interpreter fuses no multiply-adds; what GPUs compute, `benchmarks/cuda/accuracy.py` tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from targets.cuda.build.interpreter import Interpreter
from tests.targets.cuda.samples import kernel_of

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
COUNT = 1 << 16
ENDS = (0.0, -0.0, np.inf, -np.inf, np.nan, 88.72283, 88.7229, 89.4159, 89.4161, -87.3, -103.9,
        -110.0, 1e30, -1e30, 1.0, -1.0, 0.34657359, 1e-38, -1e-30)


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


def kernel(name: str) -> str:
    return f"""
block.kernel @function(%X: f32[{COUNT}], %Y: f32[{COUNT}]) grid() sizes() {{
  %v = block.load %X[t0] : tile<{COUNT}xf32>
  %w = block.map (%v[0]) : tile<{COUNT}xf32> {{
  ^bb0(%x: f32):
    %r = math.{name} %x : f32
    block.yield %r
  }}
  block.store %w, %Y[t0]
  block.yield
}}"""


def arguments() -> Any:
    random = np.random.default_rng(0)
    wide, near = random.uniform(-104, 91, COUNT // 2), random.uniform(-2, 2, COUNT // 2)
    return np.concatenate([ENDS, wide, near])[:COUNT].astype(np.float32)


REFERENCES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}


@pytest.mark.parametrize(("name", "most"), [
    ("exp", 1.6), ("expm1", 1.8), ("sinh", 1.8), ("cosh", 1.6), ("atan", 1.6),
    ("asin", 2.3), ("acos", 1.8)])
def test_errors_in_the_last_place(interpreter: Interpreter, name: str, most: float) -> None:
    x = arguments()
    interpreter.run(kernel_of(kernel(name)), buffers := [x, np.zeros_like(x)], {})
    found = buffers[1].astype(np.float64)
    with np.errstate(all="ignore"):
        exact = getattr(np, REFERENCES.get(name, name))(x.astype(np.float64))
        nearest = exact.astype(np.float32)
    finite = np.isfinite(nearest)
    np.testing.assert_array_equal(found[~finite], nearest[~finite])
    unit = np.spacing(np.maximum(np.abs(nearest), np.float32(2.0**-126)))
    assert (np.abs(found[finite] - exact[finite]) / unit[finite]).max() <= most
    if name in ("exp", "expm1", "sinh"):
        assert np.signbit(found[1]) == np.signbit(nearest[1])


# ---------------------------------------------------------------------- exact results
def applied(op: str, *operands: Any) -> tuple[str, list[Any]]:
    """A kernel that applies an operation to equally many numbers, and its buffers."""
    count, element = 1 << (operands[0].size - 1).bit_length(), f"f{operands[0].itemsize * 8}"
    given = [np.pad(x, (0, count - x.size), constant_values=1) for x in operands]
    tile, names = f"tile<{count}x{element}>", range(len(given))
    loads = "\n".join(f"%v{k} = block.load %X{k}[t0] : {tile}" for k in names)
    text = f"""
block.kernel @function({", ".join(f"%X{k}: {element}[{count}]" for k in names)},
                       %Y: {element}[{count}]) grid() sizes() {{
  {loads}
  %w = block.map ({", ".join(f"%v{k}[0]" for k in names)}) : {tile} {{
  ^bb0({", ".join(f"%x{k}: {element}" for k in names)}):
    %r = math.{op} {", ".join(f"%x{k}" for k in names)} : {element}
    block.yield %r
  }}
  block.store %w, %Y[t0]
  block.yield
}}"""
    return text, [*given, np.zeros_like(given[0])]


def result(interpreter: Interpreter, op: str, *operands: Any) -> Any:
    text, buffers = applied(op, *operands)
    interpreter.run(kernel_of(text), buffers, {})
    return buffers[-1][:operands[0].size]


@pytest.mark.parametrize(("dtype", "ends"), [(np.float32, (-37, 39)), (np.float64, (-307, 309))])
def test_logarithms_of_powers(interpreter: Interpreter, dtype: Any, ends: tuple[int, int]) -> None:
    exponents = np.arange(*ends).astype(dtype)
    tens = np.array([float(f"1e{k:.0f}") for k in exponents]).astype(dtype)
    np.testing.assert_array_equal(result(interpreter, "log10", tens), exponents)
    np.testing.assert_array_equal(result(interpreter, "log2", np.exp2(exponents)), exponents)


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 2**24), (np.float64, 2**53)])
def test_small_whole_powers(interpreter: Interpreter, dtype: Any, most: int) -> None:
    bases, exponents = (v.reshape(-1) for v in np.meshgrid(np.arange(-12, 13), np.arange(16)))
    exact = np.array([int(x)**int(y) for x, y in zip(bases, exponents, strict=True)])
    kept = np.abs(exact) <= most
    x, y = (v[kept].astype(dtype) for v in (bases, exponents))
    np.testing.assert_array_equal(result(interpreter, "powf", x, y), exact[kept].astype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_at_the_ends(interpreter: Interpreter, dtype: Any) -> None:
    ends = np.array([0.0, -0.0, 1, -1, 2, -2, 0.5, 3, -3.5, np.inf, -np.inf, np.nan], dtype)
    x, y = (v.reshape(-1) for v in np.meshgrid(ends, ends))
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    found = result(interpreter, "powf", x, y)
    np.testing.assert_allclose(found, exact, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(found[exact == 0]), np.signbit(exact[exact == 0]))
