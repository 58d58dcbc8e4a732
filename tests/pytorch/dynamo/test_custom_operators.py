"""Operators of users: they run eagerly between compiled parts, or an importer compiles them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import compiler
from tests.pytorch.operators.foreign import foreign, stranger

OPTIONS: dict[str, Any] = {"threads": 1, "cache": "off"}
IMPORTER = Path(__file__).with_name("sine_importer.py")


@torch.library.custom_op("strata_tests::add_one_", mutates_args=("x",))
def add_one_(x: Tensor, by: float = 1.0) -> None:
    x.add_(by)


@torch.library.custom_op("strata_tests::halves", mutates_args=())
def halves(xs: list[Tensor], dim: int) -> tuple[Tensor, Tensor]:
    first, second = torch.cat(xs, dim).chunk(2, dim)
    return first.clone(), second.clone()


@halves.register_fake
def _(xs: list[Tensor], dim: int) -> tuple[Tensor, Tensor]:
    first, second = torch.cat(xs, dim).chunk(2, dim)
    return torch.empty_like(first), torch.empty_like(second)


LIBRARY = torch.library.Library("strata_tests", "FRAGMENT")
LIBRARY.define("composed(Tensor x, float scale) -> Tensor")


@torch.library.impl(LIBRARY, "composed", "CompositeImplicitAutograd")
def _composed(x: Tensor, scale: float) -> Tensor:
    return x.sin() * scale + x


def once(x: Tensor) -> Any:
    return foreign(x.exp() + 1).sum(-1)


def twice_in_a_row(x: Tensor) -> Any:
    return stranger(foreign(x * 2)) * x


def side_by_side(x: Tensor) -> Any:
    y = x.tanh()
    return foreign(y) + stranger(y.t()).t(), y


def writes_an_argument(x: Tensor) -> Any:
    add_one_(x)
    return x * 2


def writes_a_value(x: Tensor) -> Any:
    y = x.exp()
    add_one_(y, 0.5)
    add_one_(y[0])
    return y.sum()


def of_lists(x: Tensor) -> Any:
    a, b = halves([x, x * 2], 0)
    return a.relu() + b.relu()


def only_foreign(x: Tensor) -> Any:
    return foreign(x)


def composed(x: Tensor) -> Any:
    return torch.ops.strata_tests.composed(x + 1, 0.5).cos()


EAGER: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "once": (once, "foreign"), "row": (twice_in_a_row, "foreign"),
    "side": (side_by_side, "stranger"), "argument": (writes_an_argument, "add_one_"),
    "value": (writes_a_value, "add_one_"), "lists": (of_lists, "halves"),
    "alone": (only_foreign, "foreign")}


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "strata"]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", EAGER)
@torch.no_grad()
def test_what_no_importer_knows(
    name: str, dynamic: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It runs eagerly, and is named with the user's operator and line."""
    function, operator = EAGER[name]
    fast = torch.compile(function, backend="strata", fullgraph=True, dynamic=dynamic,
                         options=OPTIONS)
    with caplog.at_level(logging.WARNING, "strata"):
        for rows in (4, 2):
            mine = torch.randn(rows, 4)
            other = mine.clone()
            torch.testing.assert_close(fast(mine), function(other))
            torch.testing.assert_close(mine, other)
    assert told(caplog) and all(
        f"strata_tests.{operator}.default is not supported ({__file__}:" in m
        and f"in {function.__name__}: " in m and "importer" in m for m in told(caplog))


@torch.no_grad()
def test_what_is_composed_is_compiled(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(3, 4)
    fast = torch.compile(composed, backend="strata", fullgraph=True, options=OPTIONS)
    torch.testing.assert_close(fast(x), composed(x))
    assert not told(caplog)


@pytest.mark.parametrize("rest", [False, True])
@torch.no_grad()
def test_an_importer_compiles_it(rest: bool, caplog: pytest.LogCaptureFixture) -> None:
    """As a part of its graph; beside another operator that no importer knows, too."""
    function = twice_in_a_row if rest else once
    options = {**OPTIONS, "plugins": [str(IMPORTER)]}
    fast = torch.compile(function, backend="strata", fullgraph=True, options=options)
    x = torch.randn(3, 4)
    torch.testing.assert_close(fast(x), function(x), rtol=1e-4, atol=1e-5)
    found = " ".join(told(caplog))
    assert ("stranger" in found) == rest and "strata_tests.foreign" not in found


def test_an_importer_that_there_is_not() -> None:
    fast = torch.compile(once, backend="strata", options={"plugins": ["nowhere.py"]})
    with pytest.raises(Exception, match="nowhere"):
        fast(torch.ones(3, 4))


def test_the_explanation_names_them() -> None:
    found = compiler.explain(twice_in_a_row, torch.randn(3, 4), **OPTIONS)
    assert len(found.graphs) == 2 and found.captured == 1 and not found.breaks
    [(nodes, why)] = found.eager
    assert len(nodes) == 2 and "foreign" in why and "stranger" in why and __file__ in why
