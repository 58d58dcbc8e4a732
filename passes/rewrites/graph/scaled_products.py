"""Turn products with weights into products of one-byte floats, with a scale per row and column.

    s = max |a[i, :]| / M,  u = max |w[:, j]| / M      (M: the largest such float)
    y[i, j] == sum(a[i, k] * w[k, j]) ~= sum(byte(a[i, k] / s) * byte(w[k, j] / u)) * s * u

Each factor is rounded once, and sums are f32. Weights are scaled at once by this rule, because as
operations they would exceed the budget of constant folding. The scales of rows are computed as the
model runs, so nothing needs calibration. A row of zeros gets the smallest scale; a row with an
infinity or NaN becomes NaN. Left alone: products whose second factor is not constant (attention),
and products that are too small to gain (`LEAST`). Source: the dynamic quantization by token and
channel of LLM.int8() (Dettmers et al., 2022), with the floats of FP8 Formats for Deep Learning
(Micikevicius et al., 2022).
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
"""Shorter sums and fewer columns than this gain nothing."""
LEAST_SCALE = 2.0**-126
"""The smallest normal number of f32."""


def scaled_matmul(op: MatmulOp, at: Rewriter) -> SSAValue | None:
    """The product of one-byte floats, if the target multiplies them and the user allows it."""
    byte = at.context.facts.scaled_factors
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
    """Whether the operation multiplies rows of floats with a matrix that is large enough."""
    return type_of(op.a).element in (f32, f16, bf16) and type_of(op.a).rank >= 2 and (
        type_of(op.b).rank == 2
        and all((size.constant or 0) >= LEAST for size in type_of(op.b).shape))


def _weights(value: SSAValue, at: Rewriter) -> Array | None:
    """The value of a constant, possibly through transpositions or casts."""
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
    """The bytes, and the factor by which to multiply each of their columns."""
    wide = weights.astype(np.float32)
    with np.errstate(invalid="ignore"):  # infinities become NaN
        most = np.abs(wide).max(0, keepdims=True) / np.float32(largest(byte))
        scale = np.maximum(most, np.float32(LEAST_SCALE))
        bytes_ = (wide / scale).astype(dtype_of(byte))
    store, label = at.context.weights, f"{location_name(at.anchor)}.scaled"
    made = [at.insert(ConstantOp.of_array(x, store, label)) for x in (bytes_, scale)]
    return made[0].results[0], made[1].results[0]


def _scaled_rows(at: Rewriter, x: SSAValue, byte: Attribute) -> tuple[SSAValue, SSAValue]:
    """The bytes, and the factor by which to multiply each of their rows."""
    axes = [type_of(x).rank - 1]
    most = cast(at, at(ReduceMaxOp, at(AbsOp, x), axes=axes, keepdims=True), f32)
    scale = at(MaxOp, at(DivOp, most, scalar(at, largest(byte), most)),
               scalar(at, LEAST_SCALE, most))
    return cast(at, at(DivOp, cast(at, x, f32), scale), byte), scale
