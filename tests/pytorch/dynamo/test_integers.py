"""Integers of a call, and integers that a run computes: of any sign, as sizes, indices, elements,
carried values and results. Nothing runs eagerly, and code is made once for each combination of
signs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from tests.pytorch.programs import check_outputs

OPTIONS = {"cache": "off", "tuned": "off", "threads": 1}
Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def _counted(natively: None) -> Iterator[None]:
    torch._dynamo.utils.counters.clear()
    yield


def recompilations() -> int:
    return torch._dynamo.utils.counters["strata"]["recompilations"]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="strata", options=OPTIONS)


def check(function: Callable[..., Any], *calls: tuple[Any, ...]) -> None:
    fast = compiled(function)
    for call in calls:
        found, wanted = fast(*call), function(*call)
        found = found if isinstance(found, tuple) else (found,)
        check_outputs(list(found), wanted)


X = torch.linspace(-2, 2, 77).reshape(7, 11)
SIGNED: dict[str, Callable[[Tensor, int], Any]] = {
    "start": lambda x, k: x[k:], "stop": lambda x, k: x[:k] * 2,
    "row": lambda x, k: x[k] + 1, "column": lambda x, k: x[:, k] + 1,
    "rolled": lambda x, k: x.roll(k, 1), "upper": lambda x, k: x.triu(k),
    "lower": lambda x, k: x.tril(k), "range": lambda x, k: torch.arange(k, 6) * x[0, 0],
    "padded": lambda x, k: torch.nn.functional.pad(x, (k, 1, 1, k)),
    "quotient": lambda x, k: x * (k // 3) + k % 3, "magnitude": lambda x, k: x[abs(k):] * abs(k),
    "written": lambda x, k: x.index_fill(0, torch.tensor([k]), 5.0),
    "also an element": lambda x, k: x[k:] * k, "window": lambda x, k: x[:, k:k + 3].sum(1)}


@pytest.mark.parametrize("values", [(-3, -2, -5, -1), (2, 3, -2, -5, 4, -3, 0)],
                         ids=["negative", "mixed"])
@pytest.mark.parametrize("name", SIGNED)
def test_integers_of_any_sign(name: str, values: tuple[int, ...]) -> None:
    """Also where Dynamo itself compiles one graph for both signs."""
    check(SIGNED[name], *((X, k) for k in values))
    assert recompilations() <= (min(values) < 0 <= max(values))


def test_signs_of_several_integers() -> None:
    calls = [(2, 7), (3, 9), (-8, -2), (-7, -3), (1, -3), (-9, 10), (4, -1), (-2, -1)]
    check(lambda x, a, b: x[:, a:b] * 2, *((X, *call) for call in calls))


def test_an_index_of_a_sign_that_no_argument_tells() -> None:
    check(lambda x, a, b: x[a - b], *((X, *call) for call in [(5, 2), (6, 3), (2, 6), (3, 3)]))


def test_code_for_other_signs_takes_other_weights() -> None:
    layer = torch.nn.Linear(11, 5).eval()
    fast = compiled(lambda x, k: layer(x).roll(k, 0))
    for k in (2, 3, -2, 4, -3):
        layer.bias.add_(1)
        check_outputs([fast(X, k)], layer(X).roll(k, 0))
    assert recompilations() == 1


def test_integers_far_from_sizes_have_signs_too(caplog: pytest.LogCaptureFixture) -> None:
    """Two negative integers are one combination of signs, and what repeats is not made again."""
    fast = compiled(lambda x, a, b: x[a:b])
    for _ in range(3):
        for call in [(1, 5), (2, 6), (-6, -1), (-5, -2)]:
            check_outputs([fast(X, *call)], X[slice(*call)])
    assert recompilations() <= 1


# ---------------------------------------------------------------------- computed by a run
LOOPS: dict[str, Callable[[Tensor], Any]] = {
    "counted": lambda x: while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x + i), (0, x)),
    "downwards": lambda x: while_loop(
        lambda i, x: i > -4, lambda i, x: (i - 1, x + i), (3, x)),
    "as an index": lambda x: while_loop(
        lambda i, x: i < 5, lambda i, x: (i + 1, x + x[i]), (0, x)),
    "two": lambda x: while_loop(
        lambda i, j, x: i < 5, lambda i, j, x: (i + 2, j - i, x * 0.5 - j), (0, 3, x)),
    "to a size": lambda x: while_loop(
        lambda i, x: i < x.shape[0], lambda i, x: (i + 1, x * 1.25), (0, x))}


@pytest.mark.parametrize("name", LOOPS)
def test_integers_that_a_loop_carries(name: str) -> None:
    """As conditions, elements, indices and results."""
    function = LOOPS[name]
    with torch._dynamo.config.patch(capture_scalar_outputs=True):  # for indices
        found, wanted = compiled(function)(X), function(X)
    for mine, given in zip(found, wanted, strict=True):
        assert type(mine) is type(given)
        assert mine == given if isinstance(given, int) else torch.allclose(mine, given)


@pytest.mark.parametrize("function", [
    lambda x: (x.sum().long().item(), x + 1), lambda x: (2 * x.sum().long().item() - 1, x),
    lambda x: (x * 2, x.min().item()), lambda x: (x.max().item() * 0.5, x.cos())],
    ids=["integer", "of an integer", "float", "of a float"])
def test_numbers_that_a_run_reads_are_results(function: Callable[[Tensor], Any]) -> None:
    fast = compiled(function)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        for x in (X + 1, X - 1):
            for mine, given in zip(fast(x), function(x), strict=True):
                assert type(mine) is type(given)
                assert torch.allclose(torch.as_tensor(mine), torch.as_tensor(given))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
