"""Scatters that are inverted, for constant indices or by many programs: the same numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

import dialects.graph as g
from dialects.graph.base import GraphOp
from dialects.graph.interpret import evaluate_func
from dialects.loop import NestOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import widen
from dialects.strata.func import FuncOp, main_function
from dialects.strata.types import Array, element_of, tensor
from dialects.symbolic.expr import Expr, Size
from dialects.verifying import verify
from passes.base import Facts, StrataContext
from passes.graph_to_loop import scatters
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
    verify(module)
    found = evaluate_func(main_function(module), [X, updates], context)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    reductions = [o for o in module.walk() if isinstance(o, NestOp) and o.reduce_axes]
    assert bool(reductions) == (searches and combiner != "none")


PARALLEL = Facts(programs=528)
KINDS = (np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8, np.int64, np.bool_)


def values(rng: np.random.Generator, kind: Any, shape: tuple[int, ...]) -> Array:
    """Small numbers, so that sums are exact, and NaN and infinities among floats."""
    found = np.asarray(rng.integers(0, 4, shape), kind)
    if np.dtype(kind).kind not in "biu":
        found[rng.random(shape) < 0.01] = np.nan
    return found


def unordered(
    op: type[GraphOp], given: list[Array], shapes: list[tuple[Size, ...]], **more: object
) -> ModuleOp:
    types = [tensor(element_of(a.dtype), s) for a, s in zip(given, shapes, strict=True)]
    func = FuncOp.of("main", ["x", "i", "u"], types)
    result = op.of(*func.body.block.args, **more)
    func.body.block.add_op(result)
    func.finish(["y"], [SSAValue.get(result.results[0])])
    return ModuleOp([func])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("x, i, u, axis", [
    ((61,), (200, 1), (200,), None),  # single elements
    ((37, 5), (131, 1), (131, 5), None),  # rows
    ((7, 11, 3), (150, 2), (150, 3), None),  # index vectors
    ((7, 11), (10, 20, 2), (10, 20), None),  # a table of index vectors
    ((83,), (170,), (170,), 0),
    ((5, 41), (3, 190), (3, 190), 1),  # fewer rows of updates than of elements
    ((41, 1, 4), (190, 1, 4), (190, 1, 4), 0),
])
def test_many_programs_find_their_updates(
    x: tuple[int, ...], i: tuple[int, ...], u: tuple[int, ...], axis: int | None, combiner: str,
    kind: Any,
) -> None:
    if kind == np.bool_ and combiner != "none":
        pytest.skip("truth values are not combined")
    rng = np.random.default_rng(7)
    least = min(x[:i[-1]]) if axis is None else x[axis]
    given = [values(rng, kind, x), rng.integers(-least, least, i), values(rng, kind, u)]
    op, more = (g.ScatterNdOp, {}) if axis is None else (g.ScatterElementsOp, {"axis": axis})
    module = unordered(op, given, [x, i, u], combiner=combiner, **more)
    context = EvaluationContext()
    [want] = evaluate_func(main_function(module), given, context)
    for pass_ in parse_passes("graph-to-loop"):
        pass_.apply(StrataContext.with_dialects(context.weights, PARALLEL), module)
    verify(module)
    assert not any(o.is_scatter for o in module.walk() if isinstance(o, NestOp))
    [found] = evaluate_func(main_function(module), given, context)
    if kind in (np.int32, np.uint8, np.int64, np.bool_) or combiner == "none":
        np.testing.assert_array_equal(widen(found), widen(want))
    else:  # products of many small numbers, in another order
        np.testing.assert_allclose(widen(found), widen(want), rtol=1e-5)


@pytest.mark.parametrize("x, i, u", [
    ((4096, 1024), (8, 1), (8, 1024)),  # a few rows of a cache: the others stay where they are
    (("n", 4), ("k", 1), ("k", 4)),  # sizes that only a run tells
])
def test_others_update_in_order(
    x: tuple[Size, ...], i: tuple[Size, ...], u: tuple[Size, ...]
) -> None:
    named = [tuple(Expr.size(s) if isinstance(s, str) else s for s in shape) for shape in (x, i, u)]
    kinds = [np.zeros(1, k) for k in (np.float32, np.int64, np.float32)]
    module = unordered(g.ScatterNdOp, kinds, named, combiner="add")
    for pass_ in parse_passes("graph-to-loop"):
        pass_.apply(StrataContext.with_dialects(facts=PARALLEL), module)
    assert any(o.is_scatter for o in module.walk() if isinstance(o, NestOp))


@pytest.mark.parametrize("kind", [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8])
@pytest.mark.parametrize("combiner", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("x, i, u", [
    ((61,), (700, 1), (700,)),  # long runs, over several steps
    ((300, 5), (131, 1), (131, 5)),  # most rows have no update
    ((7, 11, 3), (150, 2), (150, 3)),  # index vectors
    ((1, 2), (100, 1), (100, 2)),  # one run
])
def test_sorted_updates(
    x: tuple[int, ...], i: tuple[int, ...], u: tuple[int, ...], combiner: str, kind: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("SORTED", 0.0), ("PASSES", 0), ("COMPARED", 1.0)):
        monkeypatch.setattr(scatters, name, value)
    rng = np.random.default_rng(11)
    given = [values(rng, kind, x), rng.integers(-min(x[:i[-1]]), min(x[:i[-1]]), i),
             values(rng, kind, u)]
    module, context = unordered(g.ScatterNdOp, given, [x, i, u], combiner=combiner), (
        EvaluationContext())
    with np.errstate(all="ignore"):
        [want] = evaluate_func(main_function(module), given, context)
        for pass_ in parse_passes("graph-to-loop"):
            pass_.apply(StrataContext.with_dialects(context.weights, PARALLEL), module)
        verify(module)
        [found] = evaluate_func(main_function(module), given, context)
    assert all(o.axes[-1].extent.constant != i[0] or not o.reduce_axes for o in module.walk()
               if isinstance(o, NestOp) and o.is_scatter and o.combiner_names == [combiner])
    if kind in (np.int32, np.uint8):
        np.testing.assert_array_equal(found, want)
    else:
        np.testing.assert_allclose(widen(found), widen(want), rtol=1e-5)
