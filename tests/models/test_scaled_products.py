"""`--precision fp8` on CUDA: bytes with a scale for each row and column, and f32 sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from dialects.block import KernelOp
from dialects.graph import ConstantOp, MatmulOp, TransposeOp
from dialects.host.interpret import interpret_host
from dialects.strata.func import FuncOp
from dialects.strata.types import Array, element_of, tensor
from passes.base import StrataContext
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.lowering import lower

DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
ROWS, DEPTH, COLUMNS = 5, 96, 67


def lowered(
    element: str, arch: str = "sm_90", depth: int = DEPTH, *, transposed: bool = False
) -> tuple[ModuleOp, StrataContext, Array]:
    """x @ w for a constant w, which may lie by columns."""
    context = TARGET.bind(TargetOptions(arch, precision="fp8")).context()
    weights = np.random.default_rng(0).standard_normal((depth, COLUMNS)) * np.logspace(
        -1, 1, COLUMNS)
    weights = weights.astype(DTYPES[element])
    func = FuncOp.of("main", ["x"], [tensor(element_of(np.dtype(DTYPES[element])), [ROWS, depth])])
    block = func.body.block
    kept = weights.T.copy() if transposed else weights
    constant = ConstantOp.of_array(kept, context.weights, "w")
    block.add_op(constant)
    if transposed:
        constant = TransposeOp.of(constant, perm=[1, 0])
        block.add_op(constant)
    product = MatmulOp.of(block.args[0], constant)
    block.add_op(product)
    func.finish(["y"], product.results)
    module = ModuleOp([func])
    for _ in lower(module, context):
        pass
    return module, context, weights


def byte_buffers(module: ModuleOp) -> Sequence[str]:
    return [str(b.type) for op in module.body.block.ops if isinstance(op, KernelOp)
            for b in op.buffers if "f8E4M3FN" in str(b.type)]


def rows(element: str) -> Array:
    """Of very different magnitudes, one of zeros, one with NaN, and one with an infinity."""
    x = np.random.default_rng(1).standard_normal((ROWS, DEPTH)) * [[0.1], [1], [1], [20], [0]]
    x[1, 3], x[2, 5] = np.nan, np.inf
    return x.astype(DTYPES[element])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("element", DTYPES)
def test_each_row_and_column_has_its_scale(element: str, transposed: bool) -> None:
    module, context, weights = lowered(element, transposed=transposed)
    assert len(byte_buffers(module)) >= 3, "written, and both are read"
    x = rows(element)
    [found] = interpret_host(module, [x], context.weights)
    assert found.dtype == x.dtype
    exact = x.astype(np.float64) @ weights.astype(np.float64)
    assert np.isnan(found[1:3].astype(np.float64)).all()
    assert not found[4].any()
    for row in (0, 3):
        off = np.abs(found[row].astype(np.float64) - exact[row])
        scale = np.linalg.norm(x[row].astype(np.float64)) * np.linalg.norm(
            weights.astype(np.float64), axis=0)
        # two roundings by 2^-4 at most of what is near the largest, of random signs
        assert (off <= 0.02 * scale).all(), (off / scale).max()
        assert off.max() > 0, "nothing was rounded"


def test_what_stays_as_it_is() -> None:
    assert not byte_buffers(lowered("f16", "sm_80")[0]), "no instructions"
    assert not byte_buffers(lowered("f16", depth=63)[0]), "too small"
