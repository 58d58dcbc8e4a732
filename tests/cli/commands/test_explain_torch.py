"""`compiler.explain` of programs of PyTorch: each graph, and what runs eagerly, with the reason."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler

torch: Any = pytest.importorskip("torch")


class Mixed(torch.nn.Module):
    """A product, an operator without an importer, and another product."""

    def __init__(self, eager: bool):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.eager = eager

    def forward(self, x: Any) -> Any:
        x = self.first(x).relu()
        return self.second(torch.linalg.eigh(x @ x.mT)[1] if self.eager else x)


def test_a_graph_that_is_compiled_as_a_whole() -> None:
    found = compiler.explain(Mixed(False).eval(), torch.randn(4, 4))
    assert found.eager == [] and found.json["eager"] == []
    [graph] = found.graphs
    assert graph.found and {n.op for n in graph.nodes}
    assert any("kernels" in line for line in found.lines())


@pytest.mark.parametrize("compiled", [False, True])
def test_what_runs_eagerly_is_named_with_the_reason(
    compiled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    module = Mixed(True).eval()
    program = torch.compile(module, backend="strata") if compiled else module
    if compiled:  # a program that PyTorch has compiled before is explained as well
        with torch.no_grad():
            program(torch.randn(4, 4))
    caplog.clear()
    level = logging.getLogger("strata").level
    found = compiler.explain(program, torch.randn(4, 4))
    assert len(found.graphs) == 2
    [(nodes, reason)] = found.eager
    assert "eigh" in nodes[0] and reason
    assert found.json["eager"] == [{"nodes": list(nodes), "reason": reason}]
    assert any(line.startswith("runs eagerly: ") and reason in line for line in found.lines())
    assert not [r for r in caplog.records if r.name == "strata"]
    assert logging.getLogger("strata").level == level


def test_a_function() -> None:
    found = compiler.explain(lambda x: (x.exp() + 1).sum(-1), torch.randn(3, 5), threads=1)
    assert len(found.graphs) == 1 and not found.eager


def test_models_and_executables(small_model: Path) -> None:
    [one] = compiler.explain(str(small_model), dims={"n": 4}).graphs
    exe = compiler.compile(str(small_model), dims={"n": 4})
    [other] = compiler.explain(exe).graphs
    assert one.json["kernels"] == other.json["kernels"]
    exe(np.ones((4, 8), np.float32), np.array([1]))


def test_mistakes_are_told() -> None:
    """Options are checked at once, and what a program raises is told with its inputs."""
    with pytest.raises(compiler.StrataError, match="f7"):
        compiler.explain(Mixed(False), torch.randn(4, 4), precision="f7")
    with pytest.raises(compiler.StrataError, match="reduction dim"):
        compiler.explain(Mixed(False), torch.randn(3, 5))
