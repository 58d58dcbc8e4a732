"""Pools in both layouts: one axis of results, written-out windows, and what they compute."""

from __future__ import annotations

import numpy as np
import pytest

from dialects.block import KernelOp, LoadOp
from dialects.graph.interpret import evaluate_func
from dialects.host.interpret import interpret_host
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import main_function
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.lowering import lower
from tests.passes.harness import parse

POOLS = {
    "max": ("max_pool", "kernel = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]", (5, 7), 9),
    "avg": ("avg_pool", "kernel = [2, 2], strides = [2, 2]", (4, 6), 4),
    "slim": ("max_pool", "kernel = [1, 5], strides = [1, 1], pads = [0, 2, 0, 2]", (9, 13), 5),
}


@pytest.mark.parametrize("channels", [8, 13])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("name", POOLS)
def test_windows_are_written_out(name: str, last: bool, channels: int) -> None:
    kind, attributes, (h, w), taps = POOLS[name]
    made = f"f16[3, {channels}, {h}, {w}]"
    given, turned = f"f16[3, {channels}, 9, 13]", f"f16[3, {h}, {w}, {channels}]"
    body = f"%r = graph.{kind} %x {{{attributes}}} : {made}\n"
    if last:
        given = f"f16[3, 9, 13, {channels}]"
        body = (f"%t = graph.transpose %x {{perm = [0, 3, 1, 2]}} : f16[3, {channels}, 9, 13]\n"
                f"%p = graph.{kind} %t {{{attributes}}} : {made}\n"
                f"%r = graph.transpose %p {{perm = [0, 2, 3, 1]}} : {turned}\n")
    context = TARGET.bind(TargetOptions(features="sm_90")).context()
    module = parse(f"builtin.module {{ strata.func @main(%x: {given}) -> ("
                   f"{turned if last else made}) inputs [\"x\"] outputs [\"r\"] {{\n{body}"
                   f"strata.return %r }} }}", context)
    shape = (3, 9, 13, channels) if last else (3, channels, 9, 13)
    x = np.random.default_rng(channels).standard_normal(shape).astype(np.float16)
    x.reshape(-1)[[3, -1]] = np.nan, np.inf
    wanted = evaluate_func(main_function(module), [x], EvaluationContext())
    for _ in lower(module, context):
        pass
    found = interpret_host(module, [x], context.weights)
    np.testing.assert_allclose(found[0], wanted[0], rtol=2e-3, atol=2e-3, equal_nan=True)
    [kernel] = [op for op in module.walk() if isinstance(op, KernelOp)]
    assert f"unroll {taps}" in str(kernel.schedule)
    assert all(len(op.result.type.shape) == 1 for op in kernel.walk() if isinstance(op, LoadOp))


@pytest.mark.parametrize("last_nan", [False, True], ids=["first NaN", "last NaN"])
@pytest.mark.parametrize("element", ["f16", "i32"])
def test_maxima_and_their_places_are_found_by_the_same_programs(
    element: str, last_nan: bool
) -> None:
    """Both windows are written out. Maxima may be equal, NaN, or the lowest number."""
    form = "kernel = [3, 3], strides = [2, 2], dilations = [1, 1], pads = [1, 1, 1, 1]"
    x, y, i = f"{element}[2, 5, 9, 13]", f"{element}[2, 5, 5, 7]", "i64[2, 5, 5, 7]"
    context = TARGET.bind(TargetOptions(features="sm_90")).context()
    module = parse(f"builtin.module {{ strata.func @main(%x: {x}) -> ({y}, {i}) inputs [\"x\"] "
                   f"outputs [\"y\", \"i\"] {{\n%y = graph.max_pool %x {{{form}, "
                   f"ceil_mode = false}} : {y}\n%i = graph.max_pool_indices %x, %y {{{form}, "
                   f"ceil_mode = false, last_nan = {str(last_nan).lower()}}} : {i}\n"
                   f"strata.return %y, %i }} }}", context)
    values = np.random.default_rng(7).integers(-2, 3, (2, 5, 9, 13))
    x_ = values.astype({"f16": np.float16, "i32": np.int32}[element])
    lowest = -np.inf if element == "f16" else np.iinfo(np.int32).min
    x_[0, 1], x_[1, 0, :4] = lowest, lowest
    if element == "f16":
        x_[0, 0, ::3, ::2] = np.nan
    wanted = evaluate_func(main_function(module), [x_], EvaluationContext())
    for _ in lower(module, context):
        pass
    for ours, true in zip(interpret_host(module, [x_], context.weights), wanted, strict=True):
        np.testing.assert_array_equal(ours, true)
    [kernel] = [op for op in module.walk() if isinstance(op, KernelOp)]
    assert str(kernel.schedule).count("unroll 9") == 2
