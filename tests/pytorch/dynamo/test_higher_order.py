"""Operators that take functions: loops, scans, branches and maps, natively and as eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops import associative_scan, scan
from torch._higher_order_ops.map import map as mapped

OPTIONS = {"threads": 1, "cache": "off"}
pytestmark = pytest.mark.usefixtures("natively")
while_loop: Any = torch._higher_order_ops.while_loop


def running_sum(x: Tensor) -> Any:
    return associative_scan(lambda a, b: a + b, x, dim=0, combine_mode="generic")


def running_product_backwards(x: Tensor) -> Any:
    return associative_scan(lambda a, b: a * b, x, dim=1, reverse=True, combine_mode="generic")


def linear_recurrence(x: Tensor) -> Any:
    """States of s = a * s + b, as in state space models: pairs are combined."""
    def step(one: Any, two: Any) -> Any:
        return one[0] * two[0], one[1] * two[0] + two[1]

    return associative_scan(step, (x.sigmoid(), x), dim=0, combine_mode="generic")


def running_products_of_matrices(x: Tensor) -> Any:
    return associative_scan(torch.matmul, x[:, None, :] * torch.ones(x.shape[1], 1), dim=0,
                            combine_mode="generic")


def structured(x: Tensor) -> Any:
    def step(one: Any, two: Any) -> Any:
        return {"sum": one["sum"] + two["sum"],
                "most": [torch.maximum(one["most"][0], two["most"][0])]}

    return associative_scan(step, {"sum": x, "most": [x.sin()]}, dim=0, combine_mode="generic")


def cumulated(x: Tensor) -> Any:
    return scan(lambda c, row: (c * 0.5 + row, (c + row).tanh()), x[0].clone(), x, dim=0)


def scan_of_pairs(x: Tensor) -> Any:
    def step(state: Any, rows: Any) -> Any:
        (count, total), (a, b) = state, rows
        return (count + 1, total + a * b), {"mean": total / count}

    return scan(step, (torch.ones(()), torch.zeros(x.shape[1])), (x, x.cos()), reverse=True)


def until_small(x: Tensor) -> Any:
    return while_loop(lambda n, y: (y.abs().max() > 0.1) & (n < 50),
                      lambda n, y: (n + 1, y * 0.5), (torch.tensor(0), x.clone()))


def loop_in_a_branch(x: Tensor) -> Any:
    def loops(y: Tensor) -> Tensor:
        return while_loop(lambda n, y: n < 4, lambda n, y: (n + 1, y + n),
                          (torch.tensor(0), y.clone()))[1]

    return torch.cond(x.sum() > 0, loops, lambda y: y.exp(), (x,))


def branch_in_a_loop(x: Tensor) -> Any:
    def step(n: Tensor, y: Tensor) -> Any:
        return n + 1, torch.cond(n % 2 == 0, lambda y: y * 2, lambda y: y - 1, (y,))

    return while_loop(lambda n, y: n < 5, step, (torch.tensor(0), x.clone()))


def branch_in_a_scan(x: Tensor) -> Any:
    def step(state: Tensor, row: Tensor) -> Any:
        found = torch.cond(row.sum() > 0, lambda s, r: s + r, lambda s, r: s - r, (state, row))
        return found, found * 2

    return scan(step, torch.zeros(x.shape[1]), x)


def each_row(x: Tensor) -> Any:
    return mapped(lambda row, all_rows: row.softmax(0) @ all_rows.mT, x, x * 2)


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {f.__name__: f for f in (
    running_sum, running_product_backwards, linear_recurrence, running_products_of_matrices,
    structured, cumulated, scan_of_pairs, until_small, loop_in_a_branch, branch_in_a_loop,
    branch_in_a_scan, each_row)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function = FUNCTIONS[name]
    fast = torch.compile(function, backend="strata", fullgraph=True, options=OPTIONS)
    for x in (torch.rand(5, 3), torch.rand(5, 3) - 1, torch.rand(8, 3)):
        torch.testing.assert_close(fast(x), function(x), rtol=1e-4, atol=1e-5)


class Cell(nn.Module):
    """A scan whose step has weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.state = nn.Linear(3, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        def step(state: Tensor, row: Tensor) -> Any:
            found = (self.inner(row) + self.state(state)).tanh()
            return found, found.clone()

        return scan(step, torch.zeros(x.shape[1], 4), x)


def test_a_scan_with_weights() -> None:
    cell = Cell().eval()
    fast = torch.compile(cell, backend="strata", fullgraph=True, options=OPTIONS)
    for steps in (4, 7):
        x = torch.randn(steps, 2, 3)
        torch.testing.assert_close(fast(x), cell(x), rtol=1e-4, atol=1e-5)
    cell.inner.weight.mul_(2)
    torch.testing.assert_close(fast(x), cell(x), rtol=1e-4, atol=1e-5)
