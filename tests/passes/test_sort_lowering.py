"""Sorting and selecting, as top_k lowers to them: all types, ties, signs, NaN, and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser
import pytest
from xdsl.dialects.builtin import ModuleOp

import compiler
import dialects.graph as g
from dialects.graph.interpret import evaluate_func
from dialects.loop import KernelOp, NestOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import widen
from dialects.strata.func import FuncOp, main_function
from dialects.strata.types import Array, element_of, tensor
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.size_products import product
from dialects.verifying import verify
from passes.analyses.loop.kinds import is_sort
from passes.base import Facts, StrataContext
from passes.graph_to_loop import ordering
from passes.registry import parse_passes
from targets.base import TargetOptions, find_target
from tests.lowering import lower
from tests.symbols import by_symbol

FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
INTEGERS = (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64)


def numbers(dtype: Any, *shape: int) -> Array:
    """All bit patterns alike, so all exponents, and every third one of few numbers."""
    rng = np.random.default_rng(3)
    flat = rng.integers(0, 256, (int(np.prod(shape)), np.dtype(dtype).itemsize), np.uint8)
    found = flat.view(dtype)[:, 0]
    few = [0, 1, 2] if dtype in INTEGERS else [0.0, -0.0, np.inf, -np.inf, np.nan, -1.5]
    found[::3] = np.resize(np.array(few).astype(dtype), found[::3].shape)
    return found.reshape(shape)


def top_k(x: Array, axis: int, k: Size, largest: bool, shape: Sequence[Size] = ()) -> ModuleOp:
    func = FuncOp.of("main", ["x"], [tensor(element_of(x.dtype), shape or x.shape)])
    op = g.TopKOp.of(func.body.block.args[0], axis=axis, k=k, largest=largest)
    func.body.block.add_op(op)
    func.finish(["v", "i"], list(op.results))
    return ModuleOp([func])


def assert_same(found: Sequence[Array], expected: Sequence[Array]) -> None:
    for a, e in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        np.testing.assert_array_equal(widen(a), widen(e))


@pytest.mark.parametrize("programs", [1, 528])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [1, 7, 291])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_every_type(dtype: Any, k: int, largest: bool, programs: int) -> None:
    x, context = numbers(dtype, 2, 291, 3), EvaluationContext()
    module = top_k(x, 1, k, largest)
    expected = evaluate_func(main_function(module), [x], context)
    for pass_ in parse_passes("graph-to-loop"):
        pass_.apply(StrataContext.with_dialects(context.weights, Facts(programs=programs)), module)
    verify(module)
    assert_same(evaluate_func(main_function(module), [x], context), expected)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [17, 230])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_radix_select(
    dtype: Any, k: int, largest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few of many, and many: ties at the last place, NaN, and all bit patterns. Half of the cases
    have an open size, too.
    """
    monkeypatch.setattr(ordering, "COUNTED", 240)
    x, context = numbers(dtype, 2, 347, 2), EvaluationContext()
    opened = [(2, Expr.size("n"), 2)] if largest == (k == 17) else []
    for shape in (x.shape, *opened):
        module = top_k(x, 1, k, largest, shape)
        given = EvaluationContext(by_symbol({"n": 347}), context.weights)
        expected = evaluate_func(main_function(module), [x], given)
        for pass_ in parse_passes("graph-to-loop"):
            pass_.apply(StrataContext.with_dialects(context.weights, Facts(programs=528)), module)
        verify(module)
        assert not any(o.is_scatter and o.into for o in module.walk()
                       if isinstance(o, NestOp) and len(o.axes) == 4)  # no round of a radix sort
        assert_same(evaluate_func(main_function(module), [x], given), expected)


