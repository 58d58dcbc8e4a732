"""The graph passes on all samples of operations, and what their text tests cannot show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from dialects.graph import (
    BroadcastOp,
    CastOp,
    ConstantOp,
    ReshapeOp,
    TransposeOp,
    WhereOp,
)
from dialects.graph.interpret import evaluate_func
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import FuncOp, main_function
from dialects.strata.types import Array, f32, i16, tensor
from dialects.text.syntax import location
from passes.base import Limits, PassError, StrataContext
from passes.contract import Facts
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module
from tests.passes.harness import assert_same, check_locations, parse, run_passes

GRAPH_PASSES = ("graph-fold-sizes,graph-fold-constants,graph-simplify,graph-decompose,"
                "graph-fold-constants,graph-simplify,graph-cse,graph-dce")


CASES = [pytest.param(s, symbolic, id=f"{k}-{s.label}-{'symbolic' if symbolic else 'static'}")
         for k, s in enumerate(SAMPLES) for symbolic in (False, True) if s.dims or not symbolic]


@pytest.mark.parametrize(("sample", "symbolic"), CASES)
def test_meaning_is_kept(sample: Sample, symbolic: bool) -> None:
    module, inputs, evaluation = build_module(sample, symbolic)
    for number, op in enumerate(module.walk()):
        op.location = location(f"n{number}")
    expected = evaluate_func(main_function(module), inputs, evaluation)
    context = StrataContext.with_dialects(evaluation.weights)
    run_passes(module, GRAPH_PASSES, context)
    check_locations(module)
    actual = evaluate_func(main_function(module), inputs, evaluation)
    for a, b in zip(actual, expected, strict=True):
        assert_same(a, b, max(sample.allowed(b.dtype), 1e-6) if b.dtype.kind not in "biu" else 0)


# ---------------------------------------------------------------------- decompose
def test_a_claimed_composite_stays() -> None:
    text = """builtin.module {
      strata.func @main(%x: f32[n]) -> (f32[n]) inputs ["x"] outputs ["y"] {
        %a = graph.softmax %x {axis = 0} : f32[n]
        %y = graph.relu %a : f32[n]
        strata.return %y
      }
    }"""
    context = StrataContext.with_dialects(facts=Facts(claims=("graph.softmax",)))
    after = run_passes(parse(text, context), "graph-decompose", context)
    assert "graph.softmax" in after
    assert "graph.relu" not in after


def test_what_cannot_be_decomposed_is_named() -> None:
    text = """builtin.module {
      strata.func @main(%x: f32[n, 1, 2], %w: f32[1, 4, 2], %r: f32[1, 4, 1])
          -> (f32[n, 1, 1, 1]) inputs ["x", "w", "r"] outputs ["y"] {
        %y, %h, %c = graph.lstm %x, %w, %r {hidden_size = 1, direction = "forward"}
          : f32[n, 1, 1, 1], f32[1, 1, 1], f32[1, 1, 1]
        strata.return %y
      }
    }"""
    context = StrataContext.with_dialects()
    with pytest.raises(PassError, match=r"graph-decompose: graph.lstm: .* \(node 'n2'\)"):
        run_passes(parse(text, context), "graph-decompose", context)


# ---------------------------------------------------------------------- constants
def make_module(array: Array, *ops: tuple[type, dict[str, object]]) -> tuple[
        ModuleOp, StrataContext]:
    """A function that returns the last of unary operations on a constant."""
    context = StrataContext.with_dialects()
    func = FuncOp.of("main", [], [])
    value = ConstantOp.of_array(array, context.weights, "w")
    value.location = location("weights")
    func.body.block.add_op(value)
    for k, (op_type, attributes) in enumerate(ops):
        value = op_type.of(value, **attributes)
        value.location = location(f"step{k}")
        func.body.block.add_op(value)
    func.finish(["y"], value.results)
    return ModuleOp([func]), context


def result_of(module: ModuleOp, context: StrataContext) -> Array:
    return evaluate_func(main_function(module), [], EvaluationContext({}, context.weights))[0]


def test_weights_are_folded_into_the_store() -> None:
    array = np.arange(48, dtype=np.float32).reshape(6, 8)
    module, context = make_module(array, (TransposeOp, {"perm": [1, 0]}),
                                  (TransposeOp, {"perm": [1, 0]}), (TransposeOp, {"perm": [1, 0]}))
    run_passes(module, "graph-fold-constants", context)
    constant = main_function(module).body.block.first_op
    assert isinstance(constant, ConstantOp)
    assert constant.label == "step2"
    assert len(context.weights.arrays) == 2  # the model's own, and the result
    folded = constant.array(context.weights)
    assert folded.flags.c_contiguous
    assert_same(folded, array.T)


def test_the_memory_budget_holds() -> None:
    array = np.zeros((6, 8), np.float32)
    module, context = make_module(array, (TransposeOp, {"perm": [1, 0]}))
    context.limits = replace(Limits(), folding_bytes=191)
    assert "graph.transpose" in run_passes(module, "graph-fold-constants", context)
    assert [r.node for r in context.remarks] == ["step0"]
    assert "192 bytes" in context.remarks[0].text


def test_what_is_folded_further_takes_nothing_of_the_budget() -> None:
    array = np.arange(48, dtype=np.float32).reshape(6, 8)
    module, context = make_module(array, *[(TransposeOp, {"perm": [1, 0]})] * 7)
    context.limits = replace(Limits(), folding_bytes=2 * 192)
    assert "graph.transpose" not in run_passes(module, "graph-fold-constants", context)
    assert_same(result_of(module, context), array.T)
    assert len(context.weights.arrays) == 2


def test_packed_codes_are_unpacked_whatever_the_budget() -> None:
    """A model's codes may be many times the budget, and unpacking them in each call takes longer
    than all else."""
    codes = np.arange(64, dtype=np.uint8).reshape(4, 16)
    module, context = make_module(codes, (ReshapeOp, {"shape": [8, 8]}), (CastOp, {"to": i16}),
                                  (TransposeOp, {"perm": [1, 0]}))
    context.limits = replace(Limits(), folding_bytes=0)
    run_passes(module, "graph-fold-constants", context)
    assert isinstance(main_function(module).body.block.first_op, ConstantOp)
    assert not context.remarks


@pytest.mark.parametrize("held", [False, True])
def test_weights_that_the_caller_holds_are_read_as_they_lie(held: bool) -> None:
    """By products: elsewhere a transposition costs time in every run."""
    text = """builtin.module {
      strata.func @main(%a: f32[4, 1024]) -> (f32[4, 512]) inputs ["a"] outputs ["y"] {
        %w = graph.constant {value = #strata.weight<"w", "key">} : f32[512, 1024]
        %t = graph.transpose %w {perm = [1, 0]} : f32[1024, 512]
        %y = graph.matmul %a, %t : f32[4, 512]
        strata.return %y
      }
    }"""
    context = StrataContext.with_dialects()
    context.weights.arrays["key"] = np.zeros((512, 1024), np.float32)
    context.weights.held |= {"key"} if held else set()
    module = parse(text, context)
    assert ("graph.transpose" in run_passes(module, "graph-fold-constants", context)) == held


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["folded before", "folded after"])
def test_products_of_weights_that_the_caller_holds_are_folded(order: tuple[int, int]) -> None:
    """A table that a layer projects costs no product in a run, as where nobody holds the weight.
    The product with an input still reads the weight as it lies."""
    lines = ["%p = graph.reshape %r {shape = [4, 1024]} : f32[4, 1024]",
             "%u = graph.transpose %w {perm = [1, 0]} : f32[1024, 512]"]
    first, then = (lines[k] for k in order)
    text = f"""builtin.module {{
      strata.func @main(%a: f32[4, 1024]) -> (f32[4, 512]) inputs ["a"] outputs ["y"] {{
        %w = graph.constant {{value = #strata.weight<"w", "key">}} : f32[512, 1024]
        %r = graph.constant {{value = #strata.weight<"r", "table">}} : f32[2, 2, 1024]
        %t = graph.transpose %w {{perm = [1, 0]}} : f32[1024, 512]
        {first}
        {then}
        %z = graph.matmul %p, %u : f32[4, 512]
        %x = graph.matmul %a, %t : f32[4, 512]
        %y = graph.add %x, %z : f32[4, 512]
        strata.return %y
      }}
    }}"""
    context = StrataContext.with_dialects()
    draw = np.random.default_rng(0)
    context.weights.arrays["key"] = draw.standard_normal((512, 1024)).astype(np.float32)
    context.weights.arrays["table"] = draw.standard_normal((2, 2, 1024)).astype(np.float32)
    context.weights.held |= {"key"}
    folded = run_passes(parse(text, context), "graph-fold-constants", context)
    assert folded.count("graph.transpose") == folded.count("graph.matmul") == 1


def test_large_broadcasts_stay() -> None:
    module, context = make_module(np.zeros(1, np.float32), (BroadcastOp, {"shape": [1 << 20]}))
    assert "graph.broadcast" in run_passes(module, "graph-fold-constants", context)
    assert not context.remarks


def test_a_missing_weight_is_no_error() -> None:
    module, context = make_module(np.zeros(17, np.float32), (TransposeOp, {"perm": [0]}))
    context.weights.arrays.clear()
    assert "graph.transpose" in run_passes(module, "graph-fold-constants", context)
    assert "not in the weight store" in context.remarks[0].text
    assert tensor(f32, [17]).short in run_passes(module, "graph-simplify", context)


def test_equal_weights_of_two_names_become_one() -> None:
    module, context = make_module(np.ones(17, np.float32))
    func = main_function(module)
    twin = ConstantOp.of_array(np.ones(17, np.float32), context.weights, "other")
    twin.location = location("other")
    func.body.block.insert_op_before(twin, func.return_op)
    func.return_op.operands = [twin.result]
    assert 'weight<"w"' in run_passes(module, "graph-cse", context)
    assert_same(result_of(module, context), np.ones(17, np.float32))


@pytest.mark.parametrize("hole", [None, 0, (1 << 17) - 1])
def test_a_large_mask_that_keeps_all_is_no_choice(hole: int | None) -> None:
    mask = np.full(1 << 17, True)
    if hole is not None:
        mask[hole] = False
    context = StrataContext.with_dialects()
    func = FuncOp.of("main", ["x", "y"], [tensor(f32, [1 << 17])] * 2)
    block = func.body.block
    kept = ConstantOp.of_array(mask, context.weights, "mask")
    choice = WhereOp.of(kept, *block.args)
    block.add_ops([kept, choice])
    func.finish(["z"], choice.results)
    text = run_passes(ModuleOp([func]), "graph-simplify", context)
    assert ("graph.where" in text) == (hole is not None)
