"""The accuracy of the inline f32 functions, over a dense sample of all f32, in ULP."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.base import Executable, TargetOptions
from targets.cpu import TARGET
from targets.cpu.emit.math import MAX_ULP, MORE_ULP
from targets.cpu.machine import machine_of
from tests.targets.cpu.cpu_kernels import each_machine, parse_module

STEP = 1511
"""Every so manieth of the 2^32 bit patterns is tested: 2.8 million."""

TINY = float(np.finfo(np.float32).tiny)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, TINY, -TINY,
                    3.4e38, -3.4e38, 88.72283, 88.72284, -87.33654, -103.97, 127.99999, -126.0,
                    0.99999994, 1.0000001, 50000.0, 50001.0, 1e10, 1e30], np.float32)

REFERENCE: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "tanh": np.tanh,
    "erf": np.vectorize(math.erf, [np.float64]),
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "rsqrt": lambda x: 1 / np.sqrt(x),
    "powf": np.power,
}


@cache
def program(
    op: str, inputs: int, features: str, exact: bool = False, denormals: str = "flush"
) -> Executable:
    """A model that applies one operation to vectors of any length."""
    names = [f"x{k}" for k in range(inputs)]
    buffers = ", ".join(f"%{n}: f32[n]" for n in [*names, "y"])
    loads = "\n".join(f"%{n}v = block.load %{n}[64*%p + t0] check [0] pad 1.0 : tile<[64]xf32>"
                      for n in names)
    values = ", ".join(f"%{n}v[0]" for n in names)
    arguments = ", ".join(f"%{n}a: f32" for n in names)
    scalars = ", ".join(f"%{n}a" for n in names)
    quoted = ", ".join(f'"{n}"' for n in names)
    module = parse_module(f"""
    block.kernel @apply({buffers}) grid(%p: n ceildiv 64) sizes(n) {{
      {loads}
      %r = block.map ({values}) : tile<[64]xf32> {{
      ^bb0({arguments}):
        %s = math.{op} {scalars} : f32
        block.yield %s
      }}
      block.store %r, %y[64*%p + t0] check [0]
      block.yield
    }}
    host.func @main({buffers}) inputs [{quoted}] outputs ["y"] sizes(n) {{
      host.launch @apply({", ".join(f"%{n}" for n in [*names, "y"])}) sizes(n)
      host.return
    }}""")
    return TARGET.bind(TargetOptions(
        features=features, threads=1, exact=exact, denormals=denormals)
    ).running.load(module, WeightStore())


def flushed(x: Array) -> Array:
    """Denormals as zeros."""
    return np.where(np.abs(x) < TINY, np.copysign(0, x), x).astype(x.dtype)


@np.errstate(over="ignore", invalid="ignore")
def errors_in_ulp(actual: Array, expected: Array) -> Array:
    """Distances in units in the last place of f32; infinite where one is NaN or infinite alone.

    Beyond the largest f32 comes infinity; where denormals are flushed, anything below the least
    normal number counts as zero.
    """
    rounded = expected.astype(np.float32)
    ulp = np.spacing(np.maximum(np.abs(rounded), TINY)).astype(np.float64)
    error = np.abs(actual.astype(np.float64) - expected) / ulp
    small = (np.abs(expected) <= TINY) & (np.abs(actual) <= TINY)
    same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded)) | small
    edge = np.isinf(actual) ^ np.isinf(rounded)
    largest = np.finfo(np.float32).max
    close = edge & (np.minimum(np.abs(actual), np.abs(rounded)) > largest * (1 - 1e-6))
    error[~np.isfinite(error)] = np.inf
    error[same] = 0
    error[close] = 1
    return error


def allowed(op: str, features: str) -> float:
    return MAX_ULP[op] + (0 if "fma" in machine_of(features).features else MORE_ULP)


def report(op: str, error: Array, *inputs: Array) -> str:
    worst = int(np.argmax(error))
    return f"{op}{tuple(float(x[worst]) for x in inputs)}: {error[worst]:.2f} ULP"


def sample() -> Array:
    bits = np.arange(0, 2**32, STEP, dtype=np.uint64).astype(np.uint32)
    return np.concatenate([SPECIAL, bits.view(np.float32)])


LIMITS = {"tanh": (-1, 1), "erf": (-1, 1), "exp": (0, np.inf), "exp2": (0, np.inf),
          "expm1": (-1, np.inf)}


@each_machine
@pytest.mark.parametrize("op", LIMITS)
@pytest.mark.parametrize(("exact", "denormals"), [(False, "flush"), (True, "keep")])
def test_limits_are_reached(features: str, op: str, exact: bool, denormals: str) -> None:
    """x * (1 + tanh(x)) is as wrong as x is large, where tanh is almost -1."""
    x = np.array([200, 1e10, 3e38, np.inf], np.float32)
    run = program(op, 1, features, exact, denormals).run
    for found, limit in zip((run([-x])[0], run([x])[0]), LIMITS[op], strict=True):
        np.testing.assert_array_equal(found, np.full(4, limit, np.float32))


@each_machine
@pytest.mark.parametrize("op", sorted(set(REFERENCE) - {"powf"}))
def test_accuracy_over_all_numbers(features: str, op: str) -> None:
    x = sample()
    if op in ("sin", "cos", "tan"):  # large ones go to the C library, one by one
        x = x[(np.abs(x) < 1e5) | ~np.isfinite(x)]
    actual = program(op, 1, features).run([x])[0]
    with np.errstate(all="ignore"):
        error = errors_in_ulp(actual, REFERENCE[op](flushed(x).astype(np.float64)))
    assert error.max() <= allowed(op, features), report(op, error, x)


@each_machine
@pytest.mark.parametrize("op", ["sin", "cos", "tan"])
def test_large_angles(features: str, op: str) -> None:
    x = np.float32(10) ** np.linspace(3, 38, 5000, dtype=np.float32)
    actual = program(op, 1, features).run([x])[0]
    error = errors_in_ulp(actual, REFERENCE[op](x.astype(np.float64)))
    assert error.max() <= allowed(op, features), report(op, error, x)


@each_machine
def test_accuracy_of_powers(features: str) -> None:
    """Random powers of all sizes that do not overflow, and every pair of special values."""
    random = np.random.default_rng(1)
    x = np.exp2(random.uniform(-120, 120, 1 << 19)).astype(np.float32)
    y = (random.uniform(-126, 126, x.size) / np.log2(x)).astype(np.float32)
    near = random.uniform(0.9, 1.1, x.size).astype(np.float32)
    far = (random.uniform(-120, 120, x.size) / np.log2(near)).astype(np.float32)
    special = np.concatenate([SPECIAL, np.float32([2, 3, -2, -3, 0.5, -0.5, 1.5, 1e7, -1e7])])
    pairs = [a.reshape(-1) for a in np.meshgrid(special, special)]
    x, y = np.concatenate([x, near, pairs[0]]), np.concatenate([y, far, pairs[1]])
    actual = program("powf", 2, features).run([x, y])[0]
    with np.errstate(all="ignore"):
        expected = np.power(flushed(x).astype(np.float64), flushed(y).astype(np.float64))
    error = errors_in_ulp(actual, expected)
    assert error.max() <= MAX_ULP["powf"], report("powf", error, x, y)


@each_machine
@pytest.mark.parametrize(("power", "expected"), [
    (1.0, lambda x: x), (2.0, lambda x: x * x), (3.0, lambda x: x * x * x),
    (4.0, lambda x: (x * x) * (x * x)), (-1.0, lambda x: 1 / x),
])
def test_constant_powers_multiply(
    features: str, power: float, expected: Callable[[Array], Array]
) -> None:
    module = parse_module(f"""
    block.kernel @apply(%x: f32[20], %y: f32[20]) grid() sizes() {{
      %v = block.load %x[t0] : tile<[20]xf32>
      %r = block.map (%v[0]) : tile<[20]xf32> {{
      ^bb0(%a: f32):
        %c = arith.constant {power} : f32
        %s = math.powf %a, %c : f32
        block.yield %s
      }}
      block.store %r, %y[t0]
      block.yield
    }}
    host.func @main(%x: f32[20], %y: f32[20]) inputs ["x"] outputs ["y"] sizes() {{
      host.launch @apply(%x, %y) sizes()
      host.return
    }}""")
    x = np.linspace(-3, 3, 20, dtype=np.float32)
    parts = TARGET.bind(TargetOptions(features=features, threads=1))
    model = parts.running.load(module, WeightStore())
    np.testing.assert_array_equal(model.run([x])[0], expected(x))


EXACT: dict[str, tuple[Array, Array]] = {
    "log2": (np.exp2(np.arange(-126.0, 128)), np.arange(-126.0, 128)),
    "exp2": (np.arange(-126.0, 128), np.exp2(np.arange(-126.0, 128))),
    "log10": (np.array([float(f"1e{k}") for k in range(-37, 39)]), np.arange(-37.0, 39)),
}
"""Arguments, and results that must be exact."""


@each_machine
@pytest.mark.parametrize("op", EXACT)
def test_exact_results(features: str, op: str) -> None:
    x, expected = (v.astype(np.float32) for v in EXACT[op])
    np.testing.assert_array_equal(program(op, 1, features).run([x])[0], expected)


@each_machine
def test_small_whole_powers_are_exact(features: str) -> None:
    """As long as f32 holds them."""
    x, y = (v.reshape(-1) for v in np.meshgrid(np.arange(-12.0, 13), np.arange(-3.0, 12)))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    kept = (expected.astype(np.float32) == expected) & (np.abs(expected) < 2**24)
    x, y, expected = (v[kept].astype(np.float32) for v in (x, y, expected))
    np.testing.assert_array_equal(program("powf", 2, features).run([x, y])[0], expected)


# ---------------------------------------------------------------------- division
GIVEN = ("%b = block.load %s[%p] : tile<f32>", '["x", "s"]', '["y"]')
SUMMED = ("%b = block.reduce add %a dim 0 : tile<f32> block.store %b, %s[%p]",
          '["x"]', '["s", "y"]')
"""Divisors of rows: an input, or what the rows sum up to, which is an output."""


@cache
def quotients(
    features: str, exact: bool = False, divisors: tuple[str, ...] = GIVEN
) -> Executable:
    """A model that divides rows of 61 by a number each."""
    divisor, inputs, outputs = divisors
    module = parse_module(f"""
    block.kernel @divide(%x: f32[n, 61], %s: f32[n], %y: f32[n, 61]) grid(%p: n) sizes(n) {{
      %a = block.load %x[%p, t0] : tile<[61]xf32>
      {divisor}
      %q = block.map (%a[0], %b[]) : tile<[61]xf32> {{
      ^bb0(%c: f32, %d: f32):
        %r = arith.divf %c, %d : f32
        block.yield %r
      }}
      block.store %q, %y[%p, t0]
      block.yield
    }}
    host.func @main(%x: f32[n, 61], %s: f32[n], %y: f32[n, 61]) inputs {inputs} outputs {outputs}
        sizes(n) {{
      host.launch @divide(%x, %s, %y) sizes(n)
      host.return
    }}""")
    return TARGET.bind(TargetOptions(
        features=features, threads=1, exact=exact)).running.load(module, WeightStore())


def rows_for(divisors: Array) -> Array:
    """For each divisor numbers of all sizes, among them its small multiples and its neighbours."""
    random = np.random.default_rng(0)
    shape = (len(divisors), 61)
    x = random.integers(0, 2**32, shape, np.uint32).view(np.float32)
    x[:, :20] = random.standard_normal((len(divisors), 20))
    x[:, 20:40] = divisors[:, None] * np.arange(20, dtype=np.float32)
    x[:, 40:40 + len(SPECIAL[:12])] = SPECIAL[:12]
    x[:, 60] = divisors
    return x


@each_machine
@pytest.mark.parametrize("exact", [False, True])
@np.errstate(all="ignore")
def test_quotients_are_rounded_correctly(features: str, exact: bool) -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, 20_000, np.uint32)
    divisors = flushed(np.concatenate([SPECIAL, bits.view(np.float32)]))
    x = flushed(rows_for(divisors))
    expected = flushed(x / divisors[:, None])
    actual = quotients(features, exact).run([x, divisors])[0]
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    zeros = (x == 0) & (actual == 0)
    np.testing.assert_array_equal(np.signbit(actual[zeros]), np.signbit(expected[zeros]))
    if exact:
        assert same.all()
        return
    assert same[np.abs(x) >= 2.0 ** -94].all()
    assert errors_in_ulp(actual, expected.astype(np.float64)).max() <= 1.5


@each_machine
@pytest.mark.parametrize("exact", [False, True])
@np.errstate(all="ignore")
def test_shares_of_a_sum_are_off_by_little_more_than_an_ulp(features: str, exact: bool) -> None:
    """Sums of all magnitudes, among them those whose reciprocal is denormal, infinity, NaN, 0."""
    random = np.random.default_rng(2)
    scale = 2.0 ** random.integers(-90, 122, (4000, 1)).astype(np.float64)
    x = (random.random((4000, 61)) * scale).astype(np.float32)
    x[0], x[1, 7], x[2, 8], x[3, 3] = 0, np.inf, np.nan, -np.inf
    sums, actual = quotients(features, exact, SUMMED).run([x])
    assert np.isinf(sums[1]) and np.isnan(sums[2]) and np.isfinite(sums[4:]).all()
    expected = flushed(x / sums[:, None])
    if exact:
        np.testing.assert_array_equal(actual, expected)
        return
    assert np.array_equal(np.isnan(actual), np.isnan(expected))
    assert errors_in_ulp(actual, expected.astype(np.float64)).max() <= 1.5