@pytest.mark.parametrize("tile", [128, 8192])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [4, 40, 347])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_sorts_in_tiles(dtype: Any, k: int, largest: bool, tile: int) -> None:
    """Rows that fit into a tile, runs that are merged, and the first few of runs."""
    x, context = numbers(dtype, 2, 347, 3), EvaluationContext()
    module = top_k(x, 1, k, largest)
    expected = evaluate_func(main_function(module), [x], context)
    facts = Facts(programs=528, sorted_bytes=tile)
    for pass_ in parse_passes("graph-to-loop"):
        pass_.apply(StrataContext.with_dialects(context.weights, facts), module)
    verify(module)
    sorts = [o for o in module.walk() if isinstance(o, NestOp) and o.combiner_names == ["sort"]]
    assert bool(sorts) == (x.dtype.itemsize <= 4 and k > 4)
    assert all(4 * (o.reduce_axes[0].extent.constant or 0) <= tile for o in sorts)
    assert_same(evaluate_func(main_function(module), [x], context), expected)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_sorts_alone(dtype: Any, largest: bool) -> None:
    """One nest makes 64-bit codes, and another one, a kernel of its own, sorts them."""
    x, context = numbers(dtype, 2, 347, 3), EvaluationContext()
    module = top_k(x, 1, 347, largest)
    expected = evaluate_func(main_function(module), [x], context)
    facts = Facts(sorted_bytes=1 << 20, sorts_alone=True)
    given = StrataContext.with_dialects(context.weights, facts)
    for pass_ in parse_passes("graph-to-loop,loop-fuse"):
        pass_.apply(given, module)
    verify(module)
    sorts = [o for o in module.walk() if isinstance(o, NestOp) and is_sort(o)]
    assert len(sorts) == (x.dtype.itemsize <= 4)
    assert all(len(o.inputs) == 1 and len(o.body.block.ops) == 1 for o in sorts)
    assert_same(evaluate_func(main_function(module), [x], context), expected)
    for pass_ in parse_passes("loop-outline"):
        pass_.apply(given, module)
    kernels = [o for o in module.walk() if isinstance(o, KernelOp)]
    assert all(len([*k.nests]) == 1 for k in kernels if any(map(is_sort, k.nests)))


@pytest.mark.parametrize("size", [1301, 2048])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", [d for d in (*FLOATS, *INTEGERS) if np.dtype(d).itemsize <= 4])
def test_a_few_of_groups(dtype: Any, largest: bool, size: int) -> None:
    """Of long rows only groups are sorted whose first elements come first; ties keep their order.
    """
    x, context = numbers(dtype, 2, size), EvaluationContext()
    module = top_k(x, 1, 20, largest)
    expected = evaluate_func(main_function(module), [x], context)
    facts = Facts(programs=528, sorted_bytes=1024)
    for pass_ in parse_passes("graph-to-loop"):
        pass_.apply(StrataContext.with_dialects(context.weights, facts), module)
    verify(module)
    sorts = [o for o in module.walk() if isinstance(o, NestOp) and o.combiner_names == ["sort"]]
    elements = [product(a.extent for a in o.axes).constant or 0 for o in sorts]
    assert 0 < sum(elements) < 2 * size, "sorts less than the whole"
    assert_same(evaluate_func(main_function(module), [x], context), expected)


@pytest.mark.parametrize(("k", "size", "chunks"), [
    (2, 2048, True), (20, 1301, True), (60, 347, False), (200, 201, False)])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_few_programs(dtype: Any, largest: bool, k: int, size: int, chunks: bool) -> None:
    """Of long rows only the chunks whose first elements come first are searched; no row is sorted
    of which a part is wanted; ties keep their order."""
    x, context = numbers(dtype, 2, size, 3), EvaluationContext()
    x[1, :, 0] = x[1, 0, 0]
    module = top_k(x, 1, k, largest)
    expected = evaluate_func(main_function(module), [x], context)
    for pass_ in parse_passes("graph-to-loop"):
        pass_.apply(StrataContext.with_dialects(context.weights, Facts()), module)
    verify(module)
    nests = [o for o in module.walk() if isinstance(o, NestOp)]
    best = [o for o in nests if o.combiner_names == ["max"] and len(o.parallel_axes) == 3]
    assert bool(best) == chunks, "maxima of chunks"
    assert not any(o.is_scatter and o.into and len(o.axes) == 4 for o in nests), "a radix sort"
    assert_same(evaluate_func(main_function(module), [x], context), expected)


