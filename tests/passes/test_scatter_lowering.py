"""Scatters at constant indices need no search; the numbers stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

import dialects.graph as g
from dialects.graph.base import GraphOp
from dialects.graph.interpret import evaluate_func
from dialects.loop import NestOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import FuncOp, main_function
from dialects.strata.types import Array, element_of, tensor
from passes.base import StrataContext
from passes.registry import parse_passes

X = np.arange(60, dtype=np.float32).reshape(4, 5, 3) / 7
COMBINERS = ("none", "add", "mul", "max", "min")


def scatter(
    op: type[GraphOp], indices: Array, updates: Array, weights: EvaluationContext, **more: object
) -> ModuleOp:
    arrays = (X, updates)
    func = FuncOp.of("main", ["x", "u"], [tensor(element_of(a.dtype), a.shape) for a in arrays])
    x, u = func.body.block.args
    constant = g.ConstantOp.of_array(indices, weights.weights, "indices")
    result = op.of(x, constant, u, **more)
    func.body.block.add_ops([constant, result])
    func.finish(["y"], [SSAValue.get(result.results[0])])
    return ModuleOp([func])


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("op, indices, shape, searches", [
    (g.ScatterNdOp, [[0, 1], [3, -1], [2, 2]], (3, 3), False),
    (g.ScatterNdOp, [[0], [3], [0]], (3, 5, 3), True),
    (g.ScatterElementsOp, [[[4]], [[-5]], [[2]]], (3, 1, 1), False),
    (g.ScatterElementsOp, [[[4], [1], [4]]], (1, 3, 1), True),
])
def test_constant_indices(
    op: type[GraphOp], indices: list[object], shape: tuple[int, ...], searches: bool, combiner: str
) -> None:
    context = EvaluationContext()
    more = {"axis": 1} if op is g.ScatterElementsOp else {}
    updates = np.linspace(-3, 9, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    module = scatter(op, np.array(indices), updates, context, combiner=combiner, **more)
    expected = evaluate_func(main_function(module), [X, updates], context)
    for pass_ in parse_passes("graph-to-loop"):
        pass_.apply(StrataContext.with_dialects(context.weights), module)
    module.verify()
    found = evaluate_func(main_function(module), [X, updates], context)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    reductions = [o for o in module.walk() if isinstance(o, NestOp) and o.reduce_axes]
    assert bool(reductions) == (searches and combiner != "none")
