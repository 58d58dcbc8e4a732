"""Computations on weights as data: what is read back computes the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import bf16, f16, f32, f64
from xdsl.ir import Block

from dialects import graph
from dialects.graph import AddOp, CastOp, ConcatOp
from dialects.graph.folded import Folded, evaluated
from dialects.graph.unary import UnaryOp
from dialects.loop import Axis, NestOp
from dialects.loop.body_ops import YieldOp
from dialects.loop.interpret import evaluate_nest
from dialects.semantics.arithmetic import FLOATS, FORMULAS, Converted, Elementwise
from dialects.semantics.computations import computation_facts, read_computation
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.filters import (
    Change,
    ChangedBias,
    ChangedFilter,
    FilterAtPoints,
    JoinedGroups,
)
from dialects.semantics.relayout import Relayout, Reshaped, Transposed
from dialects.strata.types import TensorType, element_of, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.expr_syntax import expr_of
from dialects.symbolic.symbol import Symbol

RNG = np.random.default_rng(0)


def relayout(text: str, pad: float | None = None) -> Relayout:
    """Of a tensor [5, 7], by `i0:3 i1:4 -> i0 + 1, i1`."""
    axes, map_ = text.split(" -> ")
    pairs = [axis.split(":") for axis in axes.split()]
    return Relayout((5, 7), tuple((Symbol.axis(name), int(n)) for name, n in pairs),
                    tuple(map(expr_of, map_.split(", "))), pad)


COMPUTATIONS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "transposed": (Transposed((5, 7, 2), (2, 0, 1)), [(5, 7, 2)]),
    "transposed, of other sizes": (Transposed((5, 14), (1, 0)), [(5, 7, 2)]),
    "sum": (Elementwise("add"), [(5, 7), (7,)]),
    "converted": (Converted(np.dtype(ml_dtypes.bfloat16)), [(5, 7)]),
    "reshaped": (Reshaped((7, 5)), [(5, 7)]),
    "panels": (relayout("i0:3 i1:7 i2:2 -> 2 * i0 + i2, i1", 0.0), [(5, 7)]),
    "border": (relayout("i0:7 i1:9 -> i0 - 1, i1 - 1", -1.5), [(35,)]),
    "gathered": (relayout("i0:5 i1:9 -> i0, i1 floordiv 2"), [(5, 7)]),
    "gathered with a pad": (relayout("i0:5 i1:19 -> i0, i1 floordiv 2", 2.0), [(5, 7)]),
    "nothing": (relayout("i0:0 i1:7 -> i0, i1"), [(5, 7)]),
    "filter": (ChangedFilter(Change("batch norm", 1e-3), 4, np.dtype(np.float32)),
               [(4, 3, 2, 2), (4,), (4,), (4,), (4,)]),
    "transposed filter": (ChangedFilter(Change("over"), 4, np.dtype(ml_dtypes.bfloat16), 2),
                          [(6, 2, 3), (4,)]),
    "bias": (ChangedBias(Change("minus"), 4, np.dtype(np.float16), True), [(4,), (4, 1, 1)]),
    "new bias": (ChangedBias(Change("plus"), 4, np.dtype(np.float32), False), [(1,)]),
    "joined groups": (JoinedGroups(4, 2), [(8, 3, 3)]),
    "at points": (FilterAtPoints((2,), (3,), ((1.0, 0.1), (0.3, 1e-30), (0.0, 1.0)),
                                 (1.0, 3.0, -0.7)), [(3, 2, 2)]),
}


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_read_back(name: str) -> None:
    computation, shapes = COMPUTATIONS[name]
    arrays = [RNG.uniform(0.5, 2, shape).astype(np.float32) for shape in shapes]
    again = read_computation(json.loads(json.dumps(computation_facts(computation))))
    assert again == computation
    one, other = computation(*arrays), again(*arrays)
    assert one.dtype == other.dtype and np.array_equal(one, other)
    if hasattr(computation, "begin"):
        begun: Any = computation.begin(*arrays)
        begun.fill()
        assert begun.array.dtype == one.dtype and np.array_equal(begun.array, one)


@pytest.mark.parametrize("rows", [1, 511, 512, 513, 34_000])
def test_filters_at_points_are_the_products_of_all_rows(rows: int) -> None:
    table = ((1.0, 0.1, 0.0), (0.3, 1e-30, 2.0), (0.0, 1.0, 1.0), (0.5, 0.5, -0.5))
    filters = RNG.uniform(0.5, 2, (1, 3, rows)).astype(np.float32)
    divisors = (1.0, 3.0, -0.7, 2.0)
    found = FilterAtPoints((1,), (2, 2), table, divisors)(filters)
    expected = (np.array(table) @ filters[0].astype(np.float64) / np.array(divisors)[:, None]
                ).astype(np.float32)
    assert found.shape == (2, 2, 1, rows)
    assert np.allclose(found.reshape(4, rows), expected, rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("name", ["panels", "border", "gathered", "gathered with a pad"])
def test_a_relayout_is_a_nest_that_copies(name: str, dtype: Any) -> None:
    computation: Any = COMPUTATIONS[name][0]
    array = np.arange(35).reshape(5, 7).astype(dtype)
    element = element_of(array.dtype)
    block = Block(arg_types=[tensor(element, (5, 7))])
    kept = [Expr.symbol(name) for name, _ in computation.axes]
    nest = NestOp.of([Axis(name, Expr.of(n)) for name, n in computation.axes], [block.args[0]],
                     [computation.map], [tensor(element, [n for _, n in computation.axes])],
                     [kept], pads=[computation.pad], body=None)
    nest.body.block.add_op(YieldOp.of(nest.body.block.args[0]))
    [expected] = evaluate_nest(nest, EvaluationContext(), array)
    for given in (array, array.T.copy().T):
        assert np.array_equal(computation(given).view(np.uint8), expected.view(np.uint8))
        begun = computation.begin(given)
        begun.fill()
        assert np.array_equal(begun.array.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", FLOATS)
def test_conversions_are_casts(source: str, target: str) -> None:
    """Also of numbers that are too large or too small, between two others, and of NaN."""
    values = Block(arg_types=[type_of(source, 300)]).args
    cast = CastOp.create(operands=values, result_types=[type_of(target, 300)],
                         properties={"to": type_of(target, 300).element})
    array = floats(source)
    [expected] = evaluated(cast, [array])
    same_bits(Converted(expected.dtype)(array), expected)


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("formula", FORMULAS)
def test_formulas_are_operations(formula: str, element: str) -> None:
    """Of the same numbers, and of some that broadcast."""
    for shapes in ((300, 300), (300, 1), (1, 300)):
        values = Block(arg_types=[type_of(element, n) for n in shapes]).args
        kind: Any = getattr(graph, f"{formula.title()}Op")
        arrays = [floats(element)[:n] for n in shapes]
        if issubclass(kind, UnaryOp):
            values, arrays = values[:1], arrays[:1]
        [result] = kind.infer([v.type for v in values], {})
        op = kind.create(operands=values, result_types=[result])
        [expected] = evaluated(op, arrays)
        same_bits(Elementwise(formula)(*arrays), expected)


def floats(element: str) -> Any:
    """300 numbers, the special ones among them."""
    special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e300, 65520.0, 65519.0, 3.4e38, 1e-45, 1e-320,
               1 + 2.0**-8, 1 + 3 * 2.0**-9, 1 + 2.0**-24]
    wide = np.concatenate([special, RNG.standard_normal(286) * 10.0**RNG.integers(-9, 9, 286)])
    with np.errstate(all="ignore"):
        return wide.astype(type_of(element, 300).dtype)


def same_bits(found: Any, expected: Any) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.flags.c_contiguous
    assert np.array_equal(found.view(np.uint8), expected.view(np.uint8))


def type_of(element: str, size: int) -> TensorType:
    return tensor({"f16": f16, "bf16": bf16, "f32": f32, "f64": f64}[element], (size,))


def test_reads_outside_are_refused() -> None:
    with pytest.raises(IndexError):
        relayout("i0:6 i1:7 -> i0, i1")(np.zeros((5, 7), np.float32))


def test_operations_are_read_back_from_their_text() -> None:
    a, b = RNG.random((2, 3, 4)).astype(np.float32)
    values = Block(arg_types=[tensor(f32, (3, 4))] * 2).args
    for op in (AddOp.of(*values), ConcatOp.of(*values, axis=1)):
        folded = Folded.of(op, 0)
        again = read_computation(json.loads(json.dumps(computation_facts(folded))))
        assert np.array_equal(folded(a, b), again(a, b))


@pytest.mark.parametrize("facts", [
    ["os", "system", []], ["dialects.semantics.arithmetic", "Folded", []],
    ["dialects.semantics.relayout", "release", []],
    ["dialects.semantics.relayout", "Missing", []], ["compiler.api", "load", []]])
def test_other_names_are_refused(facts: Any) -> None:
    with pytest.raises(ValueError):
        read_computation(facts)


def test_functions_are_no_data() -> None:
    assert computation_facts(lambda array: array) is None
