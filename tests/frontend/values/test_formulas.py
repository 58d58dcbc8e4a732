"""Operators and formulas of frontend values: the operations that they build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from compiler.frontend import formulas as f
from compiler.frontend.builder import Builder
from compiler.frontend.values import Value
from compiler.pipeline.text import format_module
from dialects.graph.base import ShapeError
from dialects.graph.interpret import evaluate_func
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata import types as t
from dialects.strata.func import FuncOp
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from dialects.verifying import verify

A = np.array([[-2.0, -0.5, 0.25], [1.0, 3.0, 4.0]], np.float32)
B = np.array([0.5, 2.0, -1.0], np.float32)

Formula = Callable[[Any, Any], Any]


def built(formula: Callable[..., Any], *arrays: Array) -> tuple[FuncOp, Builder]:
    """A function that computes the formula of its arguments."""
    types = [t.tensor(t.element_of(a.dtype), a.shape) for a in arrays]
    function = FuncOp.of("main", ["a", "b"][:len(arrays)], types)
    ModuleOp([function])
    build = Builder(function.body.block, WeightStore(), node="here")
    result = formula(*map(build.value, function.body.block.args))
    function.finish(["y"], [build.ssa(result)])
    return function, build


def computed(formula: Callable[..., Any], *arrays: Array) -> Array:
    function, build = built(formula, *arrays)
    verify(function)
    context = EvaluationContext(weights=build.weights)
    return evaluate_func(function, list(arrays), context)[0]


OPERATORS: list[Formula] = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b,
    lambda a, b: -a, lambda a, b: abs(a) + b, lambda a, b: a @ b, lambda a, b: abs(a) ** b,
    lambda a, b: 1 + a, lambda a, b: 1 - a, lambda a, b: 2 * a, lambda a, b: 1 / a,
    lambda a, b: 2 ** a, lambda a, b: a % 2, lambda a, b: np.float64(3) * a,
    lambda a, b: a < b, lambda a, b: a <= 1, lambda a, b: a < 1, lambda a, b: a >= b,
    lambda a, b: (a < b) & (a > 0), lambda a, b: (a < b) | (a > 0), lambda a, b: ~(a < b),
    lambda a, b: (a < b) ^ (a > 0),
]


@pytest.mark.parametrize("formula", OPERATORS)
def test_operators_mean_what_they_mean_to_numpy(formula: Formula) -> None:
    want = np.asarray(formula(A, B))
    found = computed(formula, A, B)
    assert found.dtype == (np.bool_ if want.dtype == np.bool_ else np.float32)
    np.testing.assert_allclose(found, want, rtol=1e-6)


FORMULAS: list[tuple[Formula, Array]] = [
    (lambda a, b: f.where(a > 0, a, 0), np.where(A > 0, A, 0)),
    (lambda a, b: f.where(a > 0, 1, a), np.where(A > 0, 1, A)),
    (lambda a, b: f.maximum(a, b), np.maximum(A, B)),
    (lambda a, b: f.minimum(0.5, a), np.minimum(A, 0.5)),
    (lambda a, b: f.equal(a, 1), A == 1),
    (lambda a, b: f.total([a, b, b]), A + B + B),
    (lambda a, b: f.product(v for v in (a, b)), A * B),
    (lambda a, b: f.any_of([a > 3, a < b]), (A > 3) | (A < B)),
    (lambda a, b: f.concat([a, a], axis=0), np.concatenate([A, A])),
    (lambda a, b: f.exp(f.log(abs(a))), abs(A)),
    (lambda a, b: f.reduce_sum(a, axes=[1]), A.sum(1)),
    (lambda a, b: f.reduce_mean(a, axes=[0], keepdims=True), A.mean(0, keepdims=True)),
    (lambda a, b: f.reduce_max(a, axes=[0, 1]), A.max()),
    (lambda a, b: a.cast(t.i64).reshape([3, 2]), A.astype(np.int64).reshape(3, 2)),
    (lambda a, b: a.transpose([1, 0]).part(0, 1, 2), A.T[1:]),
    (lambda a, b: b.broadcast([2, 3]) + Expr.of(2), np.broadcast_to(B, (2, 3)) + 2),
]


@pytest.mark.parametrize(("formula", "want"), FORMULAS)
def test_formulas(formula: Formula, want: Array) -> None:
    np.testing.assert_allclose(computed(formula, A, B), want, rtol=1e-6)


def softsign(x: Value) -> Value:
    return x / (1 + abs(x))


def same(x: Value) -> Value:
    return x


def test_operations_are_at_the_node_and_in_the_order_of_the_formula() -> None:
    function, _ = built(softsign, A)
    names = [op.name for op in function.body.block.ops]
    assert names[:-1] == ["graph.abs", "graph.constant", "graph.add", "graph.div"]
    text = format_module(function)
    assert text.count("loc(#loc0)") >= 4 and '#loc0 = loc("here")' in text


def test_what_changes_nothing_is_no_operation() -> None:
    def unchanged(x: Value) -> Value:
        assert x.cast(t.f32) is x
        assert x.reshape([2, 3]) is x
        assert x.broadcast([2, 3]) is x
        assert x.transpose([0, 1]) is x
        assert x.part(1, 0, 3) is x
        return x

    function, _ = built(unchanged, A)
    assert [op.name for op in function.body.block.ops] == ["strata.return"]


def test_values_are_compared_by_identity() -> None:
    """They are keys of dictionaries, so `==` must not build an operation."""
    function, build = built(same, A)
    x, other = (build.value(function.body.block.args[0]) for _ in range(2))
    assert x == x and x != other
    assert {x: 1, other: 2}[x] == 1


def add(a: Value, b: Value) -> Value:
    return a + b


def maximum_of_numbers(a: Value) -> Value:
    return f.maximum(1, 2)


def choice_of_numbers(a: Value) -> Value:
    return f.where(a > 0, 1, 2)


def test_operands_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="element types differ"):
        built(add, A, B.astype(np.float64))
    for formula in (maximum_of_numbers, choice_of_numbers):
        with pytest.raises(TypeError, match="must be a Value"):
            built(formula, A)
