"""Programs of complex numbers in JAX, as `jax_programs.py` has those of reals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.frontend.stablehlo.jax_programs import drawn

COMPLEX: dict[str, Callable[[int], tuple[Any, tuple[Any, ...]]]] = {}


def program(function: Any) -> Any:
    COMPLEX[function.__name__] = function
    return function


def waves(*shape: int, seed: int = 0) -> Any:
    return (drawn(*shape, seed=seed) + 1j * drawn(*shape, seed=seed + 7)).astype(np.complex64)


@program
def spectra(s: int) -> Any:
    """A filter of frequencies, transforms of several dims, and a gradient through one."""
    import jax
    import jax.numpy as jnp

    def transformed(x: Any, z: Any) -> Any:
        found = jnp.fft.rfft(x)
        fade = jnp.exp(-jnp.arange(found.shape[-1]) / 7)
        loss = jax.grad(lambda v: jnp.abs(jnp.fft.rfft(v)).sum())
        return (jnp.fft.irfft(found * fade), jnp.abs(found), jnp.angle(found), jnp.fft.fft2(z),
                jnp.fft.fftshift(jnp.fft.ifft2(z)), jnp.fft.irfftn(jnp.fft.rfftn(x), s=(3, 50)),
                loss(x[0]))

    return transformed, (drawn(3, 64 * s), waves(2, 6, 15))


@program
def functions(s: int) -> Any:
    """Functions of one number and of two."""
    import jax
    import jax.numpy as jnp

    def values(x: Any, y: Any) -> Any:
        one = (jnp.exp, jnp.log, jnp.sqrt, jnp.sin, jnp.cos, jnp.tan, jnp.tanh, jnp.sinh, jnp.cosh,
               jnp.log1p, jnp.expm1, jnp.arcsin, jnp.arccos, jnp.arctan, jnp.arcsinh, jnp.arccosh,
               jnp.arctanh, jnp.square, jnp.sign, jnp.reciprocal, jnp.conj, jnp.real, jnp.imag,
               jnp.abs, jnp.angle, jnp.isfinite, jax.nn.sigmoid, jax.lax.rsqrt)
        return ([of(x) for of in one], x + y, x - y, x * y, x / y, x ** y, x ** 3, x == y, x != y,
                jnp.where(x.real > 0, x, y), -x, 2 * x, x.real.astype(jnp.complex64) * 1j)

    return values, (waves(30 * s), waves(30 * s, seed=1))


@program
def elements(s: int) -> Any:
    """Elements that are moved, products and sums."""
    import jax
    import jax.numpy as jnp

    def moved(x: Any, w: Any, i: Any) -> Any:
        line = x[None]
        return (x[i], x.at[i].set(1 + 2j), x.at[i].add(x[0]), jnp.roll(x, 2, 0), jnp.flip(x, 1),
                jnp.pad(x, ((1, 2), (0, 1))), jnp.concatenate([x, x.conj()], 1), x[::2],
                jax.lax.dynamic_slice(x, (i[0], 0), (2, 2)),
                jax.lax.dynamic_update_slice(x, x[:1], (i[1], 0)), jnp.eye(3, dtype=x.dtype),
                jnp.arange(5, dtype=x.dtype), x @ w, jnp.vdot(x, x), x.sum(), x.mean(0), x.prod(1),
                jnp.cumsum(x, 0), jnp.cumprod(x, 1), x.var(), jnp.linalg.norm(x),
                jax.lax.conv_general_dilated(line, jnp.stack([w, w.conj()]).swapaxes(1, 2)[:, :2],
                                             (1,), "VALID", feature_group_count=2))

    return moved, (waves(4, 6 * s), waves(6 * s, 3), np.array([1, 3, 2], np.int32))


@program
def states(s: int) -> Any:
    """Complex states of loops and branches: a set of Mandelbrot, and a linear recurrence."""
    import jax
    import jax.numpy as jnp

    def run(c: Any, a: Any, x: Any) -> Any:
        def turn(state: Any) -> Any:
            z, count, k = state
            return jnp.where(jnp.abs(z) < 2, z * z + c, z), count + (jnp.abs(z) < 2), k + 1

        def pair(left: Any, right: Any) -> Any:
            return left[0] * right[0], right[0] * left[1] + right[1]

        def step(h: Any, v: Any) -> Any:
            return h * a + v, (h * a.conj()).real

        first = (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32), 0)
        rates = jnp.broadcast_to(a, (x.shape[0], *a.shape))
        _, at_once = jax.lax.associative_scan(pair, (rates, x[:, None] + 0 * a))
        return (jax.lax.while_loop(lambda v: v[2] < 20, turn, first)[:2], at_once,
                jax.lax.scan(step, jnp.zeros_like(a), x[:, None] + 0 * a),
                jax.lax.cond(x[0] > 0, lambda v: v * 1j, lambda v: v.conj(), c),
                jax.lax.switch(2, [lambda v: v, lambda v: -v, lambda v: v * v], c))

    rates = np.exp(-np.abs(drawn(6)) + 1j * drawn(6, seed=1)).astype(np.complex64)
    return run, (waves(8, 9) * np.float32(0.7), rates, drawn(16 * s))
