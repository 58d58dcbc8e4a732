"""What JAX lowers and exports, compiled and compared with XLA's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flax")

import compiler  # noqa: E402
from tests.frontend.stablehlo.jax_artifacts import EVERY, exported  # noqa: E402
from tests.frontend.stablehlo.jax_programs import OPEN, PROGRAMS  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def on_the_cpu() -> None:
    jax.config.update("jax_platforms", "cpu")


def equal(got: Any, want: Any) -> None:
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", EVERY)
def test_lowered(name: str) -> None:
    """`jax.jit(f).lower(*args)` is a model, whose inputs are the leaves of the arguments."""
    function, arguments = EVERY[name](1)
    lowered = jax.jit(function, keep_unused=True).lower(*arguments)
    exe = compiler.compile(lowered, target="cpu", cache="off", threads=1)
    want = jax.tree.leaves(lowered.compile()(*arguments))
    equal(exe(*map(np.asarray, jax.tree.leaves(arguments))), map(np.asarray, want))


@pytest.mark.parametrize("name", EVERY)
def test_exported(name: str) -> None:
    """`jax.export.export(f)(*args)` is one, too, read from its portable artifact."""
    made, inputs, results = exported(name)
    equal(compiler.compile(made, target="reference")(*inputs), results)


@pytest.mark.parametrize(("name", "platform"), [
    ("systems", "cuda"), ("systems", "rocm"), ("systems", "tpu"), ("factors", "cuda"),
    ("factors", "rocm")])
def test_other_platforms(name: str, platform: str) -> None:
    """Factors of matrices call another library on each platform."""
    function, arguments = PROGRAMS[name](1)
    traced = jax.jit(function, keep_unused=True).trace(*arguments)
    exe = compiler.compile(traced.lower(lowering_platforms=(platform,)), target="cpu", cache="off")
    equal(exe(*arguments), map(np.asarray, jax.tree.leaves(jax.jit(function)(*arguments))))


@pytest.mark.parametrize("name", OPEN)
def test_sizes_of_a_call(name: str) -> None:
    made, [x], _ = exported(name)
    exe = compiler.compile(made, target="cpu", cache="off")
    for rows in (1, 3, 40):
        given = np.tile(x, (7, 1))[:rows]
        equal(exe(given), [np.asarray(PROGRAMS[name](1)[0](given))])
