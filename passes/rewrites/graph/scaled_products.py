"""Products with weights become products of floats of a byte, with a scale for each row and column.

    s = max |a[i, :]| / M,  u = max |w[:, j]| / M      (M: the largest such float)
    y[i, j] == sum(a[i, k] * w[k, j]) ~= sum(byte(a[i, k] / s) * byte(w[k, j] / u)) * s * u

Each factor is rounded once; sums are f32. Weights are scaled here, at once, as their parts would
exceed what folding may make; the scales of rows are found as the model runs, so that nothing is
calibrated. A row of zeros has the least scale; one with an infinity or NaN becomes NaN. Left alone:
products whose second factor is no constant (attention), and what is too small to gain: `LEAST`.
Source: the dynamic quantization by token and channel of LLM.int8() (Dettmers et al., 2022), with
floats as in FP8 Formats for Deep Learning (Micikevicius et al., 2022).
"""

from __future__ import annotations

import numpy as np
from xdsl.ir import Attribute, SSAValue

from dialects.graph import (
    AbsOp,
    CastOp,
    ConstantOp,
    DivOp,
    MatmulOp,
    MaxOp,
    MulOp,
    ReduceMaxOp,
    TransposeOp,
)
from dialects.graph.composite import cast, scalar
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.types import Array, bf16, dtype_of, f16, f32, largest
from dialects.text.syntax import location_name
from passes.rewrites.graph.matching import constant_array, type_of
from passes.rewriting import Rewriter

LEAST = 64
"""Shorter sums, and fewer columns, gain nothing."""
LEAST_SCALE = 2.0**-126
"""The least normal number of f32."""


def scaled_matmul(op: MatmulOp, at: Rewriter) -> SSAValue | None:
    """The product of bytes, where the target multiplies such floats and the user allows it."""
    assert at.context.target is not None
    byte = at.context.target.scaled_factors(at.context.options)
    if byte is None or op.to is not None or not _is_linear(op):
        return None
    weights = _weights(op.b, at)
    if weights is None:
        return None
    a, row = _scaled_rows(at, op.a, byte)
    b, column = _scaled_columns(at, weights, byte)
    total = at(MulOp, at(MulOp, at(MatmulOp, a, b, to=f32), row), column)
    return cast(at, total, type_of(op.result).element)


def _is_linear(op: MatmulOp) -> bool:
    """Whether it multiplies rows of floats with a matrix."""
    return type_of(op.a).element in (f32, f16, bf16) and type_of(op.a).rank >= 2 and (
        type_of(op.b).rank == 2
        and all((size.constant or 0) >= LEAST for size in type_of(op.b).shape))


def _weights(value: SSAValue, at: Rewriter) -> Array | None:
    """The value of a constant, which may be transposed yet, or cast."""
    op = value.owner
    if not isinstance(op, CastOp | TransposeOp):
        return constant_array(value, at.context)
    array = _weights(op.operands[0], at)
    if array is None:
        return None
    result = op.evaluate(EvaluationContext(), array)
    assert isinstance(result, np.ndarray)
    return result


def _scaled_columns(at: Rewriter, weights: Array, byte: Attribute) -> tuple[SSAValue, SSAValue]:
    """Bytes, and what each column of them is to be multiplied with."""
    wide = weights.astype(np.float32)
    with np.errstate(invalid="ignore"):  # infinities become NaN
        most = np.abs(wide).max(0, keepdims=True) / np.float32(largest(byte))
        scale = np.maximum(most, np.float32(LEAST_SCALE))
        bytes_ = (wide / scale).astype(dtype_of(byte))
    store, label = at.context.weights, f"{location_name(at.anchor)}.scaled"
    made = [at.insert(ConstantOp.of_array(x, store, label)) for x in (bytes_, scale)]
    return made[0].results[0], made[1].results[0]


def _scaled_rows(at: Rewriter, x: SSAValue, byte: Attribute) -> tuple[SSAValue, SSAValue]:
    """Bytes, and what each row of them is to be multiplied with."""
    axes = [type_of(x).rank - 1]
    most = cast(at, at(ReduceMaxOp, at(AbsOp, x), axes=axes, keepdims=True), f32)
    scale = at(MaxOp, at(DivOp, most, scalar(at, largest(byte), most)),
               scalar(at, LEAST_SCALE, most))
    return cast(at, at(DivOp, cast(at, x, f32), scale), byte), scale
