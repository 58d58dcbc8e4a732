"""Results that are views, of arguments and of each other, share memory as they do eagerly.

Values, strides and offsets are compared, which results and arguments share memory, and what a later
write into each result changes.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.pytorch.memory.sharing import differences
from tests.pytorch.memory.views import (
    CONTIGUOUS,
    LAYOUTS,
    OVERLAPPING,
    USES,
    VIEWS,
    WRITES,
    View,
    matrix,
)
from tests.pytorch.operators.foreign import foreign

OPEN: dict[bool, dict[str, Any]] = {False: {}, True: {"dynamic": True}}


def check(f: Any, layout: str, is_open: bool, target: str = "reference") -> None:
    calls = [lambda n=n: [LAYOUTS[layout](n)] for n in ((8, 14) if is_open else (8,))]
    assert not differences(f, calls, target=target, **OPEN[is_open])


def views_of(layout: str) -> dict[str, View]:
    return {**VIEWS, **OVERLAPPING, **(CONTIGUOUS if layout == "contiguous" else {})}


QUICK = {("of a result", "contiguous", True), ("of an argument", "in the middle", True),
         ("of what was written", "with gaps", True),
         ("of a transposed intermediate", "contiguous", False)}
"""Those of all combinations that are tested each time: tracing so many views takes seconds."""


@pytest.mark.parametrize(("use", "layout", "is_open"), [
    pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow)
    for case in product(USES, LAYOUTS, OPEN)])
def test_all_views(use: str, layout: str, is_open: bool) -> None:
    """All of them at once, so that each shares memory with every other one."""
    views = views_of("" if "transposed" in use else layout)
    check(USES[use](lambda x: [view(x) for view in views.values()]), layout, is_open)


@pytest.mark.parametrize("view", [*VIEWS, *OVERLAPPING, *CONTIGUOUS])
def test_the_only_view(view: str) -> None:
    use = USES["of what is not used otherwise"]
    check(use(views_of("contiguous")[view]), "contiguous", is_open=True)


@pytest.mark.parametrize(("write", "layout", "is_open"), [
    pytest.param(*case, marks=[] if case[1:] == ("with gaps", False) else pytest.mark.slow)
    for case in product(WRITES, ("contiguous", "with gaps"), OPEN)])
def test_writes_through_views(write: str, layout: str, is_open: bool) -> None:
    """One after another, so that each sees what the others have written."""
    views = [v for name, v in VIEWS.items() if name not in ("bits", "sizes")]
    check(WRITES[write](lambda x: [t for view in views for t in _listed(view(x))]), layout, is_open)


@pytest.mark.parametrize("view", ["t", "row", "chunk", "transposed twice", "diagonal", "unfold"])
def test_a_write_through_one_view(view: str) -> None:
    check(WRITES["an argument"](views_of("")[view]), "with gaps", is_open=True)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


# ---------------------------------------------------------------------- after graph breaks
def later(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    row, rest, wide = y[0], y[1:].t(), x[:1].expand(3, -1)
    torch._dynamo.graph_break()
    row.zero_()
    rest[1:].copy_(wide[0, 0])
    return y, wide


def cache(x: Tensor) -> Tensor:
    kept = torch.zeros(8, 6)
    part = kept[:x.shape[0] - 2]
    torch._dynamo.graph_break()
    part.copy_(x[2:])
    return kept


@pytest.mark.parametrize("is_open", OPEN)
@pytest.mark.parametrize("f", [later, cache])
def test_writes_after_a_graph_break(f: View, is_open: bool) -> None:
    check(f, "contiguous", is_open, target="cpu")


def test_the_second_size_is_open_by_default() -> None:
    calls = [lambda n=n: [matrix(n, 6)] for n in (6, 10, 4)]
    assert not differences(lambda x: [*x.chunk(2), x + 1], calls, target="cpu")


def test_results_that_are_equal_are_not_one() -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.clone(), x + 0, (y := x.relu()), y.clone(), x.relu(), torch.ones(2), torch.ones(2)

    for target in ("cpu", "reference"):
        check(f, "contiguous", is_open=False, target=target)


def test_operators_that_run_eagerly_between_compiled_parts() -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        y = x.t() * 2
        z = foreign(y[1:])
        return y, z, z.t()[1:], y.as_strided((2, 2), (1, 3), 1) + 1, (z + 1)[::2]

    for is_open in OPEN:
        check(f, "contiguous", is_open)
