"""Products with weights become products of floats of a byte, with a scale for each row and column.

    s = max |a[i, :]| / M,  u = max |w[:, j]| / M      (M: the largest such float)
    y[i, j] == sum(a[i, k] * w[k, j]) ~= sum(byte(a[i, k] / s) * byte(w[k, j] / u)) * s * u

Each factor is rounded once; sums are f32. The scales of weights, and the weights, are folded; those
of the rows are found as the model runs, so that nothing is calibrated. A row of zeros has the least
scale; one with an infinity or NaN becomes NaN. Left alone: products whose second factor is no
constant (attention), and what is too small to gain: `LEAST`.
Source: the dynamic quantization by token and channel of LLM.int8() (Dettmers et al., 2022), with
floats as in FP8 Formats for Deep Learning (Micikevicius et al., 2022).
"""

from __future__ import annotations

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
from dialects.types import bf16, f16, f32, largest
from passes.graph.rules.matching import type_of
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
    a, row = _scaled(at, op.a, -1, byte)
    b, column = _scaled(at, op.b, -2, byte)
    total = at(MulOp, at(MulOp, at(MatmulOp, a, b, to=f32), row), column)
    return cast(at, total, type_of(op.result).element)


def _is_linear(op: MatmulOp) -> bool:
    """Whether it multiplies rows of floats with a matrix of weights."""
    weights = type_of(op.b)
    return type_of(op.a).element in (f32, f16, bf16) and type_of(op.a).rank >= 2 and (
        weights.rank == 2 and _is_weight(op.b)
        and all((size.constant or 0) >= LEAST for size in weights.shape))


def _is_weight(value: SSAValue) -> bool:
    op = value.owner
    return isinstance(op, ConstantOp) or (
        isinstance(op, CastOp | TransposeOp) and _is_weight(op.operands[0]))


def _scaled(at: Rewriter, x: SSAValue, dim: int, byte: Attribute) -> tuple[SSAValue, SSAValue]:
    """Bytes, and what each is to be multiplied with; `dim` is summed up."""
    axes = [type_of(x).rank + dim]
    most = cast(at, at(ReduceMaxOp, at(AbsOp, x), axes=axes, keepdims=True), f32)
    scale = at(MaxOp, at(DivOp, most, scalar(at, largest(byte), most)),
               scalar(at, LEAST_SCALE, most))
    return cast(at, at(DivOp, cast(at, x, f32), scale), byte), scale
