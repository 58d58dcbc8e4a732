"""Integers that are divided by zero raise what eager mode raises; nothing else does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import compiler

CASES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "//": lambda x, y: x // y, "%": lambda x, y: x % y, "fmod": torch.fmod,
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "a number": lambda x, y: x // 0 + y, "of a number": lambda x, y: torch.remainder(5, y),
    "a constant": lambda x, y: x % torch.tensor([3, 0]) + y,
    "a size": lambda x, y: x // (y.shape[0] - 2), "in place": lambda x, y: x.floor_divide_(y),
    "a part": lambda x, y: (x // y)[:1], "nothing": lambda x, y: x[:0] // y[1:],
    "a row": lambda x, y: x[:, None] // y, "true": lambda x, y: x / y,
    "conditions": lambda x, y: x % (y > 1)}


def outcome(function: Callable[[], Tensor]) -> Tensor | str:
    try:
        return function()
    except RuntimeError:  # by name: not only its own class is eager's
        return "RuntimeError"


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_division_by_zero(name: str, dynamic: bool, target: str) -> None:
    torch._dynamo.reset()
    fast = torch.compile(CASES[name], backend="strata", dynamic=dynamic,
                         options={"cache": "off", "target": target})
    for dtype in (torch.int64, torch.int8):
        x = torch.tensor([4, -5], dtype=dtype)
        for divisors in ([2, 3], [-1, 0], [0, 7]):
            y = torch.tensor(divisors, dtype=dtype)
            want = outcome(lambda x=x, y=y: CASES[name](x.clone(), y))
            got = outcome(lambda x=x, y=y: fast(x.clone(), y))
            assert type(got) is type(want)
            assert isinstance(want, str) or torch.equal(got, want)


def test_the_error_names_the_node() -> None:
    torch._dynamo.reset()
    fast = torch.compile(lambda x, y: x // y, backend="strata", options={"cache": "off"})
    with pytest.raises(compiler.DivisionByZeroError, match="divided by zero at node 'floor_divide"):
        fast(torch.tensor([1]), torch.tensor([0]))
