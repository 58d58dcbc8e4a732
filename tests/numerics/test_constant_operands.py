"""Operators one operand of which is a constant at the edges of its type: NaN, infinities, zeros.

Code for constants is shorter, and must compute the same.
"""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import dialects.graph as g
from dialects.graph.base import GraphOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import FuncOp
from dialects.strata.types import Array, f32, f64, tensor
from targets.base import TargetOptions, find_target
from targets.reference.interpret import interpret
from tests.lowering import lower

CPU = find_target("cpu")
OPTIONS = TargetOptions(threads=1, denormals="keep")
EDGES = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.5, 2.0, 3.0, 0.1)
BINARY = (g.AddOp, g.SubOp, g.MulOp, g.DivOp, g.ModOp, g.FmodOp, g.PowOp, g.MaxOp, g.MinOp,
          g.EqualOp, g.LessOp, g.GreaterEqualOp)


def module_of(op: type[GraphOp], dtype: type[np.generic]) -> tuple[ModuleOp, EvaluationContext]:
    """x with each constant, on either side: a result for each."""
    context = EvaluationContext()
    func = FuncOp.of("main", ["x"], [tensor(f32 if dtype is np.float32 else f64, [64])])
    block, results = func.body.block, []
    for edge in EDGES:
        constant = g.ConstantOp.of_array(np.array(edge, dtype), context.weights, "edge")
        block.add_op(constant)
        for operands in ((block.args[0], constant.results[0]), (constant.results[0],
                                                                block.args[0])):
            block.add_op(made := op.of(*operands))
            results.append(made.results[0])
    func.finish([f"y{k}" for k in range(len(results))], results)
    return ModuleOp([func]), context


def numbers(dtype: type[np.generic]) -> Array:
    return np.resize(np.array(EDGES, dtype), 64)


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
def test_constants_on_the_cpu(op: type[GraphOp], dtype: type[np.generic]) -> None:
    module, context = module_of(op, dtype)
    x = numbers(dtype)
    expected = interpret(module, context.weights, [x])
    parts = CPU.bind(OPTIONS)
    for _ in lower(module, parts.context(context.weights)):
        pass
    found = parts.running.load(module, context.weights).run([x])
    for k, (got, want) in enumerate(zip(found, expected, strict=True)):
        edge = EDGES[k // 2]
        np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=f"{op.name} with {edge}")
        if want.dtype.kind == "f" and op not in (g.MaxOp, g.MinOp):
            zeros = (want == 0) & (got == 0)
            signs = np.signbit(got[zeros]), np.signbit(want[zeros])
            np.testing.assert_array_equal(*signs, f"{op.name} with {edge}")
