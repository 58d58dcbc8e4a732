"""Operators of PrimTorch that PyTorch itself does not run, or that it folds when it traces: in
graphs that are written by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch._prims  # registers the operators
from torch.fx import Graph, GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from compiler.torch.graphs import compile_graph

PRIMS = torch.ops.prims
N = torch.randint(-99, 99, (3, 5), generator=torch.Generator().manual_seed(2))


def compiled(graph: Graph, *inputs: Any) -> Any:
    module = GraphModule(torch.nn.Module(), graph)
    return compile_graph(module, {}, {"target": "cpu"})(*inputs)


def warned(caplog: Any) -> list[str]:
    """Why nodes run eagerly."""
    return [r.getMessage() for r in caplog.records if r.name == "strata" and r.levelno > 20]


def given(graph: Graph, name: str, example: Any) -> Any:
    node = graph.placeholder(name)
    node.meta["val"] = example
    return node


def called(graph: Graph, target: Any, meta: Any, *arguments: Any, **named: Any) -> Any:
    node = graph.call_function(target, arguments, named)
    node.meta["val"] = meta
    return node


@pytest.mark.parametrize("dims", [[0], [1], [0, 1], None])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_exclusive_or(dims: list[int] | None, count: int, caplog: Any) -> None:
    x = N[:, :count]
    want = np.bitwise_xor.reduce(x.numpy(), axis=tuple(dims) if dims else (0, 1))
    graph = Graph()
    made = called(graph, PRIMS.xor_sum.default, torch.tensor(want), given(graph, "x", x), dims)
    graph.output((made,))
    [got] = compiled(graph, x)
    assert not warned(caplog) and torch.equal(got, torch.tensor(want))


@pytest.mark.parametrize(("dtype", "largest", "smallest"), [
    (torch.float32, math.inf, -math.inf), (torch.int8, 127, -128), (torch.bool, True, False)])
def test_extreme_values(dtype: Any, largest: Any, smallest: Any, caplog: Any) -> None:
    graph = Graph()
    x = given(graph, "x", N)
    found = [called(graph, getattr(PRIMS, f"{name}_value").default, value, dtype)
             for name, value in (("maximum", largest), ("minimum", smallest))]
    wide = torch.empty(3, dtype=torch.float64)
    made = [called(graph, torch.ops.aten.full.default, wide, [3], value, dtype=wide.dtype)
            for value in found]
    graph.output((*made, called(graph, torch.ops.aten.neg.default, N, x)))
    got = compiled(graph, N)
    assert not warned(caplog)
    assert got[0].tolist() == [float(largest)] * 3 and got[1].tolist() == [float(smallest)] * 3


def test_tokens_only_order(caplog: Any) -> None:
    graph = Graph()
    x = given(graph, "x", N)
    token = called(graph, PRIMS._make_token.default, torch.empty(0))
    called(graph, PRIMS._sink_tokens.default, None, [token])
    graph.output((called(graph, torch.ops.aten.neg.default, N, x),))
    [got] = compiled(graph, N)
    assert not warned(caplog) and torch.equal(got, -N)


def test_numbers_are_read(caplog: Any) -> None:
    graph, x = Graph(), torch.rand(4)
    number = ShapeEnv().create_unbacked_symfloat()
    total = called(graph, torch.ops.aten.sum.default, x.sum(), given(graph, "x", x))
    item = called(graph, PRIMS.item.default, number, total)
    graph.output((called(graph, torch.ops.aten.mul.Tensor, x.sum(), total, item),))
    [got] = compiled(graph, x)
    assert not warned(caplog)
    torch.testing.assert_close(got, x.sum() * x.sum())


def test_numbers_are_drawn_as_by_pytorch(caplog: Any) -> None:
    def call(x: torch.Tensor) -> Any:
        drawn = PRIMS.normal([3], mean=1.0, std=2.0, requires_grad=False, dtype=x.dtype,
                             device=x.device)
        return drawn * x

    torch.manual_seed(1)
    want = torch.normal(1.0, 2.0, (3,)) * 2
    torch.manual_seed(1)
    with torch.no_grad():
        got = torch.compile(call, backend="strata", fullgraph=True)(torch.tensor([2.0]))
    assert not warned(caplog)
    torch.testing.assert_close(got, want)
