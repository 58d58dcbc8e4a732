"""Functions whose results are exact in PyTorch or ONNX: to the bit, also at the ends of the types.

Quotients that are rounded down, remainders, logarithms and powers of small integers, shifts. Each
program has many results, so that it is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

from tests.pytorch.programs import export, run  # noqa: E402

ENDS = (0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 0.7, -2.5, 3.0, -7.0, 16777217.0, 1e10, -1e20, 1e-9,
        np.inf, -np.inf, np.nan)
"""PyTorch itself gives NaN for remainders of quotients above 1e38."""
FLOATS = (torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)


def pairs(numbers: Sequence[float], dtype: Any) -> list[Any]:
    """Every number with every other one."""
    x, y = np.meshgrid(np.array(numbers), np.array(numbers))
    return [torch.tensor(v.reshape(-1)).to(dtype) for v in (x, y)]


def check(function: Callable[..., Any], inputs: Sequence[Any], target: str = "cpu") -> None:
    """All results are PyTorch's, with the same signs of zeros."""
    found = run(export(function, inputs), inputs, target)
    for k, (got, want) in enumerate(zip(found, function(*inputs), strict=True)):
        assert got.dtype == want.dtype
        same = (got == want) | ((got != got) & (want != want))
        if got.is_floating_point():
            same &= (torch.signbit(got) == torch.signbit(want)) | (want != want)
        wrong = torch.nonzero(~same).reshape(-1)
        assert not len(wrong), (
            f"result {k} at {[v.reshape(-1)[wrong[0]].item() for v in inputs if v.shape]}: "
            f"{got[wrong[0]]}, not {want[wrong[0]]}")


# ---------------------------------------------------------------------- division
def of_floats(x: Any, y: Any) -> list[Any]:
    return [torch.floor_divide(x, y), torch.div(x, y, rounding_mode="floor"), x // 0.1, -7.5 // y,
            torch.div(x, y, rounding_mode="trunc"), torch.remainder(x, y), x % 0.7, -2.5 % y,
            torch.fmod(x, y), torch.fmod(x, -0.3), torch.trunc(x), torch.round(x), torch.floor(y),
            torch.ceil(y), torch.frac(x)]


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_quotients_and_remainders(dtype: Any, target: str) -> None:
    check(of_floats, pairs(ENDS, dtype), target)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.bfloat16, torch.float16])
def test_decimals(dtype: Any) -> None:
    """In numbers of 16 bits, too, where the scaled elements need more."""
    numbers = [0.334, 0.125, -0.375, 2.675, 15.0, -13.0, 99.96, 1000.0, -1024.0, 1e4, 65504.0,
               0.0, -0.0, np.inf, -np.inf, np.nan]
    check(lambda x: [torch.round(x, decimals=k) for k in (-2, -1, 0, 1, 2, 3)],
          [torch.tensor(numbers).to(dtype)])


def test_random_quotients() -> None:
    """Of multiples, whose quotients are almost whole."""
    source = torch.Generator().manual_seed(0)
    y = torch.randn(3000, generator=source)
    x = y * torch.randint(-1000, 1000, (3000,), generator=source)
    check(of_floats, [x, y])


def integer_ends(dtype: Any) -> list[int]:
    """The smallest and largest integers, and small ones."""
    info = torch.iinfo(dtype)
    return sorted({n for n in (info.min, info.min + 1, -7, -3, -1, 0, 1, 2, 3, 7, 8, info.max - 1,
                               info.max) if info.min <= n})


def of_integers(x: Any, y: Any) -> list[Any]:
    return [torch.floor_divide(x, y), torch.div(x, y, rounding_mode="floor"), x // 3,
            torch.remainder(x, y), torch.fmod(x, y), x % 5]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_quotients(dtype: Any) -> None:
    """PyTorch refuses to divide by 0."""
    numbers = np.array(integer_ends(dtype), dtype=str(dtype).removeprefix("torch."))
    x, y = (torch.from_numpy(v.reshape(-1)) for v in np.meshgrid(numbers, numbers[numbers != 0]))
    check(of_integers, [x, y])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_quotients_toward_zero(dtype: Any) -> None:
    """PyTorch ends the process for the smallest integer over -1."""
    numbers = np.array(integer_ends(dtype), dtype=str(dtype).removeprefix("torch."))
    divisors = numbers[(numbers != 0) & (numbers != numbers.dtype.type(0) - numbers.dtype.type(1))]
    x, y = (torch.from_numpy(v.reshape(-1)) for v in np.meshgrid(numbers, divisors))
    check(lambda x, y: [torch.div(x, y, rounding_mode="trunc")], [x, y])


def shifts(x: Any, y: Any) -> list[Any]:
    return [x << y, x >> y, torch.bitwise_left_shift(x, 3), torch.bitwise_right_shift(x, 2), 5 << y,
            -9 >> y if x.dtype != torch.uint8 else 9 >> y, ~x]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype: Any) -> None:
    amounts = [-1, 0, 1, 7, 8, 31, 32, 63, 64, 100]
    numbers = np.array(integer_ends(dtype), dtype=str(dtype).removeprefix("torch."))
    kept = [n for n in amounts if n >= 0 or dtype != torch.uint8]
    x, y = np.meshgrid(numbers, np.array(kept, numbers.dtype))
    check(shifts, [torch.from_numpy(v.reshape(-1)) for v in (x, y)])


# ---------------------------------------------------------------------- signs
@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", [*FLOATS, torch.float16])
def test_signs(dtype: Any, target: str) -> None:
    """The sign of -0 is 0."""
    check(lambda x: [torch.sign(x), torch.sgn(x), torch.sign(-x), abs(x), -x, torch.signbit(x)],
          [torch.tensor(ENDS).to(dtype)], target)


# ---------------------------------------------------------------------- powers
@pytest.mark.parametrize("dtype", FLOATS)
def test_logarithms_and_powers_of_two_and_ten(dtype: Any) -> None:
    few = dtype == torch.float32
    exponents = torch.arange(-37, 39).to(dtype) if few else torch.arange(-307, 309).to(dtype)
    tens = torch.tensor([float(f"1e{k:.0f}") for k in exponents], dtype=torch.float64).to(dtype)

    def function(exponents: Any, tens: Any) -> list[Any]:
        twos = torch.exp2(exponents)
        return [twos, torch.log2(twos), torch.log10(tens), torch.pow(2.0, exponents)]

    check(function, [exponents, tens])


@pytest.mark.parametrize("dtype", FLOATS)
def test_powers_of_small_integers(dtype: Any) -> None:
    x, y = (torch.tensor(v.reshape(-1)) for v in np.meshgrid(np.arange(-9, 10), np.arange(8)))

    def function(x: Any, y: Any) -> list[Any]:
        return [x ** y, *(x ** k for k in range(8)), *(float(k) ** y for k in (2, 3, 5, 7))]

    check(function, [x.to(dtype), y.to(dtype)])
