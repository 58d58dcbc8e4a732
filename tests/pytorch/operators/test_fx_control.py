"""Branches and loops to GraphModules with `cond` and `while_loop`, and back into programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan

import compiler
from tests.pytorch.programs import Function, flat

PLACES = torch.arange(4.0)


def branches(x: Tensor) -> Any:
    """One in another; each has a constant of its own."""
    def positive(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cond(x.max() > 1, lambda x: (x * 2, x.sum() + PLACES),
                          lambda x: (x - 1, x.mean(0)), (x,))

    return torch.cond(x.sum() > 0, positive, lambda x: (x.abs(), x.amin(0)), (x,))


def steps(x: Tensor) -> Any:
    """Until a condition on the data fails; the number of iterations is a value."""
    return torch.while_loop(lambda i, x: (i < 5) & (x.abs().max() < 50),
                            lambda i, x: (i + 1, x * 1.5 + i), (torch.tensor(0), x))


def scanned(x: Tensor) -> Any:
    """Rows in order, with weights, and what each gives."""
    return scan(lambda c, row: (c * 0.5 + row, (c + row) @ torch.ones(4, 2)), x[0] * 0, x)


def in_reverse(x: Tensor) -> Any:
    return scan(lambda c, row: (c + row, c * row), x[0] * 0, x, reverse=True)


def in_loops(x: Tensor) -> Any:
    """A branch in each iteration of a loop."""
    def step(c: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cond(row.sum() > 0, lambda c, row: (c + row, row * 2),
                          lambda c, row: (c - row, row * 3), (c, row))

    return scan(step, x[0] * 0, x)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "branches": branches, "steps": steps, "scan": scanned, "in reverse": in_reverse,
    "a branch in a loop": in_loops, "rows": lambda x: map_rows(
        lambda row, y: (row @ y.T).relu(), x, x * 2),
    "divisors": lambda x: torch.gcd((x * 10).long(), torch.tensor(12)),
    "eigenvalues": lambda x: torch.linalg.eigvalsh(x.T @ x)}
X = torch.randn(5, 4, generator=torch.Generator().manual_seed(3))


def check(ours: Any, model: Function, *inputs: Tensor) -> None:
    for x in inputs:
        for a, b in zip(ours(x), flat(model(x)), strict=True):
            torch.testing.assert_close(torch.as_tensor(a), b, rtol=1e-4, atol=1e-5)


OPEN = ("branches", "steps", "scan", "a branch in a loop")


@torch.no_grad()
@pytest.mark.parametrize(("name", "is_open"), [
    *((name, False) for name in FUNCTIONS), *((name, True) for name in OPEN)])
def test_there_and_back(name: str, is_open: bool) -> None:
    """Both branches run, and loops of several lengths; before and after the graph passes."""
    model = Function(FUNCTIONS[name])
    sizes = {"inputs": ({0: torch.export.Dim("n", min=2, max=64)},)} if is_open else None
    program = torch.export.export(model, (X,), dynamic_shapes=sizes)
    for simplify in (False, True):
        made = compiler.to_fx(program, simplify=simplify)
        called = {str(n.target) for graph in made.modules()
                  if isinstance(graph, torch.fx.GraphModule)
                  for n in graph.graph.nodes if n.op == "call_function"}
        assert {"cond", "while_loop"} & called
        check(made, model, X, -X.abs(), *([X[:3], torch.cat([X, X])] if is_open else []))
    exe = compiler.compile(made, args=(X,), target="reference", cache="off")
    check(exe, model, X, -X.abs())
