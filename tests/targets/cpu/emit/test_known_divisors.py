"""Quotients by numbers known at compile time: those of a division, for every mantissa."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.base import Executable, TargetOptions
from targets.cpu import TARGET
from targets.cpu.emit.division.known import reciprocal_of
from tests.targets.cpu.cpu_kernels import each_machine, parse_module

DIVISORS = (
    0.1, 3.0, 10.0, 255.0, 1 / 255, -0.3, 1 / 3, 0.7, 2.0 ** -9, -1.5, 7e-6, 3e17, 1.9999999)
"""Among them numbers of few bits and of many, powers of two, and numbers without exact parts."""
AT_THE_ENDS = (0.0, -0.0, float("inf"), float("nan"), 1e-45, 2.0 ** -126, 2.0 ** 127, 3e38)


def as_f32(number: float) -> float:
    return float(np.float32(number))


@cache
def quotients(features: str, divisor: float) -> Executable:
    """A model that divides a vector of any length."""
    module = parse_module(f"""
    block.kernel @divide(%x: f32[n], %y: f32[n]) grid(%p: n ceildiv 4096) sizes(n) {{
      block.for %i = 4096*%p to min(n, 4096*%p + 4096) step 64 parallel {{
        %a = block.load %x[%i + t0] check [0] pad 1.0 : tile<[64]xf32>
        %q = block.map (%a[0]) : tile<[64]xf32> {{
        ^bb0(%c: f32):
          %d = arith.constant {divisor!r} : f32
          %r = arith.divf %c, %d : f32
          block.yield %r
        }}
        block.store %q, %y[%i + t0] check [0]
        block.yield
      }}
      block.yield
    }}
    host.func @main(%x: f32[n], %y: f32[n]) inputs ["x"] outputs ["y"] sizes(n) {{
      host.launch @divide(%x, %y) sizes(n)
      host.return
    }}""")
    return TARGET.bind(TargetOptions(features=features, threads=1)).running.load(
        module, WeightStore())


def every_mantissa() -> Array:
    """All numbers from 1 to 2, zeros, infinities, NaN, and others of both signs."""
    numbers = np.arange(127 << 23, 128 << 23, dtype=np.uint32).view(np.float32)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e30, -1e-5], "f4")
    return np.concatenate([special, numbers])


@each_machine
@pytest.mark.parametrize("divisor", DIVISORS)
@np.errstate(all="ignore")
def test_every_mantissa_is_divided_exactly(features: str, divisor: float) -> None:
    x = every_mantissa()
    [actual] = quotients(features, as_f32(divisor)).run([x])
    expected = x / np.float32(divisor)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual[:4]), np.signbit(expected[:4]))


def test_most_divisors_have_exact_parts() -> None:
    random = np.random.default_rng(0)
    drawn = random.integers(100 << 23, 150 << 23, 500, np.uint32).view(np.float32)
    found = [reciprocal_of(float(y)) for y in drawn]
    parts = [(y, p) for y, p in zip(drawn, found, strict=True) if p is not None]
    assert len(parts) > 400
    for y, (high, low) in parts:
        assert high == as_f32(high) and low == as_f32(low)
        assert abs((high + low) * float(y) - 1) <= 2.0 ** -47
    assert None in found and reciprocal_of(as_f32(1 / 3)) is None


@pytest.mark.parametrize("divisor", AT_THE_ENDS)
def test_divisors_at_the_ends_of_the_range_are_left_to_a_division(divisor: float) -> None:
    assert reciprocal_of(divisor) is None


def test_powers_of_two_are_multiplications() -> None:
    assert reciprocal_of(0.125) == (8.0, 0.0)
    assert reciprocal_of(-1024.0) == (-(2.0 ** -10), 0.0)