def test_every_size() -> None:
    """One compiled model."""
    cpu, context, options = find_target("cpu"), EvaluationContext(), TargetOptions(threads=2)
    n = Expr.size("n")
    module, reference = (top_k(numbers(np.float32, 1), 0, n, True, [n]) for _ in range(2))
    strata = cpu.bind(options).context(context.weights)
    list(lower(module, strata))
    model = cpu.bind(options).running.load(module, context.weights)
    for size in (0, 1, 32, 33, 255, 4097, 70001):
        x = numbers(np.float32, size)
        given = EvaluationContext(by_symbol({"n": size}))
        expected = evaluate_func(main_function(reference), [x], given)
        assert_same(model.run([x]), expected)


def test_a_few_of_every_size() -> None:
    """One compiled model, which selects."""
    cpu, context, options = find_target("cpu"), EvaluationContext(), TargetOptions(threads=2)
    n = Expr.size("n")
    module, reference = (top_k(numbers(np.float32, 3, 1), 1, 5, True, [3, n]) for _ in range(2))
    list(lower(module, cpu.bind(options).context(context.weights)))
    model = cpu.bind(options).running.load(module, context.weights)
    for size in (5, 16, 33, 255, 4097):
        x = numbers(np.float32, 3, size)
        given = EvaluationContext(by_symbol({"n": size}))
        expected = evaluate_func(main_function(reference), [x], given)
        assert_same(model.run([x]), expected)


def test_selecting_walks_along_memory() -> None:
    """However many rows there are, and values that one walk leaves for the next."""
    module = top_k(numbers(np.float32, 64, 1024), 1, 8, True)
    strata = find_target("cpu").bind(TargetOptions()).context()
    for step in lower(module, strata):
        if step == "loop-schedule":
            break
    [kernel] = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    assert kernel.schedule is not None and kernel.schedule.data.lanes is not None
    assert kernel.axes[kernel.schedule.data.lanes].constant == 1024


@pytest.mark.parametrize("size", [1, 2])
def test_an_order_of_an_order_is_its_inverse(size: int) -> None:
    """Of one element all indices are known, so what stores at them is no scatter any more."""
    model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 17]>
inverse (int64[SIZE] x, float[n, SIZE] y) => (int64[SIZE] j, float[n, SIZE] z)
<int64[1] k = {SIZE}> {
    v, i = TopK<axis = 0>(x, k)  w, j = TopK<axis = 0, largest = 0>(i, k)
    z = Gather<axis = 1>(y, j)
}""".replace("SIZE", str(size)))
    x, y = np.arange(size), numbers(np.float32, 3, size)
    order = np.argsort(-x)
    inverse, picked = compiler.compile(model)(x, y)
    assert_same([inverse, picked], [np.argsort(order), y[:, np.argsort(order)]])


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint64])
def test_a_few_of_64_bits_take_two_nests_each(dtype: Any, k: int, largest: bool) -> None:
    """Rows of any size, with ties of the greatest and of the least keys, as the last ones too."""
    x, context = numbers(dtype, 3, 40, 2), EvaluationContext(by_symbol({"n": 3, "m": 40}))
    least, greatest = (-np.inf, np.nan) if dtype is np.float64 else (
        np.iinfo(dtype).min, np.iinfo(dtype).max)
    x[0, :, 0], x[0, :, 1] = least, greatest
    x[1, :, 0] = np.resize(np.array([greatest, least], dtype), 40)
    x[1, 2:, 1] = least
    module = top_k(x, 1, k, largest, [Expr.size("n"), Expr.size("m"), 2])
    expected = evaluate_func(main_function(module), [x], context)
    for pass_ in parse_passes("graph-to-loop"):
        pass_.apply(StrataContext.with_dialects(context.weights), module)
    verify(module)
    assert sum(isinstance(op, NestOp) for op in module.walk()) == 2 * k + 3
    assert_same(evaluate_func(main_function(module), [x], context), expected)
