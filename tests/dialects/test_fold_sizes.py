"""Chains that compute shapes are followed as size expressions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.ir import Operation

import dialects.graph as g
from dialects.graph.base import GraphOp
from dialects.graph.fold_sizes import fold_sizes
from dialects.graph.interpret import evaluate_func
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import FuncOp, main_function
from dialects.strata.types import Array, f32, i1, i8, i32, i64, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.expr_syntax import expr_of
from dialects.symbolic.symbol import Symbol
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module
from tests.op_samples.sample import Random
from tests.symbols import by_symbol

N, H = Expr.size("n"), Expr.size("h")


def exprs(*values: Any) -> Array:
    result = np.empty(len(values), object)
    result[:] = [Expr.of(v) for v in values]
    return result


def fold(kind: type[GraphOp], *operands: Array, element: Any = i64, **attributes: Any) -> Any:
    """The folded value as nested lists of text; None when it does not fold."""
    types = [tensor(element, v.shape) for v in operands]
    func = FuncOp.of("main", [], types)
    op = kind.of(*func.body.block.args, **attributes)
    value = fold_sizes(op, operands, EvaluationContext())
    if value is None:
        return None
    assert value.dtype == object and value.shape == op.result_tensors[0].static_shape
    return np.vectorize(str, [object])(value).tolist() if value.size else value.tolist()


def test_leaves():
    assert fold(g.SizesOp, values=[N, 2 * H, 3], shape=[3]) == ["n", "2*h", "3"]
    assert fold(g.SizesOp, values=[N], shape=[]) == "n"
    assert fold(g.RangeOp, start=H, step=2, count=3) == ["h", "h + 2", "h + 4"]
    assert fold(g.RangeOp, start=0, step=2, count=N) is None
    assert fold(g.SizesOp, values=[N], shape=[1], to=f32) is None


def test_constants():
    literal = g.ConstantOp.of_array(np.array([[2, -3]]), EvaluationContext().weights, "c")
    value = fold_sizes(literal, [], EvaluationContext())
    assert value is not None and value.shape == (1, 2) and value[0, 1] == Expr.of(-3)
    weight = g.ConstantOp.of_array(np.arange(17), EvaluationContext().weights, "w")
    assert fold_sizes(weight, [], EvaluationContext()) is None


def test_arithmetic():
    pair = exprs(N, 7), exprs(2, -2)
    assert fold(g.AddOp, *pair) == ["n + 2", "5"]
    assert fold(g.SubOp, *pair) == ["n - 2", "9"]
    assert fold(g.MulOp, *pair) == ["2*n", "-14"]
    assert fold(g.NegOp, pair[0]) == ["-n", "-7"]
    assert fold(g.MaxOp, exprs(N, N), exprs(N + 1, 4)) == ["n + 1", "max(4, n)"]
    assert fold(g.MinOp, exprs(N), exprs(N + 1)) == ["n"]


def test_division():
    assert fold(g.DivOp, exprs(7, -7, 4 * N), exprs(-2, 2, 2)) == ["-3", "-3", "2*n"]
    assert fold(g.DivOp, exprs(N), exprs(2)) == [str(N // 2)]
    assert fold(g.DivOp, exprs(6), exprs(0)) is None
    assert fold(g.DivOp, exprs(6), exprs(N)) is None  # n may be 0
    assert fold(g.ModOp, exprs(4 * N + 1, -7), exprs(4, 4)) == [str((4 * N + 1) % 4), "1"]


@pytest.mark.parametrize("over", [N, -N, N - 5, 5 - N, 2 * N - 7, N * N - 9 * N, Expr.of(-7)])
@pytest.mark.parametrize("under", [1, 2, -2, 3, -3, N + 1, -N - 2])
def test_division_truncates_at_every_size(over: Expr, under: Any):
    """What an operator computes of sizes, as elements: n - 5 is less than zero for some n."""
    [text] = fold(g.DivOp, exprs(over), exprs(under))
    for n in range(1, 25):
        x, y = (Expr.of(e).evaluate({Symbol.size("n"): n}) for e in (over, under))
        assert expr_of(text).evaluate({Symbol.size("n"): n}) == int(x / y), (n, text)


def test_structure():
    shape = exprs(N, 3, H)
    assert fold(g.GatherOp, shape, exprs(-1, 0), axis=0) == ["h", "n"]
    assert fold(g.GatherOp, shape, exprs(N), axis=0) is None
    assert fold(g.GatherOp, shape, exprs(5), axis=0) is None
    assert fold(g.ConcatOp, shape, exprs(5), axis=0) == ["n", "3", "h", "5"]
    assert fold(g.SliceOp, shape, starts=[2], sizes=[2], steps=[-1]) == ["h", "3"]
    assert fold(g.SliceOp, shape, starts=[N], sizes=[1], steps=[1]) is None
    assert fold(g.ReshapeOp, exprs(N, H), shape=[2, 1]) == [["n"], ["h"]]
    assert fold(g.TransposeOp, exprs(N, H).reshape(1, 2), perm=[1, 0]) == [["n"], ["h"]]
    assert fold(g.BroadcastOp, exprs(N), shape=[2, 1]) == [["n"], ["n"]]
    assert fold(g.CastOp, shape, to=i32) == ["n", "3", "h"]
    assert fold(g.CastOp, shape, to=f32) is None
    assert fold(g.ReduceProdOp, shape, axes=[0]) == "3*h*n"
    assert fold(g.ReduceSumOp, shape, axes=[0], keepdims=True) == ["h + n + 3"]


def test_conditions_fold_only_when_they_hold_for_all_sizes():
    assert fold(g.EqualOp, exprs(N, N, 3, N), exprs(N, N + 1, 3, -1)) == ["1", "0", "1", "0"]
    assert fold(g.EqualOp, exprs(N), exprs(1)) is None
    assert fold(g.EqualOp, exprs(N), exprs(H)) is None
    assert fold(g.LessOp, exprs(N, -1), exprs(N + 1, N)) == ["1", "1"]
    assert fold(g.GreaterEqualOp, exprs(N), exprs(0)) is None
    assert fold(g.CastOp, exprs(N + 1, 0), to=i1) == ["1", "0"]


def test_where_picks_by_decided_conditions():
    func = FuncOp.of("main", [], [tensor(i1, [2]), tensor(i64, [2]), tensor(i64, [2])])
    op = g.WhereOp.of(*func.body.block.args)
    values = [exprs(1, 0), exprs(N, N), exprs(H, H)]
    chosen = fold_sizes(op, values, EvaluationContext())
    assert chosen is not None and list(chosen) == [N, H]
    values[0] = exprs(N, 0)
    assert fold_sizes(op, values, EvaluationContext()) is None


def test_unknown_operands_and_large_results_do_not_fold():
    func = FuncOp.of("main", [], [tensor(i64, [1]), tensor(i64, [1])])
    op = g.AddOp.of(*func.body.block.args)
    assert fold_sizes(op, [exprs(N), None], EvaluationContext()) is None
    assert fold(g.BroadcastOp, exprs(N), shape=[65]) is None


def test_values_that_may_wrap_around_do_not_fold():
    assert fold(g.CastOp, exprs(200), to=i8) is None
    assert fold(g.CastOp, exprs(100), to=i8) == ["100"]
    assert fold(g.CastOp, exprs(N), to=i8) is None
    assert fold(g.MulOp, exprs(2**40), exprs(2**40)) is None


def test_known_sizes_are_filled_in():
    op = g.SizesOp.of(values=[N + H], shape=[])
    value = fold_sizes(op, [], EvaluationContext(by_symbol({"n": 4})))
    assert value is not None and value[()] == H + 4


def _chain(func: FuncOp) -> list[GraphOp]:
    """A shape as exporters compute it: concat(4 * where(shape[:2] == -1, 1, shape[:2]), 4)."""
    store = EvaluationContext().weights
    shape = g.SizesOp.of(values=[N, H, 8], shape=[3])
    first = g.SliceOp.of(shape, starts=[0], sizes=[2], steps=[1])
    unknown = g.ConstantOp.of_array(np.array(-1), store, "unknown")
    ones = g.ConstantOp.of_array(np.array([1, 1]), store, "ones")
    open_ = g.EqualOp.of(first, unknown)
    chosen = g.WhereOp.of(open_, ones, first)
    rest = g.ConstantOp.of_array(np.array([4]), store, "rest")
    doubled = g.MulOp.of(chosen, rest)
    ops: list[GraphOp] = [shape, first, unknown, ones, open_, chosen, rest, doubled,
                          g.ConcatOp.of(doubled, rest, axis=0)]
    func.body.block.add_ops(ops)
    return ops


def test_a_chain_folds_and_agrees_with_its_evaluation():
    func = FuncOp.of("main", ["x"], [tensor(f32, [N, H + 3])])
    ops = _chain(func)
    func.finish(["y"], ops[-1].results)
    values: dict[Operation, Array | None] = {}
    for op in ops:
        operands = [values[o.owner] for o in op.operands if isinstance(o.owner, Operation)]
        values[op] = fold_sizes(op, operands, EvaluationContext())
    folded = values[ops[-1]]
    assert folded is not None and list(folded) == [4 * N, 4 * H, Expr.of(4)]
    result = evaluate_func(func, [np.zeros((5, 9), np.float32)], EvaluationContext())[0]
    assert result.tolist() == [e.evaluate(by_symbol({"n": 5, "h": 6})) for e in folded]


def _integer_samples() -> list[Sample]:
    return [s for s in SAMPLES if s.operands and s.used is None
            and all(o.dtype.kind in "ib" for o in s.operands)]


@pytest.mark.parametrize("sample", _integer_samples(), ids=lambda s: s.label)
def test_folding_constants_equals_evaluation(sample: Sample):
    assert isinstance(sample.operands[0], Random | np.ndarray)
    module, inputs, context = build_module(sample, symbolic=False)
    op = main_function(module).body.block.first_op
    assert isinstance(op, GraphOp)
    operands = [np.vectorize(Expr.of, [object])(a) if a.size else a.astype(object) for a in inputs]
    value = fold_sizes(op, operands, context)
    if value is None:
        return
    expected = op.evaluate(context, *inputs)
    assert [e.constant for e in value.reshape(-1)] == np.asarray(expected).reshape(-1).tolist()
