"""A small model whose programs are specialized, and what can be asked of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

import compiler
from compiler.options import Specialize
from tests.models.onnx_graph import Array

TOLERANCE = 2e-6
"""Of an output's largest magnitude: what the order of sums may change."""
AT_ONCE = Specialize(after=1, most=99, background=False)
LENGTHS = ({"batch": 2, "seq": 16}, {"batch": 1, "seq": 11}, {"batch": 3, "seq": 1})


def save(tiny: ModuleType, folder: Path) -> Path:
    path = folder / "tiny.onnx"
    path.write_bytes(tiny.make_model(tiny.OPEN).SerializeToString())
    return path


Make = Callable[..., compiler.Executable]



def numbers(n: int) -> Array:
    return np.random.default_rng(n).standard_normal((n, 4), np.float32)


def softmax(x: Array) -> Array:
    e = np.exp(2 * x - 2 * x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def check_rows(exe: compiler.Executable, n: int) -> None:
    """One call, whose answer must be right."""
    (y,) = exe(numbers(n))
    np.testing.assert_allclose(y, softmax(numbers(n)), rtol=1e-5, atol=1e-6)


def states(exe: compiler.Executable) -> list[tuple[int, str, int]]:
    """Rows, state and answered calls of each specialization."""
    return [(s.sizes["rows.n"], s.state, s.calls) for s in exe.specializations]


def assert_same(actual: Sequence[Array], expected: Sequence[Array]) -> None:
    for a, e in zip(actual, expected, strict=True):
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        scale = np.abs(e).max(initial=0) or 1
        assert np.abs(a.astype(np.float64) - e).max(initial=0) <= TOLERANCE * scale
