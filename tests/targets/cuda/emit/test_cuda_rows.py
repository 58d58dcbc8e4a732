"""Rows that are sorted in tiles, and lists of tensors in one launch: interpreted, on a device."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import dialects.graph as g
from dialects.graph.interpret import evaluate_func
from dialects.host import LaunchOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import widen
from dialects.strata.func import FuncOp, main_function
from dialects.strata.types import Array, element_of, tensor
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.emit import emit_kernel
from targets.cuda.machine import WARP
from targets.cuda.planning.plan import planned_kernel
from targets.cuda.scheduling.options import WARPS
from targets.walking import kernels_of
from tests.lowering import lower
from tests.passes.test_sort_lowering import numbers, top_k

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
INTERPRETED, DEVICE = TargetOptions("sm_90", interpret=True), TargetOptions()
SORTS = [(np.float32, (3, 50), 50), (ml_dtypes.bfloat16, (2, 300), 300), (np.int8, (5, 37, 3), 20)]
LONG = [
    (ml_dtypes.bfloat16, (3, 11660), 11660), (np.float16, (2, 20001), 20001),
    (np.float32, (2, 9000), 9000), (ml_dtypes.bfloat16, (5, 227459), 40),
    (np.float32, (3, 70001), 300), (np.uint8, (7, 1000), 1000), (np.int16, (300, 33), 33)]
SHAPES = [(40,), (7, 9), (1,), (3, 1025), (0, 4), (2, 3, 5), (600, 33)]


def check(
    module: ModuleOp, same: ModuleOp, inputs: Sequence[Array], options: TargetOptions
) -> None:
    """Compare what a module computes with what its operators mean."""
    context, bound = EvaluationContext(), TARGET.bind(options)
    expected = evaluate_func(main_function(same), inputs, context)
    list(lower(module, bound.context(context.weights)))
    found = bound.running.load(module, context.weights).run(inputs)
    for a, e in zip(found, expected, strict=True):
        np.testing.assert_array_equal(widen(a), widen(e))


def sums(shapes: Sequence[tuple[int, ...]], dtype: Any) -> ModuleOp:
    """x + x of each tensor."""
    func = FuncOp.of("main", [f"x{k}" for k in range(len(shapes))],
                     [tensor(element_of(np.dtype(dtype)), s) for s in shapes])
    ops = [g.AddOp.of(a, a) for a in func.body.block.args]
    func.body.block.add_ops(ops)
    func.finish([f"y{k}" for k in range(len(shapes))], [op.results[0] for op in ops])
    return ModuleOp([func])


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize(("dtype", "shape", "k"), SORTS)
def test_sorts(dtype: Any, shape: tuple[int, ...], k: int, largest: bool) -> None:
    x = numbers(dtype, *shape)
    check(*(top_k(x, 1, k, largest) for _ in range(2)), [x], INTERPRETED)


@pytest.mark.gpu
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize(("dtype", "shape", "k"), [*SORTS, *LONG])
def test_sorts_on_a_device(dtype: Any, shape: tuple[int, ...], k: int, largest: bool) -> None:
    x = numbers(dtype, *shape)
    check(*(top_k(x, 1, k, largest) for _ in range(2)), [x], DEVICE)


def test_a_row_is_sorted_by_one_kernel() -> None:
    """With what is read by the sorted indices; a merge is a search, a scatter, and its filling."""
    for size, most in ((500, 1), (1024, 1), (4096, 5), (10000, 8)):
        module = top_k(np.zeros((3, size), ml_dtypes.bfloat16), 1, size, False)
        list(lower(module, TARGET.bind(TargetOptions("sm_90")).context()))
        assert len([*kernels_of(module)]) <= most


@pytest.mark.parametrize(("size", "wide"), [(736, 8), (558, 2), (557, 1), (301, 1)])
def test_neighbours_are_in_a_thread(size: int, wide: int) -> None:
    """However wide the loads are, a sort begins with all elements of a thread side by side."""
    module = top_k(np.zeros((3, size), ml_dtypes.bfloat16), 1, size, False)
    list(lower(module, TARGET.bind(TargetOptions("sm_90")).context()))
    [kernel] = kernels_of(module)
    text, most = emit_kernel(kernel).code, 1 << (size - 1).bit_length()
    assert kernel.schedule is not None
    rows = most // (WARP * kernel.schedule.data.option(WARPS)) // wide
    dealt = f"tl.trans(tl.reshape(y, ({rows}, {most // rows})))"
    assert (dealt in text) == (rows > 1) and ("tl.trans" in text) == (rows > 1)


def test_a_list_of_tensors_is_one_launch() -> None:
    module = sums(SHAPES, np.float32)
    list(lower(module, TARGET.bind(TargetOptions("sm_90")).context()))
    [kernel] = [k for k in kernels_of(module) if k.grid.data[0].constant != 0]
    [launch] = [op for op in module.walk() if isinstance(op, LaunchOp)
                and op.kernel == kernel.sym_name]
    assert len(launch.buffers) == 2 * (len(SHAPES) - 1)


@pytest.mark.parametrize("size", [1025, 5001, 4099, 1 << 20 | 7])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
def test_only_the_last_program_compares(size: int, dtype: Any) -> None:
    """The others load whole vectors; outputs can still be in the memory of inputs."""
    module = sums([(size,)], dtype)
    list(lower(module, TARGET.bind(TargetOptions("sm_90")).context()))
    [kernel] = kernels_of(module)
    code = emit_kernel(kernel).code
    whole, last = code.split("if ")[1:]
    assert "mask" not in whole and "mask" in last
    assert planned_kernel(kernel).overwrites == {(0, 1)}


@pytest.mark.parametrize("options", [
    INTERPRETED, pytest.param(DEVICE, marks=pytest.mark.gpu)], ids=["interpreted", "device"])
@pytest.mark.parametrize("size", [1024, 1025, 5001])
def test_odd_numbers_of_elements(size: int, options: TargetOptions) -> None:
    for dtype in (np.float16, np.float32, np.int8):
        check(*(sums([(size,)], dtype) for _ in range(2)), [numbers(dtype, size)], options)


@pytest.mark.parametrize("options", [
    INTERPRETED, pytest.param(DEVICE, marks=pytest.mark.gpu)], ids=["interpreted", "device"])
def test_lists_of_tensors(options: TargetOptions) -> None:
    inputs = [numbers(np.float32, *s) for s in SHAPES]
    check(*(sums(SHAPES, np.float32) for _ in range(2)), inputs, options)
