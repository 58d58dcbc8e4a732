"""`compiler.explain` of a program of `torch.compile` compiles it with the program's own options."""

from __future__ import annotations

from typing import Any

import pytest

import compiler

torch: Any = pytest.importorskip("torch")


def chain(x: Any) -> Any:
    return torch.relu(torch.sin(x) + torch.cos(x))


class Chain(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return chain(x)


def kernels(program: Any, **options: Any) -> int:
    found = compiler.explain(program, torch.randn(7, 5), **options)
    return sum(len(graph["kernels"]) for graph in found.json["graphs"])


@pytest.mark.parametrize("program", [chain, Chain()], ids=["function", "module"])
def test_the_strategy_of_the_program_is_that_of_the_explanation(program: Any) -> None:
    per_op = torch.compile(program, backend="strata", options={"strategy": "per-op"})
    whole = torch.compile(program, backend="strata")
    assert kernels(whole) == 1
    assert kernels(per_op) == 4
    assert kernels(per_op, strategy="whole-graph") == 1
