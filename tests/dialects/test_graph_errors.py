"""Violated constraints are named by their number; bad inputs by their name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.ir import Block
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

import dialects.graph as g
from dialects.context import make_context
from dialects.graph.base import Build, GraphOp, ShapeError
from dialects.graph.interpret import EvaluationError, bind_sizes, evaluate_func
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import FuncOp
from dialects.strata.types import (
    LiteralAttr,
    TensorType,
    f16,
    f32,
    i1,
    i64,
    parse_tensor_type,
    tensor,
)
from dialects.symbolic.expr import Expr
from dialects.symbolic.expr_syntax import expr_of
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location
from tests.symbols import by_symbol

RESIZE = {"scales": LiteralAttr(()), "mode": "linear", "coordinates": "half_pixel"}
LSTM = {"hidden_size": 2, "direction": "forward"}
POOL = {"kernel": [2, 2]}

BAD: list[tuple[type[GraphOp], list[str], dict[str, Any], str]] = [
    (g.AddOp, ["f32[3]", "f16[3]"], {}, "C1: element types differ: f32 and f16"),
    (g.AddOp, ["i1[3]", "i1[3]"], {}, "C2: elements must be floats or integers, not i1"),
    (g.AddOp, ["f32[3]", "f32[4]"], {}, "C3"),
    (g.ExpOp, ["i64[3]"], {}, "C2: elements must be floats, not i64"),
    (g.AndOp, ["f32[3]", "f32[3]"], {}, "C2"),
    (g.WhereOp, ["f32[3]", "f32[3]", "f32[3]"], {}, "C2: the condition"),
    (g.WhereOp, ["i1[3]", "f32[3]", "i64[3]"], {}, "C1"),
    (g.CastOp, ["f32[3]"], {"to": "f99"}, "C1"),
    (g.GeluOp, ["f32[3]"], {"approximate": "erf"}, "C2"),
    (g.ClipOp, ["f32[3]", "f32[]"], {}, "C2: 0 flags are set for 1 bounds"),
    (g.ClipOp, ["f32[3]", "f32[4]"], {"has_min": True}, "C3"),
    (g.ReduceSumOp, ["f32[3, 4]"], {"axes": [1, 0]}, "C1"),
    (g.ReduceSumOp, ["f32[3, 4]"], {"axes": [2]}, "C1"),
    (g.ReduceMeanOp, ["i1[3, 4]"], {"axes": [1]}, "C2"),
    (g.MatmulOp, ["f32[3, 4]", "f32[3, 4]"], {}, "C4"),
    (g.MatmulOp, ["f32[n + 1]", "f32[n]"], {}, "C4"),
    (g.MatmulOp, ["f32[]", "f32[3, 4]"], {}, "C3"),
    (g.MatmulOp, ["f32[2, 3, 4]", "f32[5, 4, 3]"], {}, "C5"),
    (g.ConvOp, ["f32[1, 3, 8]", "f32[4, 2, 3]"], {}, "C4"),
    (g.ConvOp, ["f32[1, 3, 8]", "f32[4, 3, k]"], {}, "C3"),
    (g.ConvOp, ["f32[1, 3]", "f32[4, 3]"], {}, "C2"),
    (g.ConvOp, ["f32[1, 3, 8]", "f32[4, 3, 9]"], {}, "C6"),
    (g.ConvOp, ["f32[1, 3, 8]", "f32[4, 3, 3]"], {"strides": [0]}, "C3: strides"),
    (g.ConvOp, ["f32[1, 3, 8]", "f32[4, 3, 3]"], {"pads": [1]}, "C3: pads"),
    (g.ConvOp, ["f32[1, 4, 8]", "f32[5, 2, 3]"], {"group": 2}, "C4: group 2"),
    (g.ConvOp, ["f32[1, 3, 8]", "f32[4, 3, 3]", "f32[5]"], {}, "C5"),
    (g.ConvTransposeOp, ["f32[1, 3, 8]", "f32[4, 3, 3]"], {}, "C4"),
    (g.ConvTransposeOp, ["f32[1, 3, 1]", "f32[3, 1, 1]"], {"pads": [1, 1]}, "C6"),
    (g.ConvTransposeOp, ["f32[1, 3, 1]", "f32[3, 1, 1]"], {"output_padding": [-1]}, "C3"),
    (g.MaxPoolOp, ["f32[1, 3, 8]"], POOL, "C2"),
    (g.MaxPoolOp, ["f32[1, 3, 8, 1]"], POOL, "C5"),
    (g.AvgPoolOp, ["f32[1, 3, 8, 8]"], {**POOL, "pads": [2, 0, 0, 0]}, "C4"),
    (g.AvgPoolOp, ["i64[1, 3, 8, 8]"], POOL, "C1"),
    (g.MaxPoolIndicesOp, ["f32[1, 3, 8, 8]", "f32[1, 3, 8, 8]"], POOL, "C6: y is"),
    (g.TanOp, ["i64[3]"], {}, "C2"),
    (g.BitcastOp, ["f32[3]"], {"to": i64}, "C1: elements of f32 cannot be read as i64"),
    (g.BitcastOp, ["f32[3]"], {"to": "f99"}, "C1"),
    (g.ShiftLeftOp, ["f32[3]", "f32[3]"], {}, "C2: elements must be integers"),
    (g.ShiftRightOp, ["i1[3]", "i1[3]"], {}, "C2"),
    (g.PhiloxOp, ["i32[3]", "i32[3]"], {"draw": 0}, "C2: elements must be i64"),
    (g.PhiloxOp, ["i64[3]", "i64[]"], {"draw": 1 << 32}, "C4"),
    (g.CumulativeSumOp, ["f32[3]"], {"axis": 1}, "C1"),
    (g.CumulativeProdOp, ["i1[3]"], {"axis": 0}, "C2"),
    (g.ArgMaxOp, ["f32[3]"], {"axis": -1}, "C1"),
    (g.ArgMinOp, ["f32[0]"], {"axis": 0}, "C1: axis 0 of f32[0] is empty"),
    (g.ArgMaxOp, ["i1[3]"], {"axis": 0}, "C2"),
    (g.TopKOp, ["f32[3]"], {"axis": 0, "k": 4}, "C3: 4 elements cannot be taken of 3"),
    (g.TopKOp, ["f32[3]"], {"axis": 1, "k": 1}, "C1"),
    (g.ScatterElementsOp, ["f32[3]", "f32[2]", "f32[2]"], {"axis": 0}, "C1"),
    (g.ScatterElementsOp, ["f32[3]", "i64[2]", "f16[2]"], {"axis": 0}, "C2"),
    (g.ScatterElementsOp, ["i1[3]", "i64[2]", "i1[2]"], {"axis": 0, "combiner": "add"}, "C2"),
    (g.ScatterElementsOp, ["f32[3]", "i64[2, 1]", "f32[2]"], {"axis": 0}, "C3: indices"),
    (g.ScatterElementsOp, ["f32[3]", "i64[2]", "f32[3]"], {"axis": 0}, "C4: indices and updates"),
    (g.ScatterElementsOp, ["f32[3, 2]", "i64[4, 1]", "f32[4, 1]"], {"axis": 1}, "C4: dim 0"),
    (g.ScatterNdOp, ["f32[3]", "i64[]", "f32[]"], {}, "C1"),
    (g.ScatterNdOp, ["f32[3]", "i64[1]", "f32[]"], {"combiner": "or"}, "C2"),
    (g.ScatterNdOp, ["f32[3]", "i64[4, 2]", "f32[4]"], {}, "C3"),
    (g.ScatterNdOp, ["f32[3, 5]", "i64[4, 1]", "f32[4]"], {}, "C4: updates"),
    (g.SoftmaxOp, ["f32[3]"], {"axis": 1}, "C2"),
    (g.SoftmaxOp, ["f32[3]"], {"axis": -1}, "C2"),
    (g.LayerNormOp, ["f32[3, 4]", "f32[3]"], {"axis": 1, "epsilon": 0.1}, "C3"),
    (g.BatchNormOp, ["f32[3, 4]", *["f32[3]"] * 4], {"epsilon": 0.1}, "C3"),
    (g.BatchNormOp, ["f32[3]", *["f32[3]"] * 4], {"epsilon": 0.1}, "C2"),
    (g.LstmOp, ["f32[5, 1, 3]", "f32[1, 8, 3]", "f32[1, 8, 3]"], LSTM, "C3"),
    (g.LstmOp, ["f32[5, 1, 3]", "f32[1, 8, 3]"], LSTM, "C4"),
    (g.LstmOp, ["f32[5, 1, 3]"], {**LSTM, "direction": "up"}, "C2"),
    (g.ReshapeOp, ["f32[3, 4]"], {"shape": [5]}, "C1: f32[3, 4] has 12 elements, [5] has 5"),
    (g.ReshapeOp, ["f32[n, 4]"], {"shape": [expr_of("4*n + 1")]}, "C1"),
    (g.ReshapeOp, ["f32[1]"], {"shape": [-1, -1]}, "C2"),
    (g.TransposeOp, ["f32[3, 4]"], {"perm": [0, 0]}, "C1"),
    (g.BroadcastOp, ["f32[3, 4]"], {"shape": [4]}, "C1"),
    (g.BroadcastOp, ["f32[3, 4]"], {"shape": [3, 5]}, "C2"),
    (g.SliceOp, ["f32[3]"], {"starts": [0], "sizes": [3], "steps": []}, "C1"),
    (g.SliceOp, ["f32[3]"], {"starts": [0], "sizes": [3], "steps": [0]}, "C2"),
    (g.SliceOp, ["f32[3]"], {"starts": [0], "sizes": [-1], "steps": [1]}, "C3"),
    (g.SliceOp, ["f32[3]"], {"starts": [1], "sizes": [3], "steps": [1]}, "C4"),
    (g.SliceOp, ["f32[3]"], {"starts": [1], "sizes": [3], "steps": [-1]}, "C4"),
    (g.FramesOp, ["f32[3]"], {"axis": 1, "size": 2, "step": 1}, "C1"),
    (g.FramesOp, ["f32[3]"], {"axis": 0, "size": 2, "step": 0}, "C2"),
    (g.FramesOp, ["f32[3]"], {"axis": 0, "size": 4, "step": 1}, "C3"),
    (g.PadOp, ["f32[3]"], {"low": [1], "high": [-1], "mode": "edge"}, "C1"),
    (g.PadOp, ["f32[3]"], {"low": [1], "high": [1], "mode": "mirror"}, "C2"),
    (g.PadOp, ["f32[3]"], {"low": [3], "high": [1], "mode": "reflect"}, "C3"),
    (g.ConcatOp, [], {"axis": 0}, "C1"),
    (g.ConcatOp, ["f32[3]", "f32[3, 1]"], {"axis": 0}, "C2"),
    (g.ConcatOp, ["f32[3, 2]", "f32[3, 1]"], {"axis": 0}, "C3"),
    (g.GatherOp, ["f32[3]", "f32[3]"], {"axis": 0}, "C1"),
    (g.GatherOp, ["f32[3]", "i64[3]"], {"axis": 1}, "C2"),
    (g.GatherElementsOp, ["f32[3, 4]", "i64[4, 1]"], {"axis": 1}, "C3"),
    (g.GatherNdOp, ["f32[3, 4]", "i64[5, 3]"], {}, "C3"),
    (g.GatherNdOp, ["f32[3, 4]", "i64[5, 1]"], {"batch_dims": 1}, "C2"),
    (g.ResizeOp, ["f32[3]"], {**RESIZE, "shape": [6, 1]}, "C2"),
    (g.ResizeOp, ["i64[3]"], {**RESIZE, "shape": [6]}, "C3"),
    (g.ResizeOp, ["f32[3]"], {**RESIZE, "shape": [6], "mode": "area"}, "C1"),
    (g.SizesOp, [], {"values": [1, 2], "shape": [3]}, "C1"),
    (g.RangeOp, [], {"start": 0, "step": 1, "count": -1}, "C2"),
]


def type_of(text: str) -> TensorType:
    return parse_tensor_type(Parser(make_context(), text))


@pytest.mark.parametrize(("op", "types", "attributes", "message"), BAD,
                         ids=[f"{op.name}-{m[:2]}-{k}" for k, (op, _, _, m) in enumerate(BAD)])
def test_violated_constraint_is_cited(
    op: type[GraphOp], types: list[str], attributes: dict[str, Any], message: str
):
    values = Block(arg_types=[type_of(text) for text in types]).args
    with pytest.raises(ShapeError) as caught:
        op.of(*values, **attributes)
    assert message in str(caught.value)


def test_wrong_result_type_fails_verification():
    block = Block(arg_types=[tensor(f32, [3]), tensor(f32, [3])])
    op = g.AddOp.create(operands=block.args, result_types=[tensor(f32, [4])])
    with pytest.raises(VerifyException, match=r"graph\.add: result is .*not"):
        op.verify()


def test_literal_of_wrong_length_fails_verification():
    op = g.ConstantOp.of_value(LiteralAttr((1.0,)), tensor(f32, [2]))
    with pytest.raises(VerifyException, match="C2: 1 values"):
        op.verify()


def test_constant_knows_its_label_and_scalar_types():
    context = EvaluationContext()
    weight = g.ConstantOp.of_array(np.zeros(17, np.float32), context.weights, "conv1.w")
    assert weight.label == "conv1.w" and g.ConstantOp.scalar(1, f16).label == ""
    assert g.ConstantOp.scalar(1, f16).array(context.weights).dtype == np.float16
    assert g.ConstantOp.scalar(0.0, i1).array(context.weights).dtype == np.bool_
    assert g.ConstantOp.scalar(3, i64).array(context.weights) == 3


def test_lstm_over_a_symbolic_length_does_not_unroll():
    types = ["f32[n, 1, 3]", "f32[1, 8, 3]", "f32[1, 8, 2]"]
    block = Block(arg_types=[type_of(text) for text in types])
    op = g.LstmOp.of(*block.args, **LSTM)
    block.add_op(op)
    with pytest.raises(ShapeError, match=r"constant sequence length from 1 to 4096 .* not n"):
        op.decompose(Build(op))


# ---------------------------------------------------------------------- the interpreter
def bind(*pairs: tuple[str, tuple[int, ...]]) -> dict[Symbol, int]:
    return bind_sizes([type_of(text) for text, _ in pairs], [np.zeros(s) for _, s in pairs],
                      [f"in{k}" for k in range(len(pairs))])


def test_sizes_are_bound_by_plain_and_linear_dims():
    assert bind(("f32[2*h + 1, 3]", (7, 3)), ("f32[n, h]", (5, 3))) == by_symbol({"h": 3, "n": 5})
    assert bind(("f32[4*w]", (8,))) == by_symbol({"w": 2})
    assert bind(("f32[n*m]", (6,)), ("f32[n]", (2,))) == by_symbol({"n": 2, "m": 3})


@pytest.mark.parametrize(("pairs", "message"), [
    ([("f32[n]", (3,)), ("f32[n]", (4,))],
     "dim 0 of input 'in1' is 4 but must be 3 (n with n = 3)"),
    ([("f32[2, 3]", (2, 4))], "dim 1 of input 'in0' is 4 but must be 3"),
    ([("f32[2*h]", (5,))], "dim 0 of input 'in0' is 5 but must be 4 (2*h with h = 2)"),
    ([("f32[2]", (2, 4))], "input 'in0' must have 1 dims, f32[2], not (2, 4)"),
    ([("f32[a*b]", (6,))], "dim 0 of input 'in0' does not determine the sizes a, b"),
])
def test_contradicting_shapes_name_input_and_dim(
    pairs: list[tuple[str, tuple[int, ...]]], message: str
):
    with pytest.raises(EvaluationError) as caught:
        bind(*pairs)
    assert str(caught.value) == message


def gather_function() -> FuncOp:
    func = FuncOp.of("main", ["table", "rows"], [tensor(f32, [3]), tensor(i64, [Expr.size("n")])])
    op = g.GatherOp.of(*func.body.block.args, axis=0)
    op.location = location("embed/Gather")
    func.body.block.add_op(op)
    func.finish(["y"], op.results)
    return func


def test_a_failing_operation_is_named_with_its_node():
    inputs = [np.zeros(3, np.float32), np.array([0, 7])]
    with pytest.raises(EvaluationError, match=r"graph\.gather \(node 'embed/Gather'\) failed"):
        evaluate_func(gather_function(), inputs, EvaluationContext())


def test_inputs_are_checked_for_number_and_dtype():
    rows = np.array([0, 1])
    with pytest.raises(EvaluationError, match="takes 2 inputs \\(table, rows\\), not 1"):
        evaluate_func(gather_function(), [rows], EvaluationContext())
    with pytest.raises(EvaluationError, match="input 'table' must be float32, not int64"):
        evaluate_func(gather_function(), [rows, rows], EvaluationContext())


def test_sizes_that_turn_out_to_differ_are_reported():
    func = FuncOp.of("main", ["a", "b"], [type_of("f32[n]"), type_of("f32[m]")])
    op = g.AddOp.of(*func.body.block.args)
    func.body.block.add_op(op)
    func.finish(["y"], op.results)
    inputs = [np.zeros(1, np.float32), np.zeros(3, np.float32)]
    with pytest.raises(EvaluationError, match=r"float32\[3\], its type is f32\[n\] with n = 1"):
        evaluate_func(func, inputs, EvaluationContext())


def test_a_missing_weight_is_named():
    func = FuncOp.of("main", [], [])
    op = g.ConstantOp.of_array(np.zeros(17), EvaluationContext().weights, "fc.w")
    func.body.block.add_op(op)
    func.finish(["y"], op.results)
    with pytest.raises(EvaluationError, match=r"weight 'fc\.w' .* is not in the weight store"):
        evaluate_func(func, [], EvaluationContext())


def test_dead_values_are_freed():
    func = FuncOp.of("main", ["x"], [tensor(f32, [4])])
    block, alive = func.body.block, []
    value = block.args[0]
    for _ in range(5):
        op = _watching_neg(alive, value)
        block.add_op(op)
        value = op.results[0]
    func.finish(["y"], [value])
    evaluate_func(func, [np.ones(4, np.float32)], EvaluationContext())
    assert max(alive) <= 2


def _watching_neg(alive: list[int], value: Any) -> g.NegOp:
    """A negation that records how many results of its kind are alive when it runs."""
    import weakref

    op = g.NegOp.of(value)
    results: weakref.WeakSet[Any] = _watching_neg.__dict__.setdefault("results", weakref.WeakSet())

    def evaluate(context: EvaluationContext, x: np.ndarray) -> np.ndarray:
        class Watched(np.ndarray):
            __hash__ = object.__hash__

        result = (-np.asarray(x)).view(Watched)
        results.add(result)
        alive.append(len(results))
        return result

    op.evaluate = evaluate  # type: ignore[method-assign]
    return op
