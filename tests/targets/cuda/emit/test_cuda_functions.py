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
    ("exp", 1.1), ("expm1", 1.8), ("sinh", 1.8), ("cosh", 1.6), ("atan", 1.6),
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
