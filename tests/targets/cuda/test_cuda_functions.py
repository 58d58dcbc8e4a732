"""Functions of f32 with forms of their own: how exact they are, and at the ends of their range.

Triton's interpreter fuses no multiply-adds; what GPUs compute, `benchmarks/cuda/accuracy.py` tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from targets.cuda.emit.helpers import helper_texts
from targets.cuda.interpreter import Interpreter
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
    ("exp", 1.1), ("expm1", 1.8), ("sinh", 1.8), ("cosh", 1.6), ("atan", 1.6),
    ("asin", 2.3), ("acos", 1.8)])
def test_errors_in_the_last_place(interpreter: Interpreter, name: str, most: float) -> None:
    x = arguments()
    interpreter.run(kernel_of(kernel(name)), buffers := [x, np.zeros_like(x)], {})
    assert errors(name, x, buffers[1]) <= most
    if name in ("exp", "expm1", "sinh"):
        assert np.signbit(buffers[1][1]) == (name != "exp")


def errors(name: str, x: Any, found: Any) -> float:
    """The largest, in units of the last place."""
    with np.errstate(all="ignore"):
        exact = getattr(np, REFERENCES.get(name, name))(x.astype(np.float64))
        nearest = exact.astype(np.float32)
    finite = np.isfinite(nearest)
    np.testing.assert_array_equal(found[~finite], nearest[~finite])
    found = found.astype(np.float64)
    unit = np.spacing(np.maximum(np.abs(nearest), np.float32(2.0**-126)))
    return float((np.abs(found[finite] - exact[finite]) / unit[finite]).max())


class Tile(np.ndarray):
    """An array with the conversions of Triton's tensors."""

    def to(self, kind: Any, bitcast: bool) -> Any:
        assert bitcast
        return self.view(kind)


class Instructions:
    """What `exp_f32` uses of Triton's language, each operation rounded once."""

    float32, int32 = np.float32, np.int32

    @staticmethod
    def maximum(x: Any, y: float) -> Any:
        return np.fmax(x, np.float32(y))

    @staticmethod
    def minimum(x: Any, y: float) -> Any:
        return np.fmin(x, np.float32(y))

    @staticmethod
    def fma(x: Any, y: float, z: Any) -> Any:
        return (x.astype(np.float64) * np.float32(y) + z).astype(np.float32)

    @staticmethod
    def inline_asm_elementwise(text: str, places: str, values: Any, **kinds: Any) -> Any:
        assert text.startswith("ex2.approx.ftz.f32 ")
        return np.exp2(values[0].astype(np.float64)).astype(np.float32)


def test_exp_by_an_instruction_is_that_exact_beside_it() -> None:
    [text] = helper_texts([("exp_f32", "")], instructions=True)
    names: dict[str, Any] = {"tl": Instructions}
    exec(text.removeprefix("@triton.jit"), names)
    x = arguments()
    with np.errstate(all="ignore"):
        found = names["exp_f32"](x.view(Tile)).view(np.ndarray)
    assert errors("exp", x, found) <= 1.4
