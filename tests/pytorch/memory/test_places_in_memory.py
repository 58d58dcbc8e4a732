"""`as_strided` of inputs and of values, some parts of which are results, against eager mode."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.pytorch.programs import flat


def written(x: Any) -> Any:
    part = x.as_strided((2, 3), (1, 2))
    part.mul_(3)
    return x.sum(), part


def inner(x: Any) -> Any:
    y = x * 2
    part = y.as_strided((2, 3), (3, 1), 2)
    part.add_(1)
    return y, part


NATIVE: dict[str, Callable[[Any], Any]] = {
    "of an input": lambda x: (x.as_strided((2, 3), (3, 1), 7), x * 2), "written": written,
    "of a value": inner, "turned": lambda x: (x + 1).as_strided((4, 5), (1, 4), 3) * 2}
SPLIT: dict[str, Callable[[Any], Any]] = {
    "windows": lambda x: (x * 2).as_strided((5, 3), (1, 1)),
    "gaps": lambda x: (x * 2).as_strided((5, 3), (6, 1)),
    "none": lambda x: (x * 2).as_strided((0, 3), (3, 1)) + 1}


def check(function: Callable[..., Any], *inputs: Any) -> None:
    """Equal results in equal memory, which is the inputs' where eager mode's is."""
    torch._dynamo.reset()
    given = [v.clone() for v in inputs]
    want = flat(function(*inputs))
    got = flat(torch.compile(function, backend="strata", fullgraph=True)(*given))
    for a, b in zip([*got, *given], [*want, *inputs], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
        assert a.stride() == b.stride()
    for a, b in zip(got, want, strict=True):
        assert [place(a) == place(v) for v in given] == [place(b) == place(v) for v in inputs]


def place(x: Any) -> int:
    return x.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", [*NATIVE, *SPLIT])
def test_results(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="strata"):
        check({**NATIVE, **SPLIT}[name], torch.randn(3, 4, 5))
    assert name in SPLIT or "eagerly" not in caplog.text


def test_beyond_the_tensor() -> None:
    """The places are those of the larger tensor of which the argument is a part."""
    whole = torch.arange(60.0)
    part, reach = whole[3:33].view(5, 6), lambda x: x.as_strided((2, 2), (2, 1), 40) * 2
    torch._dynamo.reset()
    assert torch.equal(torch.compile(reach, backend="strata")(part), reach(part))


def test_arguments_that_overlap(caplog: pytest.LogCaptureFixture) -> None:
    def call(a: Any, b: Any) -> Any:
        a.add_(1)
        return a + b, b * 2

    first, second = torch.ones(4, 6), torch.ones(4, 6)
    torch._dynamo.reset()
    want = call(first[:2], first[1:3])
    with caplog.at_level(logging.WARNING, logger="strata"):
        got = torch.compile(call, backend="strata")(second[:2], second[1:3])
    assert all(map(torch.equal, (*got, second), (*want, first)))
    assert "eagerly" not in caplog.text
